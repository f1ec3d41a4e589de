package s3store_test

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/thalweg/thalweg/log"
	"github.com/thalweg/thalweg/log/s3store"
	"github.com/thalweg/thalweg/log/storetest"
)

// service is as much of S3 as the store needs, in memory, with one bucket.
type service struct {
	mu      sync.Mutex
	objects map[string][]byte
	page    int // names in one answer of a list
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key, ok := strings.CutPrefix(r.URL.Path, "/bucket/")
	if !ok && r.URL.Path != "/bucket" {
		s.fail(w, http.StatusNotFound, "NoSuchBucket")
		return
	}
	if !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=key/") {
		s.fail(w, http.StatusForbidden, "AccessDenied")
		return
	}
	switch {
	case r.Method == http.MethodGet && key == "":
		s.list(w, r)
	case r.Method == http.MethodGet:
		s.mu.Lock()
		content, ok := s.objects[key]
		s.mu.Unlock()
		if !ok {
			s.fail(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", `"x"`)
		http.ServeContent(w, r, "", time.Unix(1, 0), bytes.NewReader(content))
	case r.Method == http.MethodPut:
		content, err := io.ReadAll(r.Body)
		sum := md5.Sum(content)
		if err != nil || int64(len(content)) != r.ContentLength || r.Header.Get("Content-Md5") != base64.StdEncoding.EncodeToString(sum[:]) {
			s.fail(w, http.StatusBadRequest, "BadDigest")
			return
		}
		s.mu.Lock()
		s.objects[key] = content
		s.mu.Unlock()
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%x", sum)))
	case r.Method == http.MethodDelete:
		s.mu.Lock()
		delete(s.objects, key)
		s.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	default:
		s.fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func (s *service) list(w http.ResponseWriter, r *http.Request) {
	type entry struct {
		Key          string
		LastModified string
		Size         int
		ETag         string
	}
	var answer struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		Name, Prefix          string
		IsTruncated           bool
		NextContinuationToken string `xml:",omitempty"`
		Contents              []entry
	}
	answer.Name, answer.Prefix = "bucket", r.FormValue("prefix")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasPrefix(key, answer.Prefix) || key <= r.FormValue("continuation-token") {
			continue
		}
		if len(answer.Contents) == s.page {
			answer.IsTruncated = true
			answer.NextContinuationToken = answer.Contents[s.page-1].Key
			break
		}
		answer.Contents = append(answer.Contents, entry{key, "2020-01-01T00:00:00.000Z", len(s.objects[key]), `"x"`})
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(answer)
}

func (s *service) fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>%s</Message></Error>", code, code)
}

func open(t *testing.T, s *service, prefix string) *s3store.Store {
	t.Helper()
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	client, err := minio.New(strings.TrimPrefix(server.URL, "https://"), &minio.Options{
		Creds: credentials.NewStaticV4("key", "secret", ""), Secure: true, Region: "here",
		Transport: server.Client().Transport, MaxRetries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	store, err := s3store.New(client, "bucket", prefix)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func TestStore(t *testing.T) {
	for _, prefix := range []string{"", "some/where/"} {
		storetest.Run(t, func(t *testing.T) log.ObjectStore {
			return open(t, &service{objects: map[string][]byte{"elsewhere": nil}, page: 300}, prefix)
		})
	}
}

// TestPartition reads a partition whose segments are in the bucket alone.
func TestPartition(t *testing.T) {
	objects := &service{objects: map[string][]byte{}, page: 1000}
	store := open(t, objects, "logs/")
	l, err := log.Open(t.TempDir(), log.Options{Remote: store, RemoteInterval: -1, SegmentBytes: 10 << 10, RemoteReadBytes: 3000})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Create("t", log.TopicSpec{Partitions: 1, Sync: log.SyncAlways, Remote: true, LocalRetentionBytes: 1}); err != nil {
		t.Fatal(err)
	}
	p, err := l.Partition(log.TopicPartition{Topic: "t"})
	if err != nil {
		t.Fatal(err)
	}
	const records = 500
	for i := range records {
		if _, err := p.AppendRecords(t.Context(), log.Record{Value: fmt.Append(nil, i, strings.Repeat("x", 100))}); err != nil {
			t.Fatal(err)
		}
	}
	for p.Remote().LocalStart < 400 { // once what was sealed is finished
		if err := p.Offload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(objects.objects); n != p.Remote().Segments || n < 5 {
		t.Fatalf("%d objects, %d segments", n, p.Remote().Segments)
	}
	r := p.Reader(0, log.ReadCommitted)
	defer r.Close()
	for i := range records {
		b, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		it := b.Records()
		if !it.Next() || it.Offset != log.Offset(i) || !strings.HasPrefix(string(it.Value), fmt.Sprint(i, "x")) {
			t.Fatalf("record %d is %d: %s", i, it.Offset, it.Value)
		}
	}
}
