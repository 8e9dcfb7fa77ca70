package bucket

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // S3 names an object's hash so; segments have SHA-256 of their own
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/weir-rl/weir/trainer/archive/messages"
)

const (
	// requestTries is how often the client tries a request that the store does not refuse.
	requestTries = 3
	// requestTime bounds a request with its tries; a request with data has the time of slowest bytes a second beside.
	requestTime = time.Minute
	slowest     = 128 << 10
	// probeName is an object that is written and removed to see whether the bucket can be written to.
	probeName = "weir-probe"
)

// Bucket holds segments as objects of a bucket. Close it.
type Bucket struct {
	client    *minio.Core
	transport *http.Transport
	name      string
	// prefix begins the keys of all segments, with a slash at its end where it is not empty.
	prefix string

	mu      sync.Mutex
	closed  bool
	cancels map[*context.CancelFunc]struct{}
}

// Open returns the segments of a run in the bucket of cfg.Dir. It sends no request.
func Open(cfg messages.Config, run string) (*Bucket, error) {
	host, secure := "s3.amazonaws.com", true
	if cfg.S3.Endpoint != "" {
		u, err := url.Parse(cfg.S3.Endpoint)
		if err != nil {
			return nil, errors.New("trainer.archive.messages.s3.endpoint is no URL")
		}
		host, secure = u.Host, u.Scheme == "https"
	}
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("prepare connections to %s: %w", host, err)
	}
	lookup := minio.BucketLookupAuto
	if cfg.S3.PathStyle {
		lookup = minio.BucketLookupPath
	}
	region := cfg.S3.Region
	for _, key := range []string{"AWS_REGION", "AWS_DEFAULT_REGION"} {
		if region == "" {
			region = os.Getenv(key)
		}
	}
	client, err := minio.NewCore(host, &minio.Options{
		Creds: newCredentials(), Secure: secure, Transport: checkedTransport{transport}, Region: region, BucketLookup: lookup,
		MaxRetries: requestTries,
	})
	if err != nil {
		return nil, fmt.Errorf("prepare requests to %s: %w", host, err)
	}
	client.SetAppInfo("weir", "1")
	name, prefix := cfg.Bucket()
	return &Bucket{
		client: client, transport: transport, name: name, prefix: path.Join(prefix, run) + "/", cancels: map[*context.CancelFunc]struct{}{},
	}, nil
}

// boundRequest returns the context of a request that sends or reads a number of bytes. It ends when the Bucket is closed.
func (b *Bucket) boundRequest(size int64) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime+time.Duration(size/slowest)*time.Second)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		cancel()
	}
	b.cancels[&cancel] = struct{}{}
	return ctx, func() {
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.cancels, &cancel)
	}
}

// Close ends the requests that are being made, and closes connections.
func (b *Bucket) Close() error {
	b.mu.Lock()
	b.closed = true
	for cancel := range b.cancels {
		(*cancel)()
	}
	b.mu.Unlock()
	b.transport.CloseIdleConnections()
	return nil
}

// explain adds which request failed to an error of the client. An object that is not there is fs.ErrNotExist.
func (b *Bucket) explain(act, name string, err error) error {
	if err == nil {
		return nil
	}
	answer := minio.ToErrorResponse(err)
	if answer.Code == minio.NoSuchKey {
		err = fs.ErrNotExist
	} else if answer.Code != "" && !strings.Contains(err.Error(), answer.Code) {
		err = fmt.Errorf("%s: %w", answer.Code, err)
	}
	return fmt.Errorf("%s s3://%s/%s at %s: %w", act, b.name, b.prefix+name, b.client.EndpointURL().Host, err)
}

// List implements messages.Segments.
func (b *Bucket) List() ([]messages.Stored, error) {
	ctx, cancel := b.boundRequest(10 * 60 * slowest)
	defer cancel()
	var out []messages.Stored
	for o := range b.client.Client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, b.explain("list", "", o.Err)
		}
		if name := strings.TrimPrefix(o.Key, b.prefix); !strings.Contains(name, "/") {
			out = append(out, messages.Stored{Name: name, Size: o.Size, At: o.LastModified})
		}
	}
	if err := ctx.Err(); err != nil { // the list may end in its middle
		return nil, b.explain("list", "", err)
	}
	return out, nil
}

// Put implements messages.Store. It returns nil after the store has confirmed the bytes.
func (b *Bucket) Put(name string, data []byte) error {
	ctx, cancel := b.boundRequest(int64(len(data)))
	defer cancel()
	info, err := b.client.Client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{
		ContentType: "application/octet-stream", SendContentMd5: true, DisableMultipart: true,
	})
	if err != nil {
		return b.explain("put", name, err)
	}
	hash := md5.Sum(data) //nolint:gosec // as above
	if strings.EqualFold(strings.Trim(info.ETag, `"`), hex.EncodeToString(hash[:])) {
		return nil
	}
	// With encryption by a customer's key an ETag is no hash, and an error in an answer of 200 has none.
	return b.compareStored(name, data)
}

// Claim implements messages.Store. A store that does not know a put which does not overwrite may let two owners write their mark at the
// same moment: a messages.Spool of the first of them finds the mark of the other before it sends its next segment.
func (b *Bucket) Claim(id string, take bool) (have string, err error) {
	return messages.ClaimMark(b, id, take, b.putNew)
}

// unknownCondition are the statuses of stores that do not know the condition of putNew, in whatever words.
var unknownCondition = []int{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotImplemented}

