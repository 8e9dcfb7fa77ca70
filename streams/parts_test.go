package streams

import (
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/streams/internal/seam"
)

// Parts go several at once, in order, and the one that stores them all only when the broker has confirmed all others: here with a
// broker that confirms when it likes, and may refuse one.
func TestTheLastPartGoesWhenTheOthersAreConfirmed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, false)
	broker, err := f.run.nc.SubscribeSync("broker.parts")
	require.NoError(t, err)
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > 20 {
			return
		}
		count := rapid.IntRange(2, 40).Draw(rt, "parts")
		refused := rapid.IntRange(1, 3*count).Draw(rt, "refused part, if there is that one")
		code := rapid.SampledFrom([]int{codeStoreFailed, codeBatchDuplicate}).Draw(rt, "code")
		result := make(chan error, 1)
		go func() {
			result <- f.run.publishParts(f.ctx, splitMessage{stream: "S", subject: "broker.parts", id: "id", data: make([]byte, 10*count), room: 10})
		}()
		var pending []*nats.Msg
		sent, confirmed := 0, 0
		for confirmed < count {
			want := min(confirmed+partsInFlight, count-1)
			if confirmed == count-1 {
				want = count
			}
			for sent < want {
				m, err := broker.NextMsg(time.Minute)
				require.NoError(rt, err)
				sent++
				require.Equal(rt, strconv.Itoa(sent), m.Header.Get(headerBatchSeq))
				require.Equal(rt, sent == count, m.Header.Get(headerBatchCommit) == "1")
				pending = append(pending, m)
			}
			require.NoError(rt, f.run.nc.FlushWithContext(f.ctx))
			n, _, err := broker.Pending()
			require.NoError(rt, err)
			require.Zero(rt, n, "more parts are on their way than may be")
			for range rapid.IntRange(1, len(pending)).Draw(rt, "answers") {
				body := ""
				if confirmed++; confirmed == count {
					body = `{"stream":"S","seq":7}`
				}
				if confirmed == refused {
					body = `{"error":{"code":503,"err_code":` + strconv.Itoa(code) + `}}`
				}
				require.NoError(rt, pending[0].Respond([]byte(body)))
				pending = pending[1:]
				if confirmed != refused {
					continue
				}
				err := <-result
				if code == codeBatchDuplicate {
					require.NoError(rt, err, "it is stored already")
				} else {
					require.True(rt, seam.HasCode(err, code), err)
					require.ErrorContains(rt, err, "part "+strconv.Itoa(refused))
				}
				require.NoError(rt, f.run.nc.FlushWithContext(f.ctx))
				for {
					m, err := broker.NextMsg(time.Millisecond)
					if err != nil {
						break
					}
					require.Empty(rt, m.Header.Get(headerBatchCommit), "what was refused is not stored")
				}
				return
			}
		}
		require.NoError(rt, <-result)
	})
}
