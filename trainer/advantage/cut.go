package advantage

import (
	"errors"
	"fmt"

	"github.com/weir-rl/weir/trainer/stats"
)

// cutter lays a batch out with one row a turn: a run of action tokens, with what was said before it. What follows a row's last
// turn is that turn's too, and a row without an action token stays as it is. Tokens keep their places, so that what has one entry
// a token is the same for both layouts.
type cutter struct {
	batch Batch
	// rows are the rows of the batch that was cut, turns counts within each.
	rows, turns []int
}

// cut returns the batch by turns, in memory that the next call reuses.
func (c *cutter) cut(b *Batch) (*Batch, error) {
	if err := c.check(b); err != nil {
		return nil, err
	}
	c.split(b)
	o := c.batch
	c.batch = *b
	c.batch.Offsets = o.Offsets
	c.batch.Trajectory = pick(c.rows, b.Trajectory, o.Trajectory)
	if b.Trajectory == nil { // each row is one
		c.batch.Trajectory = append(o.Trajectory[:0], c.rows...)
	}
	c.batch.Group, c.batch.Step = pick(c.rows, b.Group, o.Group), pick(c.rows, b.Step, o.Step)
	c.batch.Agent, c.batch.Episode = pick(c.rows, b.Agent, o.Agent), pick(c.rows, b.Episode, o.Episode)
	c.batch.Role = pick(c.rows, b.Role, o.Role)
	c.batch.Bootstrap, c.batch.Baselines = pick(c.rows, b.Bootstrap, o.Bootstrap), pick(c.rows, b.Baselines, o.Baselines)
	return &c.batch, nil
}

// check checks what has one entry a row.
func (c *cutter) check(b *Batch) error {
	rows := b.Rows()
	for _, err := range []error{
		perRow("StepRewards", b.StepRewards), perRow("StepValues", b.StepValues),
		optional("Group", b.Group, rows), optional("Trajectory", b.Trajectory, rows), optional("Step", b.Step, rows),
		optional("Bootstrap", b.Bootstrap, rows), optional("Baselines", b.Baselines, rows),
		optional("Agent", b.Agent, rows), optional("Role", b.Role, rows), optional("Episode", b.Episode, rows),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// perRow refuses what has an entry a row where there would have to be an entry a turn.
func perRow(field string, x []float64) error {
	if x == nil {
		return nil
	}
	return stats.Fault(field, -1, "has an entry a row, and step_unit is %s", UnitTurn)
}

// split finds where the turns of each row end.
func (c *cutter) split(b *Batch) {
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
		offsets[len(offsets)-1] = hi // what follows the last turn
	}
	c.batch.Offsets = offsets
}

// fault gives an error about a row of the batch by turns as one about the row that the turn is of.
func (c *cutter) fault(err error) error {
	var fault *stats.BatchError
	if !errors.As(err, &fault) || fault.Row < 0 || fault.Row >= len(c.rows) {
		return err
	}
	return &stats.BatchError{Field: fault.Field, Row: c.rows[fault.Row], Problem: fmt.Sprintf("turn %d: %s", c.turns[fault.Row], fault.Problem)}
}

// pick copies the entries of rows from what has one entry a row; nil stays nil.
func pick[T any](rows []int, from, into []T) []T {
	if from == nil {
		return nil
	}
	into = into[:0]
	for _, row := range rows {
		into = append(into, from[row])
	}
	return into
}
