package log

// Before returns the batch without its records at off and above. It shares the bytes of
// b, which stays as it is, and is valid for as long as b is.
func (b *Batch) Before(off Offset) (Batch, error) {
	whole := *b
	whole.First = b.Base
	plain, err := whole.decompressed()
	if err != nil {
		return Batch{}, err
	}
	before := whole
	before.First, before.Last, before.Count, before.plain = b.First, min(off-1, b.Last), 0, plain[:0:0]
	it := whole.Records()
	for it.Next() && it.Offset < off {
		before.Count++
		used := len(plain) - len(it.rest)
		before.plain = plain[:used:used]
	}
	return before, it.Err()
}
