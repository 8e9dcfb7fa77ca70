package producers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
)

// brokenTokenizer panics where it reads what a tool said.
type brokenTokenizer struct{ producers.Tokenizer }

func (brokenTokenizer) EncodeText(string) []int32 { panic("out of cheese") }

// lines is a log, one record of JSON each.
type lines struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lines) with(t *testing.T, key string) (out []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		record := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		if record[key] != nil {
			out = append(out, record)
		}
	}
	return out
}

// A panic of a part in Go costs the episode and not the producer: its sample is closed at once, by a reason that names the part, the
// stack is in the log, and the other tickets give their trajectories.
func TestAPanicOfAPartClosesTheSample(t *testing.T) {
	const bad = "g3-0-0"
	for _, test := range []struct {
		name, part string
		spoil      func(*producers.Environment)
	}{
		{"agent", "agent producers_test.agentFunc", func(env *producers.Environment) {
			sound := env.Agent
			env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
				if e.ID() == bad {
					panic("out of cheese")
				}
				return sound.Run(ctx, e)
			})
		}},
		{"an agent that had finished", "agent producers_test.agentFunc", func(env *producers.Environment) {
			sound := env.Agent
			env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
				err := sound.Run(ctx, e)
				if e.ID() == bad {
					panic("out of cheese")
				}
				return err
			})
		}},
		{"an agent, in a goroutine that it guards", "agent producers_test.agentFunc", func(env *producers.Environment) {
			env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
				if err := finishing(ctx, e); err != nil || e.ID() != bad {
					return err
				}
				ended := make(chan error)
				go func() { ended <- producers.Guard(func() error { panic("out of cheese") }) }()
				return <-ended
			})
		}},
		{"reward", "reward producers_test.rewardFunc", func(env *producers.Environment) {
			env.Reward = rewardFunc(func(ticket *schemas.Ticket) producers.Score {
				if ticket.ID == bad {
					panic("out of cheese")
				}
				return producers.Score{Total: 1}
			})
		}},
		{"the tokenizer, at calls of one turn", `call of tool "say"`, func(env *producers.Environment) {
			env.Tokenizer = brokenTokenizer{env.Tokenizer}
			env.Tools = []producers.Tool{calling{"say", func(context.Context, producers.Call) (producers.Observation, error) {
				return producers.Observation{Text: "yes"}, nil
			}}}
			env.Agent = agentFunc(func(ctx context.Context, e *producers.Episode) error {
				if err := finishing(ctx, e); err != nil || e.ID() != bad {
					return err
				}
				_, err := e.Calls(ctx, []producers.ToolCall{{Name: "say"}, {Name: "say"}})
				return err
			})
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			env := newEnvironment(t, policyFunc(one))
			env.Agent = agentFunc(finishing)
			test.spoil(&env)
			s := newStream(newTicket(2), newTicket(3), newTicket(4))
			log := &lines{}
			p := startWith(t, config(), producers.Deps{
				Stream: s, Environments: map[string]producers.Environment{"t": env}, Log: slog.New(slog.NewJSONHandler(log, nil)),
			})
			<-s.idle
			p.stop()
			require.Equal(t, []string{"g2-0-0", "g4-0-0"}, ids(s.published))
			require.Empty(t, s.returned, "another try with the same seed would fail in the same way")
			require.Len(t, s.closed, 1)
			require.Equal(t, "g3-0", s.closed[0].Group)
			require.Contains(t, s.closed[0].Why, test.part+" panicked: out of cheese")
			stacks := log.with(t, "stack")
			require.Len(t, stacks, 1)
			require.Contains(t, stacks[0]["stack"], "panic_test.go")
			require.Equal(t, bad, stacks[0]["ticket"])
		})
	}
}

// finishing is an agent that has the policy say a token, and answers.
func finishing(ctx context.Context, e *producers.Episode) error {
	if err := e.Begin([]int32{1}); err != nil {
		return err
	}
	if _, _, err := e.Generate(ctx, producers.GenerateOptions{MaxTokens: 1}); err != nil {
		return err
	}
	e.Finish("helsinki", schemas.StopAnswer)
	return nil
}

// An evaluation reports the panic as the failure that it is, with the stack in reach.
func TestAPanicOfAnAgentIsAnErrorOfTheRollout(t *testing.T) {
	env := newEnvironment(t, policyFunc(one))
	env.Agent = agentFunc(func(context.Context, *producers.Episode) error { panic("out of cheese") })
	_, _, err := producers.Rollout(t.Context(), newTicket(0), env)
	require.ErrorContains(t, err, "agent producers_test.agentFunc panicked: out of cheese")
	var panicked *producers.PanicError
	require.ErrorAs(t, err, &panicked)
	require.Contains(t, string(panicked.Stack), "panic_test.go")
}
