package weights

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// objectChunk is the size of an object's messages, a whole number of pages, where the payload limit leaves
// objectRoom beside it; else they are smaller.
const (
	objectChunk = 1<<20 - 4096
	objectRoom  = 4096
)

// objectShards keeps shards in the broker.
type objectShards struct {
	run    seam.Run
	bucket string
}

// transferObject makes attempts whose bound on time grows with the size: the slowest broker measured moved 77 MB/s to each of four
// readers.
func (o objectShards) transferObject(
	ctx context.Context, what string, size int64, attempt func(context.Context, jetstream.ObjectStore) error,
) error {
	limit := 30*time.Second + time.Duration(size)*time.Second/(8<<20)
	return o.run.Call(ctx, what, o.bucket, limit, func(ctx context.Context) error {
		store, err := o.run.JetStream().ObjectStore(ctx, o.bucket)
		if err != nil {
			return err
		}
		return attempt(ctx, store)
	})
}

// putShard verifies the bytes as they are sent.
func (o objectShards) putShard(ctx context.Context, hash string, blob Blob) (string, error) {
	if hash == "" {
		var err error
		if hash, err = hashOf(ctx, blob); err != nil {
			return "", err
		}
	}
	up := &upload{store: o, hash: hash, blob: blob}
	err := o.transferObject(ctx, "put shard "+hash, blob.Size(), func(ctx context.Context, store jetstream.ObjectStore) error {
		before, err := store.GetInfo(ctx, hash)
		switch {
		case err == nil && before.Size == uint64(blob.Size()):
			whole, err := o.hasChunks(ctx, before)
			if whole || err != nil {
				up.keepChunks(before.NUID)
				return err
			}
		case err != nil && !errors.Is(err, jetstream.ErrObjectNotFound):
			return err
		}
		if err := up.purgeLeft(ctx); err != nil {
			return err
		}
		err = up.sendObject(ctx)
		if err == nil && before != nil {
			up.left = append(up.left, before.NUID) // an object of another size, or without all of its chunks, which this object replaces
		}
		if seam.HasCode(err, seam.CodeStoreFailed) && strings.Contains(err.Error(), "maximum bytes") {
			// The error as text, since its type would have the call tried again: only a publish that succeeds makes room.
			return fmt.Errorf("%w: %s: raise streams.shards_max_bytes, or lower streams.weights_keep", streams.ErrShardsFull, err.Error())
		}
		return err
	})
	up.cleanUp(ctx)
	return hash, err
}

// hasChunks reports whether the broker has as many chunks of an object as its description says.
func (o objectShards) hasChunks(ctx context.Context, object *jetstream.ObjectInfo) (bool, error) {
	stream, err := o.run.JetStream().Stream(ctx, o.streamName())
	if err != nil {
		return false, err
	}
	subject := o.chunkPrefix() + object.NUID
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return false, err
	}
	return info.State.Subjects[subject] == uint64(object.Chunks), nil
}

// readShard reads on from where it was when the broker goes away meanwhile or is slow: a shard is corrupt only where the broker answers
// that bytes of it are not there.
func (o objectShards) readShard(ctx context.Context, shard schemas.Shard, to sink) error {
	nuid, next, have := "", uint64(1), int64(0)
	for short := 0; ; {
		info, err := o.readInfo(ctx, shard.Hash)
		if err != nil {
			return err
		}
		if info.Size != uint64(shard.Size) {
			return fmt.Errorf("%w: %s: %d bytes are stored, the manifest says %d", streams.ErrCorruptShard, shard.Hash, info.Size, shard.Size)
		}
		if info.NUID != nuid { // the first look, or the object was put again
			nuid, next, have = info.NUID, 1, 0
			if err := to.restartShard(); err != nil {
				return err
			}
		}
		for more := true; more && have < shard.Size; {
			next, more, err = o.run.Read(ctx, o.streamName(), o.chunkPrefix()+nuid, next, readWindow(), func(m seam.Message) error {
				have += int64(len(m.Data))
				if have > shard.Size {
					return fmt.Errorf("%w: %s: its chunks hold more than the %d bytes of the manifest", streams.ErrCorruptShard, shard.Hash, shard.Size)
				}
				_, err := to.Write(m.Data)
				return err
			})
			if err != nil {
				return err
			}
		}
		if have == shard.Size {
			return nil
		}
		if short++; short >= seam.ShortReads {
			return fmt.Errorf("%w: %s: its chunks are not all there: %d bytes of %d", streams.ErrCorruptShard, shard.Hash, have, shard.Size)
		}
		nuid = ""
		if err := seam.Wait(ctx, seam.LongestPause); err != nil {
			return err
		}
	}
}

