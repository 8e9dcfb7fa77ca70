package streams

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/schemas"
)

// Publish stores the trajectory in TRAJECTORIES and returns when the broker has acknowledged it. Within the dedupe window the same
// trajectory is stored once, however often it is published. Another trajectory of the same ticket is stored beside it, and the
// trainer takes the first. While the stream is full Publish waits: so a trainer that falls behind slows its producers. Publish
// refuses a trajectory that is not valid or is of another run, and fails with [ErrTooLarge] where the trajectory is too large.
func (r *Run) Publish(ctx context.Context, t *schemas.Trajectory) error {
	if err := t.Validate(); err != nil {
		return fmt.Errorf("publish trajectory %s: %w", t.ID, err)
	}
	if t.Run != r.run {
		return fmt.Errorf("publish trajectory %s: it is of run %q, this is %q", t.ID, t.Run, r.run)
	}
	if err := CheckName("producer", t.Producer); err != nil {
		return fmt.Errorf("publish trajectory %s: %w", t.ID, err)
	}
	// The buffers are large and short-lived: making a new buffer costs as much as filling it. The connection copies the bytes that it
	// sends.
	e := r.conn.encoders.Get().(*schemas.Encoder)
	defer r.conn.encoders.Put(e)
	data, err := e.Encode(t)
	if err != nil {
		return fmt.Errorf("encode trajectory %s: %w", t.ID, err)
	}
	return r.publishOnce(ctx, r.names.trajectories, r.names.trajectorySubject(t.OldestVersion(), t.Producer), t.ID+"/"+t.Producer, nil, data)
}

// CloseGroup publishes a marker that samples of a group will not come. Within the dedupe window the same marker is stored once.
func (r *Run) CloseGroup(ctx context.Context, g *schemas.GroupClosed) error {
	if err := g.Validate(); err != nil {
		return fmt.Errorf("close group %s: %w", g.Group, err)
	}
	if g.Run != r.run {
		return fmt.Errorf("close group %s: it is of run %q, this is %q", g.Group, g.Run, r.run)
	}
	if err := CheckName("producer", g.Producer); err != nil {
		return fmt.Errorf("close group %s: %w", g.Group, err)
	}
	data, err := schemas.Marshal(g)
	if err != nil {
		return fmt.Errorf("encode group-closed marker of %s: %w", g.Group, err)
	}
	return r.publishOnce(ctx, r.names.trajectories, r.names.trajectorySubject(int64(schemas.NoVersion), g.Producer), closedID(g), nil, data)
}

// closedID begins the message id of a marker.
func closedID(g *schemas.GroupClosed) string {
	samples := slices.Clone(g.Cancelled)
	slices.Sort(samples)
	return "closed/" + g.Group + "/" + strings.Trim(fmt.Sprint(samples), "[]") + "/" + g.Producer
}
