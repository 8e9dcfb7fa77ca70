package episodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/weir-rl/weir/internal/lab/harness"
)

// Shape is a play of the tickets by so many producers, and as many engines.
type Shape struct {
	Producers int     `json:"producers"`
	Played    *Played `json:"played"`
	// Other counts trajectories that are not those of the first shape.
	Other int `json:"other"`
}

// Same says whether the same tickets gave the same episodes in each shape.
type Same struct {
	Config Config  `json:"config"`
	Shapes []Shape `json:"shapes"`
}

// PlaySame plays the tickets of a configuration with 1, 2 and 8 producers and engines left alone, then with 2 and 8 that are killed as the
// configuration says, and compares the trajectories with those of the first: tokens, log-probabilities, versions, turns, calls and
// what the calls returned. program is as in [Play].
func PlaySame(ctx context.Context, c Config, program []string, dir string) (*Same, error) {
	same := &Same{Config: c}
	for i, of := range []struct {
		producers int
		kill      time.Duration
	}{{1, 0}, {2, 0}, {8, 0}, {2, c.Kill}, {8, c.Kill}} {
		if i > 2 && c.Kill == 0 {
			break
		}
		play := c
		play.Producers, play.Engines, play.Kill = of.producers, of.producers, of.kill
		at := filepath.Join(dir, fmt.Sprint(i))
		if err := os.MkdirAll(at, 0o755); err != nil {
			return nil, fmt.Errorf("make a folder for the episodes: %w", err)
		}
		played, err := Play(ctx, play, program, at)
		if err != nil {
			return nil, err
		}
		shape := Shape{Producers: of.producers, Played: played}
		if i > 0 {
			shape.Other = countOther(same.Shapes[0].Played, played)
		}
		same.Shapes = append(same.Shapes, shape)
	}
	return same, nil
}

// countOther counts the trajectories of a play that are not those of another play of the same tickets, where both came.
func countOther(want, got *Played) (n int) {
	for id, t := range got.trajectories {
		if w := want.trajectories[id]; w != nil && !reflect.DeepEqual(plainTrajectory(w), plainTrajectory(t)) {
			n++
		}
	}
	return n
}

// Err is nil where each ticket gave the same trajectory in each shape, or was closed where its producers died, and no call with an effect
// was made twice.
func (s *Same) Err() error {
	var errs []error
	for _, shape := range s.Shapes {
		p := shape.Played
		closed := 0
		for _, n := range p.Closed {
			closed += n
		}
		what := fmt.Sprintf("%d producers, %d kills", shape.Producers, p.Kills)
		if shape.Other > 0 {
			errs = append(errs, fmt.Errorf("%s: %d trajectories are others than with 1 producer", what, shape.Other))
		}
		if p.Trained+closed != s.Config.Episodes || p.Kills == 0 && closed > 0 {
			errs = append(errs, fmt.Errorf("%s: %d trajectories and %d closed samples of %d tickets", what, p.Trained, closed, s.Config.Episodes))
		}
		if p.OutsideTwice > 0 {
			errs = append(errs, fmt.Errorf("%s: %d calls with an effect outside were made twice", what, p.OutsideTwice))
		}
	}
	return errors.Join(errs...)
}

// Print writes the report.
func (s *Same) Print(out io.Writer) {
	t := harness.NewTable(out, "producers, engines", "kills", "taken up", "trajectories", "closed", "tokens", "unlike the first", "calls twice", "s")
	for _, shape := range s.Shapes {
		p, closed, tokens := shape.Played, 0, 0
		for _, n := range p.Closed {
			closed += n
		}
		for _, trajectory := range p.trajectories {
			tokens += trajectory.ActionTokens()
		}
		t.AppendRow([]any{
			shape.Producers, p.Kills, p.TakenUp, p.Trained, closed, tokens, shape.Other, p.OutsideTwice, fmt.Sprintf("%.0f", p.Seconds),
		})
	}
	t.Render()
}