// shardsInFlight bounds, in bytes, the data that all readers of a process have asked for and not received.
const shardsInFlight = 64 << 20

// readWindow is a reader's part of shardsInFlight.
func readWindow() seam.Window {
	return seam.Window{Messages: 1 << 10, Bytes: max(shardsInFlight/runtime.GOMAXPROCS(0), objectChunk)}
}

// chunkPrefix begins the subjects of the chunks of an object; its NUID follows.
func (o objectShards) chunkPrefix() string { return "$O." + o.bucket + ".C." }

// metaPrefix begins the subjects of the descriptions of objects; the encoded name follows.
func (o objectShards) metaPrefix() string { return "$O." + o.bucket + ".M." }

func (o objectShards) metaSubject(hash string) string {
	return o.metaPrefix() + base64.URLEncoding.EncodeToString([]byte(hash))
}

// readInfo is the description of an object; streams.ErrNoShard if the object is not there.
func (o objectShards) readInfo(ctx context.Context, hash string) (info jetstream.ObjectInfo, err error) {
	found := false
	_, _, err = o.run.Read(ctx, o.streamName(), o.metaSubject(hash), 1, seam.Window{Messages: 1, Bytes: objectChunk}, func(m seam.Message) error {
		found = true
		return json.Unmarshal(m.Data, &info)
	})
	if err != nil {
		return info, fmt.Errorf("read shard %s: %w", hash, err)
	}
	if !found || info.Deleted {
		return info, fmt.Errorf("%w: %s is not in the broker; if the run keeps its weights in a folder, name that with weights.dir",
			streams.ErrNoShard, hash)
	}
	return info, nil
}

// listObjects are the whole objects of the store.
func (o objectShards) listObjects(ctx context.Context) (objects []jetstream.ObjectInfo, err error) {
	for next, more := uint64(1), true; more; {
		next, more, err = o.run.Read(ctx, o.streamName(), o.metaPrefix()+">", next, seam.Window{Messages: 1 << 10, Bytes: 4 << 20}, func(m seam.Message) error {
			var info jetstream.ObjectInfo
			if err := json.Unmarshal(m.Data, &info); err != nil {
				return fmt.Errorf("list shards: message %d: %w", m.Sequence, err)
			}
			info.ModTime = m.At
			if !info.Deleted {
				objects = append(objects, info)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return objects, nil
}

func (o objectShards) listShards(ctx context.Context) (map[string]time.Duration, error) {
	objects, err := o.listObjects(ctx)
	if err != nil {
		return nil, err
	}
	var now time.Time // by the broker's clock, as the objects' own times are
	err = o.run.Call(ctx, "read the broker's clock", o.bucket, seam.CallTimeout, func(ctx context.Context) error {
		stream, err := o.run.JetStream().Stream(ctx, o.streamName())
		if err == nil {
			now = stream.CachedInfo().TimeStamp
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	hashes := make(map[string]time.Duration, len(objects))
	for _, object := range objects {
		hashes[object.Name] = now.Sub(object.ModTime)
	}
	return hashes, nil
}

func (o objectShards) removeShard(ctx context.Context, hash string) error {
	return o.transferObject(ctx, "remove shard "+hash, 0, func(ctx context.Context, store jetstream.ObjectStore) error {
		return o.dropObject(ctx, store, hash)
	})
}

func (o objectShards) dropObject(ctx context.Context, store jetstream.ObjectStore, hash string) error {
	if err := store.Delete(ctx, hash); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return err
	}
	// Delete leaves a marker, which would make every later listing longer.
	stream, err := o.run.JetStream().Stream(ctx, o.streamName())
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(o.metaSubject(hash)))
}

// streamName is the stream in which the object store keeps its objects.
func (o objectShards) streamName() string { return "OBJ_" + o.bucket }

func (o objectShards) sweepUnfinished(ctx context.Context, age time.Duration) error {
	return o.transferObject(ctx, "sweep shards", 0, func(ctx context.Context, _ jetstream.ObjectStore) error {
		// The chunks are read first: an object that is finished after that is in the list of objects, so its chunks are no orphans.
		chunks := o.chunkPrefix()
		stream, err := o.run.JetStream().Stream(ctx, o.streamName())
		if err != nil {
			return err
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunks+">"))
		if err != nil {
			return err
		}
		objects, err := o.listObjects(ctx)
		if err != nil {
			return err
		}
		for _, object := range objects {
			delete(info.State.Subjects, chunks+object.NUID)
		}
		for subject := range info.State.Subjects {
			last, err := stream.GetLastMsgForSubject(ctx, subject)
			if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && info.TimeStamp.Sub(last.Time) < age { // both by the broker's clock
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
