package schemas

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
)

// Manifest describes an immutable policy version. It becomes visible only when all its shards are.
type Manifest struct {
	Run string `msgpack:"run"`
	// Version is the policy version, 0 = the starting weights.
	Version int64 `msgpack:"version"`
	// Base is the version that the shards are deltas against; -1 when they are whole.
	Base int64 `msgpack:"base"`
	// Shards together hold every tensor, or every adapter.
	Shards []Shard `msgpack:"shards"`
	// Config is the model's config.json; ConfigHash and TokenizerHash are hex SHA-256.
	Config        []byte `msgpack:"config"`
	ConfigHash    string `msgpack:"config_hash"`
	TokenizerHash string `msgpack:"tokenizer_hash"`
	// DType of the tensors: "float32" or "bfloat16".
	DType       string    `msgpack:"dtype"`
	PublishedAt time.Time `msgpack:"published_at"`
	// Adapter says that Shards are a low-rank adapter, and which weights it is added to; nil where they are the weights themselves.
	Adapter *Adapter `msgpack:"adapter,omitempty"`
}

// Adapter describes a version whose shards are low-rank adapters in PEFT's names: a matrix W that has an adapter stands for W + Alpha/Rank
// B A, computed in float32 and then rounded to the manifest's DType.
type Adapter struct {
	// Rank is that of A, [rank, in], and B, [out, rank].
	Rank int `msgpack:"rank"`
	// Alpha scales the adapter, by Alpha/Rank; it is positive.
	Alpha float64 `msgpack:"alpha"`
	// Frozen are the weights that the adapter is added to, whole, by their hashes: together they hold every tensor. They are the same in
	// every version of a run, so that a reader fetches them once.
	Frozen []Shard `msgpack:"frozen"`
}

// AllShards are the shards of a version, and after them the shards of the weights that an adapter is added to.
func (m *Manifest) AllShards() []Shard {
	if m.Adapter == nil {
		return m.Shards
	}
	return append(slices.Clip(m.Shards), m.Adapter.Frozen...)
}

// Shard is a sequence of bytes named by its content.
type Shard struct {
	// Hash is the hex SHA-256 of the bytes as stored, and their name.
	Hash string `msgpack:"hash"`
	// Size in bytes as stored.
	Size int64 `msgpack:"size"`
	// Encoding of the stored bytes: "safetensors" whole, or "delta+zstd" against Manifest.Base.
	Encoding string `msgpack:"encoding"`
	// FullHash is the hex SHA-256 of the safetensors bytes after decoding; equal to Hash when whole.
	FullHash string `msgpack:"full_hash"`
}

// ContentHash is the hex SHA-256 by which a manifest names shards, a model's config.json and its tokenizer.json.
func ContentHash(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// The encodings of a shard.
const (
	EncodingSafetensors = "safetensors"
	EncodingDelta       = "delta+zstd"
)

// NoBase is a manifest's Base when its shards are whole.
const NoBase int64 = -1
