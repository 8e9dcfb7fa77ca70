package harness

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// WireToken is the bytes of a token on the wire: its id, its log-probability and its mask.
const WireToken = 9

// Trajectory is a rollout of eight turns with tool output between them, of about that many bytes on the wire; a
// new policy version comes in the middle of every second turn.
func Trajectory(run string, size int) *schemas.Trajectory {
	const turns = 8
	n := (size - 1000) / WireToken
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

// Ticket is a ticket for a sample of a group of that size, with the given limits.
func Ticket(run, task string, group uint64, sample, size int, limits schemas.Limits) *schemas.Ticket {
	name := fmt.Sprintf("g%d-0", group)
	return &schemas.Ticket{
		Run: run, ID: fmt.Sprintf("%s-%d", name, sample), Group: name, Cursor: group, Sample: sample, GroupSize: size, Task: task,
		Prompt: schemas.Prompt{ID: "p", Text: "what is the capital of the country of the river", Answers: []string{"it"}, Source: task},
		Seed:   1, Sampling: schemas.Sampling{Temperature: 1}, Limits: limits, IssuedAt: time.Now().UTC(),
	}
}
