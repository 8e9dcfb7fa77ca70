package streams

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
)

var (
	// ErrCorruptShard says that bytes are not those that their name, a hash, says.
	ErrCorruptShard = errors.New("corrupt shard")
	// ErrNoShard says that no bytes of that hash are stored; the version that named them is no longer kept.
	ErrNoShard = errors.New("no such shard")
)

// shardStore keeps runs of bytes under their hash. Its calls may be made again.
type shardStore interface {
	// put stores data unless it is there.
	put(ctx context.Context, hash string, data []byte) error
	// get fails with ErrNoShard. It does not verify.
	get(ctx context.Context, shard schemas.Shard) ([]byte, error)
	list(ctx context.Context) ([]string, error)
	remove(ctx context.Context, hash string) error
	// sweep removes what publishers that died in the middle of a put left behind, once it is older than age.
	sweep(ctx context.Context, age time.Duration) error
}

// hashOf is the hex SHA-256 that names data.
func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// verify checks stored bytes against their name.
func verify(shard schemas.Shard, data []byte) error {
	if int64(len(data)) != shard.Size {
		return fmt.Errorf("%w: %s: %d bytes, the manifest says %d", ErrCorruptShard, shard.Hash, len(data), shard.Size)
	}
	if hash := hashOf(data); hash != shard.Hash {
		return fmt.Errorf("%w: %s: its bytes hash to %s", ErrCorruptShard, shard.Hash, hash)
	}
	return nil
}

// objectChunk is the size of an object's messages, a whole number of pages, where the payload limit leaves
// objectRoom beside it; else they are smaller.
const (
	objectChunk = 1<<20 - 4096
	objectRoom  = 4096
)

// maxShortReads is how often an object may end before its size, as it does when the broker goes away meanwhile,
// before it counts as damaged.
const maxShortReads = 3

// objectShards keeps shards in the broker.
type objectShards struct{ run *Run }

// transfer makes attempts whose time grows with the size: the slowest broker measured moved 77 MB/s to each of
// four readers.
func (o objectShards) transfer(ctx context.Context, what string, size int64, attempt func(context.Context, jetstream.ObjectStore) error) error {
	limit := 30*time.Second + time.Duration(size)*time.Second/(8<<20)
	bucket := o.run.names.shards
	return retryWithin(ctx, o.run.log, what, limit, transient, func(ctx context.Context) error {
		return o.run.conn.guard(ctx, bucket, func(ctx context.Context) error {
			store, err := o.run.js.ObjectStore(ctx, bucket)
			if err != nil {
				return err
			}
			return attempt(ctx, store)
		})
	})
}

func (o objectShards) put(ctx context.Context, hash string, data []byte) error {
	return o.transfer(ctx, "put shard "+hash, int64(len(data)), func(ctx context.Context, store jetstream.ObjectStore) error {
		switch info, err := store.GetInfo(ctx, hash); {
		case err == nil && info.Size == uint64(len(data)):
			return nil
		case err != nil && !errors.Is(err, jetstream.ErrObjectNotFound):
			return err
		}
		chunk := uint32(min(objectChunk, max(o.run.nc.MaxPayload()-objectRoom, 1)))
		meta := jetstream.ObjectMeta{Name: hash, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunk}}
		_, err := store.Put(ctx, meta, bytes.NewReader(data))
		return err
	})
}

func (o objectShards) get(ctx context.Context, shard schemas.Shard) (data []byte, err error) {
	short := 0
	err = o.transfer(ctx, "get shard "+shard.Hash, shard.Size, func(ctx context.Context, store jetstream.ObjectStore) error {
		object, err := store.Get(ctx, shard.Hash)
		if errors.Is(err, jetstream.ErrObjectNotFound) {
			return fmt.Errorf("%w: %s is not in the broker; if the run keeps its weights in a folder, name that with weights.dir", ErrNoShard, shard.Hash)
		}
		if err != nil {
			return err
		}
		defer func() { _ = object.Close() }() // what was read is verified by its hash
		info, err := object.Info()
		if err != nil {
			return err
		}
		if info.Size != uint64(shard.Size) {
			return fmt.Errorf("%w: %s: %d bytes are stored, the manifest says %d", ErrCorruptShard, shard.Hash, info.Size, shard.Size)
		}
		data = make([]byte, shard.Size)
		if _, err := io.ReadFull(object, data); err != nil {
			if short++; short >= maxShortReads {
				// As text: a timeout within would be tried again.
				return fmt.Errorf("%w: %s: its chunks are not all there: %s", ErrCorruptShard, shard.Hash, err.Error())
			}
			return fmt.Errorf("read object: %w: %w", err, context.DeadlineExceeded) // worth another attempt
		}
		return nil
	})
	return data, err
}

func (o objectShards) list(ctx context.Context) (hashes []string, err error) {
	err = o.transfer(ctx, "list shards", 0, func(ctx context.Context, store jetstream.ObjectStore) error {
		hashes = hashes[:0]
		objects, err := store.List(ctx)
		if errors.Is(err, jetstream.ErrNoObjectsFound) {
			return nil
		}
		for _, object := range objects {
			hashes = append(hashes, object.Name)
		}
		return err
	})
	return hashes, err
}

func (o objectShards) remove(ctx context.Context, hash string) error {
	return o.transfer(ctx, "remove shard "+hash, 0, func(ctx context.Context, store jetstream.ObjectStore) error {
		if err := store.Delete(ctx, hash); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
			return err
		}
		// Delete leaves a marker, which would make every later listing longer.
		stream, err := o.run.js.Stream(ctx, o.stream())
		if err != nil {
			return err
		}
		marker := "$O." + o.run.names.shards + ".M." + base64.URLEncoding.EncodeToString([]byte(hash))
		return stream.Purge(ctx, jetstream.WithPurgeSubject(marker))
	})
}

// stream is that which the object store keeps its objects in.
func (o objectShards) stream() string { return "OBJ_" + o.run.names.shards }

func (o objectShards) sweep(ctx context.Context, age time.Duration) error {
	return o.transfer(ctx, "sweep shards", 0, func(ctx context.Context, store jetstream.ObjectStore) error {
		// The chunks first: an object that is finished after that is in the list, and its chunks are no orphans.
		chunks := "$O." + o.run.names.shards + ".C."
		stream, err := o.run.js.Stream(ctx, o.stream())
		if err != nil {
			return err
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunks+">"))
		if err != nil {
			return err
		}
		objects, err := store.List(ctx)
		if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
			return err
		}
		for _, object := range objects {
			delete(info.State.Subjects, chunks+object.NUID)
		}
		for subject := range info.State.Subjects {
			last, err := stream.GetLastMsgForSubject(ctx, subject)
			if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && time.Since(last.Time) < age {
				continue
			}
			if err == nil {
				err = stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
