package weights

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/internal/seam"
)

// shardStore keeps shards under their hashes. Each call is idempotent.
type shardStore interface {
	// put stores a blob unless it is there, and fails with streams.ErrCorruptShard where its bytes do not have the hash. Where the
	// hash is "", it is found and returned.
	putShard(ctx context.Context, hash string, blob Blob) (string, error)
	// get reads a shard into a sink, and fails with streams.ErrNoShard. It does not verify.
	readShard(ctx context.Context, shard schemas.Shard, to sink) error
	// list is the stored shards by hash, with the age of each by the store's clock.
	listShards(ctx context.Context) (map[string]time.Duration, error)
	removeShard(ctx context.Context, hash string) error
	// sweep removes the bytes of publishers that died in the middle of a put, once it is older than age.
	sweepUnfinished(ctx context.Context, age time.Duration) error
}

// newShardStore keeps shards where the configuration says.
func newShardStore(run seam.Run, config Config) shardStore {
	if config.Dir != "" {
		return folderShards{dir: config.Dir}
	}
	return objectShards{run: run, bucket: run.ShardsBucket()}
}

// verifyShard checks stored bytes against their name.
func verifyShard(shard schemas.Shard, size int64, hash string) error {
	if size != shard.Size {
		return fmt.Errorf("%w: %s: %d bytes, the manifest says %d", streams.ErrCorruptShard, shard.Hash, size, shard.Size)
	}
	return verifyHash(shard.Hash, hash)
}

// verifyHash checks a hash that was found against the hash in a name.
func verifyHash(want, found string) error {
	if found != want {
		return fmt.Errorf("%w: %s: its bytes hash to %s", streams.ErrCorruptShard, want, found)
	}
	return nil
}
