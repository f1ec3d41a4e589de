package log

import "fmt"

// Encode returns what builder holds as a batch of producer, ready for Write and its
// relatives: compressed as the builder says, or else as the topic does. Records that
// the topic does not allow, and batches that could not be read again, are ErrTooLarge.
// The batch is valid until the builder's next Add, Finish or Reset.
func (p *Partition) Encode(builder *BatchBuilder, producer Producer) ([]byte, error) {
	if err := builder.Err(); err != nil {
		return nil, fmt.Errorf("append to %s: %w", p.name, err)
	}
	spec := p.spec() // once: another one's level may not fit the codec
	if limit := spec.MaxRecordBytes; limit != 0 && builder.largest > limit {
		return nil, fmt.Errorf("append to %s: %w", p.name, recordTooLarge(builder.largest, limit))
	}
	compressor := builder.compressor
	if compressor == nil {
		compressor = p.log.compressors.of(spec.Compression, spec.CompressionLevel)
	}
	if plain := builder.Size() - batchHeaderBytes; compressor.active() && plain > p.options.MaxDecompressedBytes {
		return nil, fmt.Errorf("%w: %d bytes for %s before compression, at most %d could be read again (Options.MaxDecompressedBytes)",
			ErrTooLarge, plain, p.name, p.options.MaxDecompressedBytes)
	}
	return builder.finishWith(producer, compressor), nil
}

// checkRecords decompresses and walks the records of b.
func (p *Partition) checkRecords(b *Batch) error {
	b.unpacker = p.log.decoders.unpacker()
	err := b.checkRecords(p.spec().MaxRecordBytes)
	p.log.decoders.done(b.unpacker)
	b.unpacker, b.plain = nil, nil
	if err != nil {
		return fmt.Errorf("append to %s: %w", p.name, err)
	}
	return nil
}

// checkKeys refuses a batch for a compacted topic in which a record has no key.
func (p *Partition) checkKeys(b *Batch) error {
	if b.Compression != 0 {
		b.unpacker = p.log.decoders.unpacker()
		defer func() {
			p.log.decoders.done(b.unpacker)
			b.unpacker, b.plain = nil, nil
		}()
	}
	if i := b.firstWithoutKey(); i >= 0 {
		return fmt.Errorf("%w: record %d of a batch of %d for %s: give it a key, or write to a topic without Compact", ErrNoKey, i, b.Count, p.name)
	}
	return nil
}

// recordTooLarge refuses a record because of the topic's setting.
func recordTooLarge(size, limit int64) error {
	return fmt.Errorf("%w: a record has %d bytes of key, value and headers, the topic's MaxRecordBytes is %d; make the record smaller, or raise the setting",
		ErrTooLarge, size, limit)
}