// putNew puts an object that is not there; the error is fs.ErrExist, wrapped, where it is.
func (b *Bucket) putNew(name string, data []byte) error {
	ctx, cancel := b.boundRequest(int64(len(data)))
	defer cancel()
	o := minio.PutObjectOptions{ContentType: "text/plain", SendContentMd5: true, DisableMultipart: true}
	o.SetMatchETagExcept("*")
	_, err := b.client.Client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(data), int64(len(data)), o)
	switch answer := minio.ToErrorResponse(err); {
	case answer.Code == minio.PreconditionFailed, answer.Code == "ConditionalRequestConflict", answer.StatusCode == http.StatusNotModified:
		err = fmt.Errorf("it was written meanwhile: %w", fs.ErrExist)
	case slices.Contains(unknownCondition, answer.StatusCode):
		return b.Put(name, data)
	}
	return b.explain("put", name, err)
}

// Excludes reports whether the store refuses to write over an object where it is told not to, so that of two runs that begin at the same
// moment a single run writes the owner's mark. It tries that with an object of its own, which it removes.
func (b *Bucket) Excludes() (bool, error) {
	name := probeName + "-" + rand.Text() // nobody else's
	if err := b.Put(name, []byte("first")); err != nil {
		return false, err
	}
	err := b.putNew(name, []byte("second"))
	excludes := errors.Is(err, fs.ErrExist)
	if excludes {
		err = nil
	}
	return excludes, errors.Join(err, b.Remove(name))
}

// String names the bucket, the run's prefix and the store.
func (b *Bucket) String() string {
	return fmt.Sprintf("s3://%s/%s at %s", b.name, b.prefix, b.client.EndpointURL().Host)
}

// compareStored reads an object back.
func (b *Bucket) compareStored(name string, data []byte) error {
	blob, err := b.Open(name)
	if err != nil {
		return fmt.Errorf("read back what was put: %w", err)
	}
	have := make([]byte, blob.Size())
	_, err = blob.ReadAt(have, 0)
	if err = errors.Join(err, blob.Close()); err != nil {
		return fmt.Errorf("read back what was put: %w", err)
	}
	if !bytes.Equal(have, data) {
		return b.explain("put", name, fmt.Errorf("the bucket has %d other bytes under this name, not the %d that were put", len(have), len(data)))
	}
	return nil
}

// Remove implements messages.Store.
func (b *Bucket) Remove(name string) error {
	ctx, cancel := b.boundRequest(0)
	defer cancel()
	err := b.explain("remove", name, b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Sweep implements messages.Store: a Put that was cut off leaves nothing.
func (b *Bucket) Sweep() error { return nil }

// Probe writes an object and removes it.
func (b *Bucket) Probe() error {
	return errors.Join(b.Put(probeName, []byte("probe")), b.Remove(probeName))
}

// Open implements messages.Segments. It reads the end of the object, where a segment has its index.
func (b *Bucket) Open(name string) (messages.Blob, error) {
	o := &object{bucket: b, name: name}
	if err := o.readEnd(); err != nil {
		return nil, err
	}
	return o, nil
}

// statSize returns the size of an object.
func (b *Bucket) statSize(name string) (int64, error) {
	ctx, cancel := b.boundRequest(0)
	defer cancel()
	info, err := b.client.StatObject(ctx, b.name, b.prefix+name, minio.StatObjectOptions{})
	return info.Size, b.explain("read", name, err)
}

// getRange reads a range of an object. size is that of the whole object.
func (b *Bucket) getRange(name, etag string, from, to, bytes int64) (data []byte, at, size int64, have string, err error) {
	ctx, cancel := b.boundRequest(bytes)
	defer cancel()
	var o minio.GetObjectOptions
	if err := o.SetRange(from, to); err != nil {
		return nil, 0, 0, "", err
	}
	if etag != "" {
		if err := o.SetMatchETag(etag); err != nil {
			return nil, 0, 0, "", err
		}
	}
	body, info, header, err := b.client.GetObject(ctx, b.name, b.prefix+name, o)
	if err != nil {
		if code := minio.ToErrorResponse(err).Code; code == minio.PreconditionFailed {
			err = fmt.Errorf("it was written again: %w", fs.ErrNotExist)
		}
		return nil, 0, 0, "", b.explain("read", name, err)
	}
	defer func() { _ = body.Close() }()  // the bytes that were read count
	if etag != "" && info.ETag != etag { // not every store heeds a condition
		return nil, 0, 0, "", b.explain("read", name, fmt.Errorf("it was written again: %w", fs.ErrNotExist))
	}
	if info.ETag == "" {
		return nil, 0, 0, "", b.explain("read", name, errors.New("the answer has no ETag: it is not that of a store that speaks S3"))
	}
	size, end := info.Size, info.Size-1
	if text := header.Get("Content-Range"); text != "" {
		if _, err := fmt.Sscanf(text, "bytes %d-%d/%d", &at, &end, &size); err != nil || at < 0 || end < at || end >= size {
			return nil, 0, 0, "", b.explain("read", name, fmt.Errorf("the answer has the range %q", text))
		}
	}
	if end-at >= bytes {
		return nil, 0, 0, "", b.explain("read", name, fmt.Errorf("%d bytes were asked for, and the answer has %d", bytes, end-at+1))
	}
	data = make([]byte, end-at+1)
	if _, err := io.ReadFull(body, data); err != nil {
		return nil, 0, 0, "", b.explain("read", name, err)
	}
	return data, at, size, info.ETag, nil
}
