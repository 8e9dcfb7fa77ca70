package streamtest

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/weights"
)

// Ticket is a valid ticket of run "test".
func Ticket(group, sample int) *schemas.Ticket {
	g := fmt.Sprintf("g%d-0", group)
	return &schemas.Ticket{
		Run: "test", ID: fmt.Sprintf("%s-%d", g, sample), Group: g, Cursor: uint64(group), Sample: sample, GroupSize: 8,
		Task:     "echo",
		Prompt:   schemas.Prompt{ID: fmt.Sprint("p", group), Text: "say it", Answers: []string{"it"}, Source: "test"},
		Seed:     uint64(group),
		Sampling: schemas.Sampling{Temperature: 1},
		Limits:   schemas.Limits{MaxTurns: 1, MaxTokens: 64},
		IssuedAt: time.Unix(1, 0).UTC(),
	}
}

// Trajectory is a valid trajectory for the ticket with so many tokens, all but the first sampled by version.
func Trajectory(group, sample, tokens int, version int32) *schemas.Trajectory {
	t := Ticket(group, sample)
	s := schemas.Segment{
		Tokens: make(schemas.Int32s, tokens), ActionMask: make(schemas.Bytes, tokens),
		Logprobs: make(schemas.Float32s, tokens), Versions: make(schemas.Runs, tokens), Temperature: 1,
	}
	s.Versions[0] = schemas.NoVersion
	for i := 1; i < tokens; i++ {
		s.Tokens[i] = int32(i*7919+group) % 32000
		s.ActionMask[i], s.Logprobs[i], s.Versions[i] = 1, -float32(i%17)/8, version
	}
	return &schemas.Trajectory{
		Run: t.Run, ID: t.ID, Group: t.Group, Cursor: t.Cursor, Sample: sample, GroupSize: t.GroupSize, Task: t.Task,
		PromptID: t.Prompt.ID, Source: "test", Producer: "p1", Segments: []schemas.Segment{s},
		Reward: 1, Rewards: map[string]float64{"match": 1}, Answer: "it", Stop: schemas.StopAnswer,
		StartedAt: time.Unix(2, 0).UTC(), FinishedAt: time.Unix(3, 0).UTC(),
	}
}

// Closed is a valid group-closed marker.
func Closed(group int, samples ...int) *schemas.GroupClosed {
	return &schemas.GroupClosed{
		Run: "test", Group: fmt.Sprintf("g%d-0", group), Cancelled: samples, Why: "test", Producer: "p1", ClosedAt: time.Unix(4, 0).UTC(),
	}
}

// Weights is a valid manifest of a run's version with a whole shard of these bytes, and the shard by its hash.
func Weights(run string, version int64, data []byte) (*schemas.Manifest, map[string][]byte) {
	hash := schemas.ContentHash(data)
	return &schemas.Manifest{
		Run: run, Version: version, Base: schemas.NoBase, Config: []byte("{}"), ConfigHash: schemas.ContentHash([]byte("{}")),
		TokenizerHash: schemas.ContentHash(nil), DType: "float32", PublishedAt: time.Unix(version, 0).UTC(),
		Shards: []schemas.Shard{{Hash: hash, FullHash: hash, Size: int64(len(data)), Encoding: schemas.EncodingSafetensors}},
	}, map[string][]byte{hash: data}
}

// PublishWeights publishes whole shards, by hash, through the broker.
func PublishWeights(ctx context.Context, r *streams.Run, m *schemas.Manifest, shards map[string][]byte) error {
	w, err := weights.NewPublisher(r, weights.DefaultConfig())
	if err != nil {
		return err
	}
	return w.Publish(ctx, m, shards)
}

// Shard reads the stored bytes of a shard from the broker and verifies them.
func Shard(ctx context.Context, r *streams.Run, shard schemas.Shard) ([]byte, error) {
	w, err := weights.NewLoader(r, weights.DefaultConfig())
	if err != nil {
		return nil, err
	}
	return w.Shard(ctx, shard)
}
