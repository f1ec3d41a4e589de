package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
)

// A value in the binary codec:
//
//	at  size  field
//	 0     4  fingerprint of the schema: its CRC-32C, big-endian
//	 4        the value, as its kind in the schema says
//
// There is no checksum: what keeps values has its own.
//
// A schema, which is kept once for many values:
//
//	at  size  field
//	 0     1  format version of the schema and of the values under it: 1
//	 1        the type of the value
//
// A type is one byte for its kind, then what the kind needs. The value column
// is how a value of the kind is written; a varint is least significant group
// first, and the shortest form is the only one.
//
//	kind       then, in the schema                    value
//	 1 bool                                           one byte, 0 or 1
//	 2 int                                            varint of the zigzag form
//	 3 uint                                           varint
//	 4 float32                                        4 bytes, big-endian
//	 5 float64                                        8 bytes, big-endian
//	 6 string                                         varint length, bytes
//	 7 bytes                                          0 for nil, else varint length+1, bytes
//	 8 time                                           12 bytes, see timeBytes
//	 9 struct  varint count, per field name and type  the fields, in this order
//	10 array   varint length, type of the elements    the elements
//	11 slice   type of the elements                   0 for nil, else varint count+1, elements
//	12 map     type of the keys, of the elements      0 for nil, else varint count+1, then key
//	                                                  and element, keys in ascending order of
//	                                                  their bytes, each once
//	13 pointer type of what it points to              0 for nil, else 1 and the value
//	14 raw     varint length                          that many bytes
//	15 opaque  name of the codec                      varint length, what that codec wrote
//
// A name is a varint length and its bytes. The width of an integer is not part
// of the schema: a wider one reads what a narrower one wrote, and the other
// way round a value that does not fit is an error.
const schemaVersion = 1

type kind uint8

const (
	kindBool kind = iota + 1
	kindInt
	kindUint
	kindFloat32
	kindFloat64
	kindString
	kindBytes
	kindTime
	kindStruct
	kindArray
	kindSlice
	kindMap
	kindPointer
	kindRaw
	kindOpaque
)

var kindNames = [...]string{
	kindBool: "bool", kindInt: "int", kindUint: "uint", kindFloat32: "float32", kindFloat64: "float64",
	kindString: "string", kindBytes: "bytes", kindTime: "time", kindStruct: "struct", kindArray: "array",
	kindSlice: "slice", kindMap: "map", kindPointer: "pointer", kindRaw: "raw bytes", kindOpaque: "codec",
}

