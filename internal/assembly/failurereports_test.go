package assembly

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// The end of a spell of failures is reported also where the broker is away when it comes: else the spell would stand for as long as the
// producer lives.
func TestTheEndOfFailuresIsReportedWhenTheBrokerIsBack(t *testing.T) {
	t.Parallel()
	stored, refused := make(chan schemas.Failing, 8), 3
	reports := newFailureReports(func(f schemas.Failing) error {
		if refused > 0 {
			refused--
			return errors.New("the broker is away")
		}
		stored <- f
		return nil
	}, time.Millisecond)
	stop := make(chan struct{})
	var running sync.WaitGroup
	for i := range 1000 { // all but the newest are left out while the broker is away
		reports.addReport(schemas.Failing{Task: "a", Failed: i + 1})
	}
	reports.addReport(schemas.Failing{Task: "a", Failed: 1000, Over: true})
	running.Go(func() { reports.runReports(stop) })
	require.Equal(t, schemas.Failing{Task: "a", Failed: 1000, Over: true}, <-stored)
	reports.addReport(schemas.Failing{Task: "b", Failed: 5})
	require.Equal(t, "b", (<-stored).Task)
	close(stop)
	running.Wait()
	require.Empty(t, stored, "each is stored once")
}

// Row 1: a report of requests after the end of episodes does not take the place of a report of failures of the same task.
func TestReportsOfTwoKindsDoNotReplaceEachOther(t *testing.T) {
	var sent []schemas.Failing
	r := newFailureReports(func(f schemas.Failing) error { sent = append(sent, f); return nil }, time.Hour)
	r.addReport(schemas.Failing{Task: "t", Failed: 5})
	r.addReport(schemas.Failing{Task: "t", Late: 3})
	r.addReport(schemas.Failing{Task: "t", Late: 6})
	require.True(t, r.sendReports())
	require.ElementsMatch(t, []schemas.Failing{{Task: "t", Failed: 5}, {Task: "t", Late: 6}}, sent)
}
