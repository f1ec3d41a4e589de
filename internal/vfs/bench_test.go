package vfs

import (
	"fmt"
	"path"
	"testing"
)

// BenchmarkMappingWrite measures what guarding the copy costs, against the copy.
func BenchmarkMappingWrite(b *testing.B) {
	for _, size := range []int{16, 1024, 64 << 10} {
		p := make([]byte, size)
		run := func(name string, fsys FS, dir string) {
			f, err := fsys.Create(path.Join(dir, "f"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			const mapped = 1 << 20
			if err := f.Allocate(mapped); err != nil {
				b.Fatal(err)
			}
			m, err := f.Map(mapped)
			if err != nil {
				b.Fatal(err)
			}
			defer m.Unmap()
			m.Populate(0, mapped)
			b.Run(fmt.Sprintf("%s/bytes=%d", name, size), func(b *testing.B) {
				b.ReportAllocs()
				off := 0
				for b.Loop() {
					if err := m.Write(int64(off), p); err != nil {
						b.Fatal(err)
					}
					if off += size; off == mapped {
						off = 0
					}
				}
			})
		}
		run("os", OS(), b.TempDir())
		run("mem", NewMem(), "")
		b.Run(fmt.Sprintf("copy/bytes=%d", size), func(b *testing.B) {
			to := make([]byte, 1<<20)
			off := 0
			for b.Loop() {
				copy(to[off:], p)
				if off += size; off == len(to) {
					off = 0
				}
			}
		})
	}
}