const (
	fingerprintBytes = 4

	// maxDepth bounds how deep types nest, and so the stack a schema or a
	// value can ask for.
	maxDepth = 64

	// maxSchemaBytes bounds a schema, and with it the work of reading one.
	maxSchemaBytes = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func fingerprintOf(schema []byte) uint32 { return crc32.Checksum(schema, castagnoli) }

// node is a type in a schema.
type node struct {
	kind   kind
	length uint64  // of an array or raw bytes
	label  string  // of the codec of an opaque
	fields []field // of a struct, names distinct
	key    *node   // of a map
	elem   *node   // of an array, slice, map or pointer

	// least is the fewest bytes a value takes, capped at math.MaxUint32. It is
	// zero only if every value takes none.
	least uint64
}

type field struct {
	name string
	node *node
}

// String describes n as errors do.
func (n *node) String() string {
	switch n.kind {
	case kindArray:
		return "array of " + strconv.FormatUint(n.length, 10)
	case kindRaw:
		return strconv.FormatUint(n.length, 10) + " raw bytes"
	case kindOpaque:
		return "codec " + n.label
	}
	return kindNames[n.kind]
}

// measure sets least, after the parts of n have theirs.
func (n *node) measure() {
	const most = 1<<32 - 1
	switch n.kind {
	case kindFloat32:
		n.least = 4
	case kindFloat64:
		n.least = 8
	case kindTime:
		n.least = timeBytes
	case kindRaw:
		n.least = min(n.length, most)
	case kindStruct:
		for _, f := range n.fields {
			n.least = min(n.least+f.node.least, most)
		}
	case kindArray:
		n.least = min(min(n.length, most)*n.elem.least, most)
	default:
		n.least = 1
	}
}

func appendSchema(dst []byte, n *node) []byte { return appendNode(append(dst, schemaVersion), n) }

func appendNode(dst []byte, n *node) []byte {
	dst = append(dst, byte(n.kind))
	switch n.kind {
	case kindStruct:
		dst = binary.AppendUvarint(dst, uint64(len(n.fields)))
		for _, f := range n.fields {
			dst = appendNode(appendName(dst, f.name), f.node)
		}
	case kindArray:
		dst = appendNode(binary.AppendUvarint(dst, n.length), n.elem)
	case kindSlice, kindPointer:
		dst = appendNode(dst, n.elem)
	case kindMap:
		dst = appendNode(appendNode(dst, n.key), n.elem)
	case kindRaw:
		dst = binary.AppendUvarint(dst, n.length)
	case kindOpaque:
		dst = appendName(dst, n.label)
	}
	return dst
}

func appendName(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

var errSchemaBytes = errors.New("codec: damaged schema")

// parseSchema reads a schema. It may come from anywhere.
func parseSchema(b []byte) (*node, error) {
	if len(b) == 0 || len(b) > maxSchemaBytes {
		return nil, fmt.Errorf("%w: %d bytes", errSchemaBytes, len(b))
	}
	if b[0] != schemaVersion {
		return nil, fmt.Errorf("codec: schema has format version %d, this program knows %d", b[0], schemaVersion)
	}
	n, rest, err := parseNode(b[1:], 0)
	if err != nil {
		return nil, err
	}
	if len(rest) != 0 {
		return nil, fmt.Errorf("%w: %d bytes follow it", errSchemaBytes, len(rest))
	}
	return n, nil
}

func parseNode(b []byte, depth int) (n *node, rest []byte, err error) {
	if depth > maxDepth {
		return nil, nil, fmt.Errorf("%w: nested deeper than %d", errSchemaBytes, maxDepth)
	}
	if len(b) == 0 {
		return nil, nil, fmt.Errorf("%w: it ends early", errSchemaBytes)
	}
	n = &node{kind: kind(b[0])}
	b = b[1:]
	switch n.kind {
	case kindBool, kindInt, kindUint, kindFloat32, kindFloat64, kindString, kindBytes, kindTime:
	case kindStruct:
		var count uint64
		if count, b, err = parseUvarint(b); err != nil {
			return nil, nil, err
		}
		if count > uint64(len(b)) { // a field takes more than one byte
			return nil, nil, fmt.Errorf("%w: %d fields in %d bytes", errSchemaBytes, count, len(b))
		}
		n.fields = make([]field, count)
		for i := range n.fields {
			f := &n.fields[i]
			if f.name, b, err = parseName(b); err != nil {
				return nil, nil, err
			}
			if f.node, b, err = parseNode(b, depth+1); err != nil {
				return nil, nil, err
			}
		}
		names := make([]string, count)
		for i, f := range n.fields {
			names[i] = f.name
		}
		slices.Sort(names)
		if len(slices.Compact(names)) != len(n.fields) {
			return nil, nil, fmt.Errorf("%w: two fields have one name", errSchemaBytes)
		}
	case kindArray:
		if n.length, b, err = parseUvarint(b); err != nil {
			return nil, nil, err
		}
		n.elem, b, err = parseNode(b, depth+1)
	case kindSlice, kindPointer:
		n.elem, b, err = parseNode(b, depth+1)
	case kindMap:
		if n.key, b, err = parseNode(b, depth+1); err != nil {
			return nil, nil, err
		}
		n.elem, b, err = parseNode(b, depth+1)
	case kindRaw:
		n.length, b, err = parseUvarint(b)
	case kindOpaque:
		n.label, b, err = parseName(b)
	default:
		return nil, nil, fmt.Errorf("%w: unknown kind %d", errSchemaBytes, n.kind)
	}
	if err != nil {
		return nil, nil, err
	}
	n.measure()
	return n, b, nil
}

func parseUvarint(b []byte) (v uint64, rest []byte, err error) {
	v, size := uvarint(b)
	if size == 0 {
		return 0, nil, fmt.Errorf("%w: bad length", errSchemaBytes)
	}
	return v, b[size:], nil
}

func parseName(b []byte) (s string, rest []byte, err error) {
	n, b, err := parseUvarint(b)
	if err != nil {
		return "", nil, err
	}
	if n > uint64(len(b)) {
		return "", nil, fmt.Errorf("%w: a name of %d bytes in %d", errSchemaBytes, n, len(b))
	}
	return string(b[:n]), b[n:], nil
}

// uvarint decodes the varint at the start of b and returns its size, or 0 when
// there is none, it is longer than it need be, or above 64 bits.
func uvarint(b []byte) (v uint64, size int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	v, size = binary.Uvarint(b)
	if size <= 0 || b[size-1] == 0 {
		return 0, 0
	}
	return v, size
}
