package assembly

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-rl/weir/streams"
)

const (
	// listPatience is how long the broker has to say which runs it holds.
	listPatience = 2 * time.Second
	// mostListed bounds the runs that an error names.
	mostListed = 20
)

// ExplainAbsent adds to the error of a run that the broker at url does not hold which runs it does hold, where this role may know. Other
// errors are as they were.
func ExplainAbsent(ctx context.Context, conn *streams.Conn, url string, err error) error {
	if !errors.Is(err, streams.ErrNoRun) {
		return err
	}
	err = fmt.Errorf("%w: is --run.name right, and the broker (%s)?", err, url)
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	runs, listErr := conn.Runs(ctx)
	switch {
	case listErr != nil: // the first error has the remedy
		return err
	case len(runs) == 0:
		return fmt.Errorf("%w The broker has no run", err)
	case len(runs) > mostListed:
		return fmt.Errorf("%w The broker has: %s and %d more", err, strings.Join(runs[:mostListed], ", "), len(runs)-mostListed)
	}
	return fmt.Errorf("%w The broker has: %s", err, strings.Join(runs, ", "))
}
