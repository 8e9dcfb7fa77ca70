package streams

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/schemas"
)

// Publish stores the trajectory in TRAJECTORIES and returns when the broker has acknowledged it. Within the dedupe window
// the same trajectory is stored once, however often it is published. Another one of the same ticket is stored beside it, and
// its reader takes the first. While the stream is full it waits: that is how a
// trainer that falls behind slows its producers. A trajectory that is not valid, is of another run or is larger
// than [ErrTooLarge] allows is refused here.
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
	// The buffers are large and short-lived: making each anew costs as much as filling it. The connection copies
	// what it sends.
	e := r.conn.encoders.Get().(*schemas.Encoder)
	defer r.conn.encoders.Put(e)
	data, err := e.Encode(t)
	if err != nil {
		return fmt.Errorf("encode trajectory %s: %w", t.ID, err)
	}
	return r.publish(ctx, r.names.trajectories, r.names.trajectorySubject(t.OldestVersion(), t.Producer), t.ID+"/"+t.Producer, nil, data)
}

// CloseGroup says that samples of a group will not come. Within the dedupe window the same marker is stored once.
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
	return r.publish(ctx, r.names.trajectories, r.names.trajectorySubject(int64(schemas.NoVersion), g.Producer), closedID(g), nil, data)
}

// closedID begins the message id of a marker.
func closedID(g *schemas.GroupClosed) string {
	samples := slices.Clone(g.Cancelled)
	slices.Sort(samples)
	return "closed/" + g.Group + "/" + strings.Trim(fmt.Sprint(samples), "[]") + "/" + g.Producer
}
