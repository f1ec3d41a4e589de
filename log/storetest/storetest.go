// Package storetest tells whether something is a log.ObjectStore.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"testing"

	"github.com/thalweg/thalweg/log"
)

// Run tests the store that open returns, empty, each time it is called.
func Run(t *testing.T, open func(t *testing.T) log.ObjectStore) {
	t.Run("RoundTrip", func(t *testing.T) { roundTrip(t, open(t)) })
	t.Run("Replace", func(t *testing.T) { replace(t, open(t)) })
	t.Run("List", func(t *testing.T) { list(t, open(t)) })
	t.Run("Delete", func(t *testing.T) { remove(t, open(t)) })
	t.Run("FailedPut", func(t *testing.T) { failedPut(t, open(t)) })
	t.Run("Concurrent", func(t *testing.T) { concurrent(t, open(t)) })
	t.Run("Context", func(t *testing.T) { cancelled(t, open(t)) })
}

func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

func put(t *testing.T, s log.ObjectStore, name string, b []byte) {
	t.Helper()
	if err := s.Put(t.Context(), name, bytes.NewReader(b), int64(len(b))); err != nil {
		t.Fatalf("put %s: %v", name, err)
	}
}

// roundTrip shows that every range of an object is what was put, and where it ends.
func roundTrip(t *testing.T, s log.ObjectStore) {
	for _, size := range []int{0, 1, 100, 3<<20 + 17} {
		name, want := fmt.Sprintf("topic-0/00af/%020d", size), content(size)
		put(t, s, name, want)
		for _, r := range [][2]int{{0, size}, {0, size / 2}, {size / 3, size}, {size - 1, size}, {0, size + 10}, {size / 2, size + 1}} {
			if r[0] < 0 {
				continue
			}
			p := make([]byte, r[1]-r[0])
			n, err := s.ReadAt(t.Context(), name, p, int64(r[0]))
			inside := min(r[1], size) - r[0]
			if n != inside || !bytes.Equal(p[:n], want[r[0]:r[0]+n]) {
				t.Fatalf("%d bytes, range %v: got %d other ones, %v", size, r, n, err)
			}
			if r[1] > size && err != io.EOF || r[1] < size && err != nil || err != nil && err != io.EOF {
				t.Fatalf("%d bytes, range %v: error %v", size, r, err)
			}
		}
	}
	if _, err := s.ReadAt(t.Context(), "topic-0/missing", make([]byte, 1), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a missing object is answered by %v", err)
	}
}

// replace shows that a second Put of a name counts, shorter or longer.
func replace(t *testing.T, s log.ObjectStore) {
	for _, size := range []int{1000, 10, 5000} {
		put(t, s, "a", content(size))
		p := make([]byte, 6000)
		if n, err := s.ReadAt(t.Context(), "a", p, 0); n != size || err != io.EOF || !bytes.Equal(p[:n], content(size)) {
			t.Fatalf("got %d bytes of %d, %v", n, size, err)
		}
	}
}

// list shows that List finds the names with a prefix, and only those, many too.
func list(t *testing.T, s log.ObjectStore) {
	var want []string
	for i := range 1100 {
		name := fmt.Sprintf("t-1/00000000000000aa/%020d-%08x", i, i*i)
		put(t, s, name, []byte{byte(i)})
		want = append(want, name)
	}
	put(t, s, "t-1/00000000000000ab/0", nil)
	put(t, s, "t-10/00000000000000aa/0", nil)
	for prefix, want := range map[string][]string{"t-1/00000000000000aa/": want, "t-10/": {"t-10/00000000000000aa/0"}, "t-2/": nil} {
		got, err := s.List(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("prefix %s: %d names, want %d", prefix, len(got), len(want))
		}
	}
}

// remove shows that a deleted object is gone, and that deleting it again is no error.
func remove(t *testing.T, s log.ObjectStore) {
	put(t, s, "a/1", []byte("x"))
	put(t, s, "a/2", []byte("y"))
	for range 2 {
		if err := s.Delete(t.Context(), "a/1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.ReadAt(t.Context(), "a/1", make([]byte, 1), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a deleted object is answered by %v", err)
	}
	if names, err := s.List(t.Context(), "a/"); err != nil || !slices.Equal(names, []string{"a/2"}) {
		t.Fatalf("left are %v, %v", names, err)
	}
}

// short ends before it should.
type short struct{ *bytes.Reader }

// failedPut shows that content that ends early leaves no object, and the one before
// as it was.
func failedPut(t *testing.T, s log.ObjectStore) {
	if err := s.Put(t.Context(), "new", short{bytes.NewReader(content(100))}, 200); err == nil {
		t.Fatal("100 bytes were taken for 200")
	}
	if _, err := s.ReadAt(t.Context(), "new", make([]byte, 1), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("after a failed put it is answered by %v", err)
	}
	put(t, s, "old", content(50))
	if err := s.Put(t.Context(), "old", short{bytes.NewReader(content(100))}, 200); err == nil {
		t.Fatal("100 bytes were taken for 200")
	}
	p := make([]byte, 50)
	if _, err := s.ReadAt(t.Context(), "old", p, 0); err != nil && err != io.EOF || !bytes.Equal(p, content(50)) {
		t.Fatalf("a failed put changed the object: %v", err)
	}
}

// concurrent shows that several may use the store at once.
func concurrent(t *testing.T, s log.ObjectStore) {
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 10 {
				name, want := fmt.Sprintf("p-%d/%d", g, i), content(1000*g+i+1)
				if err := s.Put(t.Context(), name, bytes.NewReader(want), int64(len(want))); err != nil {
					t.Error(err)
					return
				}
				p := make([]byte, len(want))
				if n, err := s.ReadAt(t.Context(), name, p, 0); n != len(want) || err != nil && err != io.EOF || !bytes.Equal(p, want) {
					t.Errorf("%s: %d bytes, %v", name, n, err)
				}
			}
		})
	}
	all.Wait()
}

// cancelled shows that nothing is done for a context that has ended.
func cancelled(t *testing.T, s log.ObjectStore) {
	put(t, s, "a", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, "b", bytes.NewReader(content(10)), 10); err == nil {
		t.Error("Put did not look at its context")
	}
	if _, err := s.ReadAt(ctx, "a", make([]byte, 1), 0); err == nil {
		t.Error("ReadAt did not look at its context")
	}
	if err := s.Delete(ctx, "a"); err == nil {
		t.Error("Delete did not look at its context")
	}
	if _, err := s.List(ctx, ""); err == nil {
		t.Error("List did not look at its context")
	}
}
