package learner

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schedule            string
		step, warmup, total int64
		want                float64
	}{
		{ScheduleConstant, 0, 0, 10, 1},
		{ScheduleConstant, 9, 0, 10, 1},
		{ScheduleConstant, 0, 4, 10, 0.25},
		{ScheduleConstant, 3, 4, 10, 1},
		{ScheduleLinear, 0, 0, 11, 1},
		{ScheduleLinear, 5, 0, 11, 0.6},
		{ScheduleLinear, 10, 0, 11, 0.2},
		{ScheduleLinear, 4, 4, 11, 1},
		{ScheduleLinear, 20, 0, 11, 0.2},
		{ScheduleCosine, 5, 0, 11, 0.6},
		{ScheduleCosine, 10, 0, 11, 0.2},
		{ScheduleLinear, 0, 0, 1, 1},
	} {
		require.InDelta(t, c.want, scheduledRate(c.schedule, 1, 0.2, c.step, c.warmup, c.total), 1e-12, "%+v", c)
	}
}
