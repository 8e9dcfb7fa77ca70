package streambench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// Config says how much is moved.
type Config struct {
	// Size of a trajectory on the wire, in bytes. Defaults to 128,000.
	Size int `json:"size"`
	// Batch is how many trajectories are acked and purged together. Defaults to 64.
	Batch int `json:"batch"`
	// Producers publish at once, each over its own connection and awaiting each publish. Defaults to 4.
	Producers int `json:"producers"`
	// Rounds is how often each way takes its turn, Batches how much it moves in a turn. Default to 9 and 8.
	Rounds  int `json:"rounds"`
	Batches int `json:"batches"`
	// Calls is how many tickets, and how many generate calls, go through in a round. Defaults to 512.
	Calls int `json:"calls"`
}

// Default takes about half a minute on two cores.
func Default() Config {
	return Config{Size: 128_000, Batch: 64, Producers: 4, Rounds: 9, Batches: 8, Calls: 512}
}

// The least and the most bytes of a trajectory: below, nothing but headers is measured; above, it goes in parts.
const (
	minSize = 4 << 10
	maxSize = 1 << 20
)

// Validate reports every fault of the configuration.
func (c Config) Validate() error {
	held := int64(c.Batches) * int64(c.Batch) * int64(c.Size)
	return check.All(
		check.Between("size", c.Size, minSize, maxSize),
		check.Between("batch", c.Batch, 1, 512),
		check.Between("producers", c.Producers, 1, 256),
		check.Between("rounds", c.Rounds, 1, 1000),
		check.Between("batches", c.Batches, 1, 1000),
		check.Between("calls", c.Calls, 1, 1<<14),
		check.That(c.Batch >= c.Producers, "producers", "%d: must be at most batch, which is %d", c.Producers, c.Batch),
		check.That(held <= maxHeld, "batches", "%d: a round of %d bytes; must be at most %d", c.Batches, held, int64(maxHeld)),
	)
}

// maxHeld bounds the bytes of a round, all of which the broker may hold at once.
const maxHeld = 4 << 30

// Dial makes a connection of its own to the broker that is measured, with the right to make streams.
type Dial func(ctx context.Context) (*streams.Conn, error)

// Run measures the way of a trajectory from producers into a batch, beside bare JetStream with the same
// settings, and the rest of the broker's traffic. It works in a run of its own, named after chance, and removes
// it in the end.
func Run(ctx context.Context, config Config, dial Dial) (report *Report, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	name := "bench-" + hex.EncodeToString(randomBytes(6))
	if _, err := conn.Attach(ctx, name); !errors.Is(err, streams.ErrNoRun) {
		return nil, errors.Join(fmt.Errorf("run %s is there already", name), err)
	}
	defer func() { err = errors.Join(err, removeRun(context.WithoutCancel(ctx), conn, name)) }()
	run, err := conn.Open(ctx, name, benchTopology(config))
	if err != nil {
		return nil, err
	}
	report = &Report{Config: config}
	template := harness.Trajectory(name, config.Size)
	if report.Bytes, report.Codec, err = measureCodec(template, config.Rounds); err != nil {
		return nil, err
	}
	if err := measureMoves(ctx, config, dial, run, template, report); err != nil {
		return nil, err
	}
	if report.Tickets, err = measureTickets(ctx, config, run); err != nil {
		return nil, err
	}
	report.Generate, err = measureGenerate(ctx, config, run)
	return report, err
}

// benchTopology holds a whole round, so that no publish ever waits for room: how a full stream slows its source is
// another matter.
func benchTopology(config Config) streams.Topology {
	t := streams.DefaultTopology()
	round := config.Batch * config.Batches
	t.MaxTrajectories = 2 * round
	t.MaxTrajectoryBytes = int64(round) * int64(config.Size+4096) * 5 / 4
	t.RejectedMaxBytes = 1 << 20
	return t
}

// measureMoves lets the three ways take turns, in another order each round.
func measureMoves(ctx context.Context, config Config, dial Dial, run *streams.Run, template *schemas.Trajectory, report *Report) error {
	ways, closeAll, err := openWays(ctx, config, dial, run, template)
	if err != nil {
		return err
	}
	defer closeAll()
	report.Ways = make([]WayReport, len(ways))
	for i, w := range ways {
		report.Ways[i].Name = w.name
	}
	// The first round is not counted: connections, buffers and the store's first block are made in it.
	for round := range config.Rounds + 1 {
		for turn := range ways {
			i := (turn + round) % len(ways)
			runtime.GC() // no way pays for the garbage of another
			begin, used := time.Now(), harness.CPUTime()
			if err := moveRound(ctx, config, ways[i].way, fmt.Sprintf("r%d", round)); err != nil {
				return fmt.Errorf("%s: %w", ways[i].name, err)
			}
			wall, cpu := time.Since(begin).Seconds(), (harness.CPUTime() - used).Seconds()
			if round > 0 {
				report.Ways[i].addRound(config.Batch*config.Batches, wall, cpu)
			}
		}
	}
	report.compareWays()
	return nil
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}
