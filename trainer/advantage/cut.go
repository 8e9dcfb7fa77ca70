package advantage

import (
	"errors"
	"fmt"

	"github.com/weir-rl/weir/trainer/stats"
)

// cutter lays a batch out with a row for each turn: a run of action tokens with the other tokens before it. Tokens after a row's last turn
// belong to that turn, and a row without an action token stays unchanged. Tokens keep their places, so that arrays with an entry for each
// token are the same for both layouts.
type cutter struct {
	batch Batch
	// rows are the rows of the batch that was cut, turns counts within each.
	rows, turns []int
}

// cutByTurns returns the batch by turns, in memory that the next call reuses.
func (c *cutter) cutByTurns(b *Batch) (*Batch, error) {
	if err := c.checkRows(b); err != nil {
		return nil, err
	}
	c.findTurnEnds(b)
	o := c.batch
	c.batch = *b
	c.batch.Offsets = o.Offsets
	c.batch.Trajectory = pickEntries(c.rows, b.Trajectory, o.Trajectory)
	if b.Trajectory == nil { // each row is a trajectory
		c.batch.Trajectory = append(o.Trajectory[:0], c.rows...)
	}
	c.batch.Group, c.batch.Step = pickEntries(c.rows, b.Group, o.Group), pickEntries(c.rows, b.Step, o.Step)
	c.batch.Agent, c.batch.Episode = pickEntries(c.rows, b.Agent, o.Agent), pickEntries(c.rows, b.Episode, o.Episode)
	c.batch.Role = pickEntries(c.rows, b.Role, o.Role)
	c.batch.Bootstrap, c.batch.Baselines = pickEntries(c.rows, b.Bootstrap, o.Bootstrap), pickEntries(c.rows, b.Baselines, o.Baselines)
	return &c.batch, nil
}

// checkRows checks the arrays with an entry for each row.
func (c *cutter) checkRows(b *Batch) error {
	rows := b.Rows()
	for _, err := range []error{
		refusePerRow("StepRewards", b.StepRewards), refusePerRow("StepValues", b.StepValues),
		checkOptional("Group", b.Group, rows), checkOptional("Trajectory", b.Trajectory, rows), checkOptional("Step", b.Step, rows),
		checkOptional("Bootstrap", b.Bootstrap, rows), checkOptional("Baselines", b.Baselines, rows),
		checkOptional("Agent", b.Agent, rows), checkOptional("Role", b.Role, rows), checkOptional("Episode", b.Episode, rows),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// refusePerRow refuses an array with an entry for each row where an entry for each turn is needed.
func refusePerRow(field string, x []float64) error {
	if x == nil {
		return nil
	}
	return stats.Fault(field, -1, "has an entry a row, and step_unit is %s", UnitTurn)
}

// findTurnEnds finds where the turns of each row end.
func (c *cutter) findTurnEnds(b *Batch) {
	offsets := append(c.batch.Offsets[:0], 0)
	c.rows, c.turns = c.rows[:0], c.turns[:0]
	for i := range b.Rows() {
		lo, hi, turn := b.Offsets[i], b.Offsets[i+1], 0
		for lo < hi {
			n, acts := stats.FirstRun(b.Mask[lo:hi])
			lo += n
			if acts {
				offsets, c.rows, c.turns = append(offsets, lo), append(c.rows, i), append(c.turns, turn)
				turn++
			}
		}
		if turn == 0 {
			offsets, c.rows, c.turns = append(offsets, hi), append(c.rows, i), append(c.turns, 0)
		}
		offsets[len(offsets)-1] = hi // the tokens after the last turn
	}
	c.batch.Offsets = offsets
}

// faultInRow translates an error about a row of the batch by turns to an error about the row of the turn.
func (c *cutter) faultInRow(err error) error {
	var fault *stats.BatchError
	if !errors.As(err, &fault) || fault.Row < 0 || fault.Row >= len(c.rows) {
		return err
	}
	return &stats.BatchError{Field: fault.Field, Row: c.rows[fault.Row], Problem: fmt.Sprintf("turn %d: %s", c.turns[fault.Row], fault.Problem)}
}

// pickEntries copies the entries of rows from an array with an entry for each row; nil stays nil.
func pickEntries[T any](rows []int, from, into []T) []T {
	if from == nil {
		return nil
	}
	into = into[:0]
	for _, row := range rows {
		into = append(into, from[row])
	}
	return into
}
