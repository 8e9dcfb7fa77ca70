package assembly

import (
	"errors"
	"fmt"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
)

// maxRows bounds the rows that are named at once.
const maxRows = 10

// checkWorlds refuses questions that give a tool nothing to work on, such as a database that there is not: each of their episodes would come to
// nothing.
func (t *Task) checkWorlds() error {
	if t.limits.MaxTurns == 0 {
		return nil // no session is opened
	}
	var faults []error
	for _, tool := range t.plain {
		checks, ok := tools.Bare(tool).(producers.WorldChecker)
		if !ok {
			continue
		}
		for _, split := range tasks.Splits() {
			for _, q := range t.Data.Questions[split] {
				err := checks.CheckWorld(q.World)
				if err == nil {
					continue
				}
				if !errors.Is(err, producers.ErrPrompt) {
					return fmt.Errorf("tool %s: %w", tool.Spec().Name, err)
				}
				if len(faults) == maxRows {
					return errors.Join(append(faults, errors.New("and more questions"))...)
				}
				faults = append(faults, fmt.Errorf("%s: tool %s: %w", t.questionPlace(split, q.ID), tool.Spec().Name, err))
			}
		}
	}
	return errors.Join(faults...)
}

// questionPlace is where a question stands, for whoever has to mend it.
func (t *Task) questionPlace(split tasks.Split, id string) string {
	if t.Where != nil {
		if at := t.Where(id); at != "" {
			return at
		}
	}
	return fmt.Sprintf("%s question %q", split, id)
}
