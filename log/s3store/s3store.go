// Package s3store is an object store in a bucket of S3, or of another service that
// speaks its protocol. It is a module of its own, so that only those who use it have
// the client among their dependencies.
//
//	client, err := minio.New("s3.eu-central-1.amazonaws.com", &minio.Options{
//		Creds: credentials.NewEnvAWS(), Secure: true, Region: "eu-central-1",
//	})
//	...
//	store, err := s3store.New(client, "my-bucket", "orders/")
//	node, err := thalweg.Options{Log: log.Options{Remote: store}}.Open(dir)
//
// The bucket has to answer a read after a write with what was written, as S3 does. Who
// uses a log is the only one who may write below its prefix.
package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/thalweg/thalweg/log"
)

// Store is a log.ObjectStore in a bucket.
type Store struct {
	core           minio.Core
	bucket, prefix string
}

var _ log.ObjectStore = (*Store)(nil)

// New returns the store in bucket, which exists, of the objects whose names begin with
// prefix. A prefix that is not empty ends with a slash. Nothing is asked of the service
// yet. The client may be used for other things.
func New(client *minio.Client, bucket, prefix string) (*Store, error) {
	switch {
	case client == nil:
		return nil, errors.New("s3store: New without a client")
	case bucket == "":
		return nil, errors.New("s3store: New without a bucket")
	case prefix != "" && !strings.HasSuffix(prefix, "/"):
		return nil, fmt.Errorf("s3store: prefix %q does not end with a slash", prefix)
	}
	return &Store{core: minio.Core{Client: client}, bucket: bucket, prefix: prefix}, nil
}

// Put implements log.ObjectStore. An object goes in one request, with the sum of its
// content, which the service compares.
func (s *Store) Put(ctx context.Context, name string, content io.ReadSeeker, size int64) error {
	_, err := s.core.Client.PutObject(ctx, s.bucket, s.prefix+name, content, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", DisableMultipart: true, SendContentMd5: true,
	})
	return err
}

// ReadAt implements log.ObjectStore.
func (s *Store) ReadAt(ctx context.Context, name string, p []byte, off int64) (n int, err error) {
	if len(p) == 0 {
		return 0, ctx.Err()
	}
	var o minio.GetObjectOptions
	if err := o.SetRange(off, off+int64(len(p))-1); err != nil {
		return 0, err
	}
	body, answered, _, err := s.core.GetObject(ctx, s.bucket, s.prefix+name, o)
	if err != nil {
		answer := minio.ToErrorResponse(err)
		switch {
		case answer.StatusCode == http.StatusRequestedRangeNotSatisfiable:
			return 0, io.EOF
		case answer.StatusCode == http.StatusNotFound:
			return 0, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		return 0, err
	}
	n, err = io.ReadFull(body, p)
	if err == io.ErrUnexpectedEOF && int64(n) == answered.Size {
		err = io.EOF // the object ends here
	}
	if closeErr := body.Close(); err == nil {
		err = closeErr
	}
	return n, err
}

// Delete implements log.ObjectStore.
func (s *Store) Delete(ctx context.Context, name string) error {
	return s.core.Client.RemoveObject(ctx, s.bucket, s.prefix+name, minio.RemoveObjectOptions{})
}

// List implements log.ObjectStore.
func (s *Store) List(ctx context.Context, prefix string) (names []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the client's goroutine
	for object := range s.core.Client.ListObjects(ctx, s.bucket, minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true}) {
		if object.Err != nil {
			return nil, object.Err
		}
		names = append(names, strings.TrimPrefix(object.Key, s.prefix))
	}
	return names, ctx.Err()
}
