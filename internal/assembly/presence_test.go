package assembly

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// A worker tells when it comes, each half minute that it is there, also while it drains, and when it leaves; what the broker did not take is
// told again soon.
func TestAWorkerTellsThatItIsThereUntilItLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type sign struct {
			at   time.Duration
			kind schemas.EventType
		}
		began, told, away := time.Now(), []sign{}, atomic.Bool{}
		ctx, drain := context.WithCancel(t.Context())
		leave := keepPresent(ctx, func(ctx context.Context, kind schemas.EventType) error {
			require.NoError(t, ctx.Err())
			if away.Load() {
				return errors.New("the broker is away")
			}
			told = append(told, sign{time.Since(began), kind})
			return nil
		})
		after := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		after(61 * time.Second)
		drain()
		after(60 * time.Second)
		away.Store(true)
		after(60 * time.Second)
		away.Store(false)
		after(5 * time.Second)
		leave()
		after(time.Hour)
		require.Equal(t, []sign{
			{0, schemas.EventWorkerJoined},
			{30 * time.Second, schemas.EventWorkerHere},
			{60 * time.Second, schemas.EventWorkerHere},
			{90 * time.Second, schemas.EventWorkerHere},
			{120 * time.Second, schemas.EventWorkerHere},
			{185 * time.Second, schemas.EventWorkerHere},
			{186 * time.Second, schemas.EventWorkerLeft},
		}, told)
	})
}
