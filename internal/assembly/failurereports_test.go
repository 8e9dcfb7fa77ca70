package assembly

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// The end of a spell of failures is reported also where the broker is away when it comes: else the spell would stand for as long as the
// producer lives.
func TestTheEndOfFailuresIsReportedWhenTheBrokerIsBack(t *testing.T) {
	t.Parallel()
	stored, refused := make(chan schemas.Failing, 8), 3
	reports := newFailureReports(func(_ context.Context, f schemas.Failing) error {
		if refused > 0 {
			refused--
			return errors.New("the broker is away")
		}
		stored <- f
		return nil
	}, time.Millisecond)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for i := range 1000 { // all but the newest are left out while the broker is away
		reports.addReport(schemas.Failing{Task: "a", Failed: i + 1})
	}
	reports.addReport(schemas.Failing{Task: "a", Failed: 1000, Over: true})
	running.Go(func() { reports.runReports(ctx) })
	require.Equal(t, schemas.Failing{Task: "a", Failed: 1000, Over: true}, <-stored)
	reports.addReport(schemas.Failing{Task: "b", Failed: 5})
	require.Equal(t, "b", (<-stored).Task)
	stop()
	running.Wait()
	require.Empty(t, stored, "each is stored once")
}

// Row 1: a report of requests after the end of episodes does not take the place of a report of failures of the same task.
func TestReportsOfTwoKindsDoNotReplaceEachOther(t *testing.T) {
	var sent []schemas.Failing
	r := newFailureReports(func(_ context.Context, f schemas.Failing) error { sent = append(sent, f); return nil }, time.Hour)
	r.addReport(schemas.Failing{Task: "t", Failed: 5})
	r.addReport(schemas.Failing{Task: "t", Late: 3})
	r.addReport(schemas.Failing{Task: "t", Late: 6})
	require.True(t, r.sendReports(t.Context()))
	require.ElementsMatch(t, []schemas.Failing{{Task: "t", Failed: 5}, {Task: "t", Late: 6}}, sent)
}

// A producer that is stopped while the broker is away does not wait for each report in turn.
func TestTheEndOfAProducerDoesNotWaitForEachReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := newFailureReports(func(ctx context.Context, _ schemas.Failing) error {
			tries++
			select {
			case <-ctx.Done():
			case <-time.After(time.Second): // as long as an event is tried
			}
			return errors.New("the broker is away")
		}, time.Hour)
		for i := range 50 {
			r.addReport(schemas.Failing{Task: fmt.Sprint(i), Failed: 5})
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.runReports(ctx)
		}()
		synctest.Wait()
		began := time.Now()
		stop()
		<-ended
		require.LessOrEqual(t, time.Since(began), lastWithin)
		require.Positive(t, tries)
	})
}
