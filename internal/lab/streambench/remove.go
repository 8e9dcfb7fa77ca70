package streambench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/streams"
)

// streamPrefix begins the names of a run's streams.
func streamPrefix(run string) string { return "WEIR_" + run + "_" }

// removeRun takes a run that this package made off the broker: its streams, buckets and object store, and the bare
// streams beside them.
func removeRun(ctx context.Context, conn *streams.Conn, run string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	js, err := jetstream.New(conn.NATS())
	if err != nil {
		return fmt.Errorf("remove run %s: %w", run, err)
	}
	names := js.StreamNames(ctx)
	var mine []string
	for name := range names.Name() {
		bare := strings.TrimPrefix(strings.TrimPrefix(name, "KV_"), "OBJ_")
		if strings.HasPrefix(bare, streamPrefix(run)) {
			mine = append(mine, name)
		}
	}
	faults := []error{names.Err()}
	for _, name := range mine {
		faults = append(faults, js.DeleteStream(ctx, name))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("remove run %s: %w", run, err)
	}
	return nil
}
