package schemas

import (
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// Manifest describes one immutable policy version. It becomes visible only when all its shards are.
type Manifest struct {
	Run string `msgpack:"run"`
	// Version is the policy version, 0 = the starting weights.
	Version int64 `msgpack:"version"`
	// Base is the version that the shards are deltas against; -1 when they are whole.
	Base int64 `msgpack:"base"`
	// Shards together hold every tensor.
	Shards []Shard `msgpack:"shards"`
	// Config is the model's config.json; ConfigHash and TokenizerHash are hex SHA-256.
	Config        []byte `msgpack:"config"`
	ConfigHash    string `msgpack:"config_hash"`
	TokenizerHash string `msgpack:"tokenizer_hash"`
	// DType of the tensors: "float32" or "bfloat16".
	DType       string    `msgpack:"dtype"`
	PublishedAt time.Time `msgpack:"published_at"`
}

// Shard is one run of bytes named by its content.
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
