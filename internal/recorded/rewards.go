package recorded

import (
	"encoding/json"
	"fmt"

	"github.com/weir-rl/weir/internal/rescore"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// rewards are the rewards of a file of weir rescore.
type rewards struct {
	of map[messages.Name]*rescore.Row
}

// readRewards reads the rows that have a reward.
func readRewards(path, run string) (*rewards, error) {
	of, err := rescore.RunOf(path)
	if err != nil {
		return nil, fmt.Errorf("rewards: %w", err)
	}
	if of != run {
		return nil, fmt.Errorf("rewards: %s has the rows of run %s, and the archive is that of run %s", path, of, run)
	}
	r := &rewards{of: map[messages.Name]*rescore.Row{}}
	for row, err := range rescore.Read(path) {
		if err != nil {
			return nil, fmt.Errorf("rewards: %w", err)
		}
		if row.Reward != nil {
			r.of[messages.Name{ID: row.ID, Sequence: row.Sequence}] = row
		}
	}
	return r, nil
}

// has reports whether a trajectory of so many turns has a reward.
func (r *rewards) has(n messages.Name, turns int) bool {
	row := r.of[n]
	return row != nil && (row.Turns == nil || len(row.Turns) == turns)
}

// replace puts a trajectory's reward in the place of the recorded reward. The rewards of its tools stay.
func (r *rewards) replace(n messages.Name, t *schemas.Trajectory) bool {
	if !r.has(n, len(t.Turns)) {
		return false
	}
	row := r.of[n]
	t.Reward, t.Rewards, t.AgentRewards = *row.Reward, row.Rewards, row.Agents
	for i := range t.Turns {
		t.Turns[i].Reward = 0
		if row.Turns != nil {
			t.Turns[i].Reward = row.Turns[i]
		}
	}
	return true
}

// describe is a trajectory's reward as text; "" where it keeps the recorded reward.
func (r *rewards) describe(n messages.Name) string {
	if r == nil || r.of[n] == nil {
		return ""
	}
	row := r.of[n]
	text, err := json.Marshal([]any{row.Reward, row.Rewards, row.Turns, row.Agents})
	if err != nil {
		return err.Error() // a number that JSON cannot have was not read from JSON
	}
	return string(text)
}
