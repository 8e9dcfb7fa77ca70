package checkpoint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheScheduleOfFullCheckpoints(t *testing.T) {
	t.Parallel()
	at := func(f *Schedule, cost, pause time.Duration) (full []int64) {
		now := time.Unix(0, 0)
		for step := range f.steps + 1 {
			c := &State{Step: step, Light: !f.IsFullDue(step, now)}
			if !c.Light {
				full = append(full, step)
				now = now.Add(cost)
			}
			f.NoteSaved(c, now, cost)
			now = now.Add(pause)
		}
		return full
	}
	for name, c := range map[string]struct {
		cfg   Config
		again bool
		cost  time.Duration
		want  []int64
	}{
		"each":                   {Config{FullEvery: 1}, true, time.Second, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		"every third":            {Config{FullEvery: 3}, true, time.Second, []int64{0, 3, 6, 8}},
		"none by time":           {Config{}, true, time.Second, []int64{0, 8}},
		"by time":                {Config{FullShare: 0.5}, true, 2 * time.Second, []int64{0, 4, 8}},
		"cheap":                  {Config{FullShare: 0.5}, true, time.Second / 2, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		"kept for good":          {Config{Every: 5}, true, time.Second, []int64{0, 5, 8}},
		"cannot be learnt again": {Config{FullShare: 0.5}, false, time.Hour, []int64{0, 1, 2, 3, 4, 5, 6, 7, 8}},
		"dear, half a time":      {Config{FullShare: 0.5}, true, 3 * time.Second, []int64{0, 6, 8}},
	} {
		f := &Schedule{cfg: c.cfg, steps: 8, again: c.again}
		require.Equal(t, c.want, at(f, c.cost, time.Second), name)
	}
}
