package state

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// schemed is a codec whose values are read with a schema that is kept beside
// them; the codecs of structs in topic/codec are.
type schemed interface {
	Schema() []byte
	AddSchema(schema []byte) error
}

// A schema is kept under a key of its own in changelog and store, so that any
// number of them stay as long as values written under them may.
//
//	key    0x00  's'  CRC-32C of the schema, big-endian
//	value  format version, 1, and the schema
var (
	schemasBegin = []byte{kindMeta, 's'}
	schemasEnd   = []byte{kindMeta, 's' + 1}

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func appendSchemaKey(dst, schema []byte) []byte {
	return binary.BigEndian.AppendUint32(append(dst, schemasBegin...), crc32.Checksum(schema, castagnoli))
}

// loadSchemas hands the schemas that s keeps to c, and tells whether that of c
// itself is among them. A codec without schemas has nothing to keep.
func loadSchemas(s *Store, c any) (kept bool, err error) {
	sc, ok := c.(schemed)
	if !ok {
		return true, nil
	}
	own := sc.Schema()
	for e, err := range s.o.DB.Range(schemasBegin, schemasEnd) {
		if err != nil {
			return false, s.wrap("read the schemas", err)
		}
		schema, err := valueBody(e.Value)
		if err == nil {
			err = sc.AddSchema(bytes.Clone(schema))
		}
		if err != nil {
			return false, s.wrap("read the schemas", err)
		}
		kept = kept || bytes.Equal(schema, own)
	}
	return kept, nil
}

// putSchema writes the schema of c to the changelog.
func putSchema(c any, put func(key, value []byte) error) error {
	schema := c.(schemed).Schema()
	return put(appendSchemaKey(nil, schema), append([]byte{valueVersion}, schema...))
}
