package streambench

import (
	"math/rand/v2"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// wireToken is what a token takes on the wire: its id, its log-probability and its mask.
const wireToken = 9

// Sample is a rollout of eight turns with tool output between them, of about that many bytes on the wire; a
// new policy version comes in the middle of every second turn.
func Sample(run string, size int) *schemas.Trajectory {
	const turns = 8
	n := (size - 1000) / wireToken
	s := schemas.Segment{
		Tokens: make(schemas.Int32s, n), ActionMask: make(schemas.Bytes, n),
		Logprobs: make(schemas.Float32s, n), Versions: make(schemas.Runs, n), Temperature: 1,
	}
	t := &schemas.Trajectory{
		Run: run, ID: "g0-0-0", Group: "g0-0", GroupSize: 8, Task: "bench", PromptID: "p0", Source: "bench", Producer: "p1",
		Reward: 1, Rewards: map[string]float64{"match": 1}, Answer: "it", Stop: schemas.StopAnswer,
		StartedAt: time.Unix(2, 0).UTC(), FinishedAt: time.Unix(3, 0).UTC(),
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		s.Tokens[i], s.Versions[i] = r.Int32N(150_000), schemas.NoVersion
	}
	for turn := range turns {
		end := (turn + 1) * n / turns
		start := turn*n/turns + (end-turn*n/turns)/3
		for i := start; i < end; i++ {
			late := min((i-start)/max(n/32, 1), 1)
			s.ActionMask[i], s.Logprobs[i], s.Versions[i] = 1, -r.Float32(), int32(11+(turn+late)/2)
		}
		t.Turns = append(t.Turns, schemas.Turn{Start: start, End: end, Calls: []schemas.ToolCall{{Tool: "search", Duration: time.Second}}})
	}
	t.Segments = []schemas.Segment{s}
	return t
}
