package assembly

import (
	"fmt"
	"sync"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// learntByHeart says, where far fewer held-out answers are right than in training, why that may be.
func learntByHeart(tested float64, records []report.Record) string {
	trained := report.Collect(records, string(schemas.EventStepDone), metrics.RewardComponent.Of(producers.ComponentExactMatch), "")
	if len(trained.Y) == 0 {
		return ""
	}
	last := trained.Y[len(trained.Y)-1]
	if last < 0.5 || tested > last/2 {
		return ""
	}
	return byHeart(last, tested)
}

func byHeart(trained, tested float64) string {
	return fmt.Sprintf(`
In training %.0f %% of the answers are right, and %.0f %% of the held-out ones:
the policy has learnt its questions by heart. A policy that starts from nothing
knows only the words it was trained on. Give it more training questions and
demonstrations that use the words of the others, or start from a model that
knows them (--model.folder).
`, 100*trained, 100*tested)
}

// The first versions of a run tell little. From soonTold on a run is told while it goes on that it learns by heart, where in
// training at least soonTrained of the answers are right and fewer than a quarter as many of the held-out ones.
const (
	soonTold    = 3
	soonTrained = 0.8
)

// watch compares the held-out scores of a run that goes on with its training. It may be used from several goroutines.
type watch struct {
	mu      sync.Mutex
	trained float64
	told    bool
}

// addEvent takes an event of the run. It returns a note for people, once; "" is nothing.
func (w *watch) addEvent(e schemas.Event) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Type {
	case schemas.EventStepDone:
		w.trained = e.Metrics[metrics.RewardComponent.Of(producers.ComponentExactMatch)]
	case schemas.EventEvaluated:
		tested := e.Metrics[metrics.EvalExactMatch.Name]
		if w.told || e.PolicyVersion < soonTold || w.trained < soonTrained || tested > w.trained/4 {
			return ""
		}
		w.told = true
		return byHeart(w.trained, tested)
	}
	return ""
}
