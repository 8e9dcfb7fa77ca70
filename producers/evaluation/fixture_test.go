package evaluation_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/evaluation"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/streamtest"
)

// brokerVariable has the test program work as a producer that takes a ticket and never ends it, at the broker that it names.
const brokerVariable = "WEIR_TEST_EVALUATION_BROKER"

func TestMain(m *testing.M) {
	if url := os.Getenv(brokerVariable); url != "" {
		fmt.Fprintln(os.Stderr, hang(url))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, streamtest.ClientLeak())
}

// hang answers evaluation tickets with episodes that say "took <ticket>" and do not end.
func hang(url string) error {
	conn, err := streams.Connect(context.Background(), streams.ConnectConfig{URL: url, Name: "doomed"}, nil)
	if err != nil {
		return err
	}
	run, err := conn.Attach(context.Background(), "test")
	if err != nil {
		return err
	}
	a := &agent{hold: make(chan struct{}), took: func(ticket string) { fmt.Println("took " + ticket) }}
	return evaluation.Run(context.Background(), evaluation.Config{Name: "doomed", Concurrency: 2}, evaluation.Deps{
		Stream: run, Control: run.FollowControl, Environments: environments(a, 7),
	})
}

// letters are a tokenizer of bytes.
type letters struct{}

func (letters) Encode(text string) []int32 {
	var out []int32
	for _, b := range []byte(text) {
		out = append(out, int32(b))
	}
	return out
}

func (letters) Decode(ids []int32) string {
	var out strings.Builder
	for _, id := range ids {
		out.WriteByte(byte(id))
	}
	return out.String()
}
func (letters) ID(token string) (int32, bool) { return int32(token[0]), len(token) == 1 }
func (letters) Size() int                     { return 256 }

// policy says the letter after the last, one token a call, by one version.
type policy struct {
	version int32
	err     error
}

func (p policy) Generate(ctx context.Context, req *schemas.GenerateRequest) (*generate.Result, error) {
	if p.err != nil {
		return nil, p.err
	}
	return &generate.Result{
		Tokens: []int32{req.Tokens[len(req.Tokens)-1] + 1}, Logprobs: []float32{-0.5}, Versions: []int32{p.version},
		Stop: schemas.GenerateStopToken, Engine: "engine",
	}, ctx.Err()
}

// agent asks a tool once, and answers what it said.
type agent struct {
	// hold, where it is not nil, keeps episodes from ending until it is closed; took is told of each.
	hold chan struct{}
	took func(ticket string)
}

func (a *agent) Run(ctx context.Context, e *producers.Episode) error {
	if a.took != nil {
		a.took(e.ID())
	}
	if a.hold != nil {
		select {
		case <-a.hold:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := e.Begin(letters{}.Encode(e.Prompt().Text)); err != nil {
		return err
	}
	said, _, err := e.Generate(ctx, producers.GenerateOptions{})
	if err != nil {
		return err
	}
	seen, err := e.Call(ctx, "double", letters{}.Decode(said))
	if err != nil {
		return err
	}
	e.Finish(seen.Text, schemas.StopAnswer)
	return nil
}

// double says everything twice.
type double struct{}

func (double) Spec() producers.ToolSpec { return producers.ToolSpec{Name: "double"} }

func (double) Call(_ context.Context, call producers.Call) (producers.Observation, error) {
	return producers.Observation{Text: call.Arguments + call.Arguments}, nil
}

func environments(a producers.Agent, version int32) map[string]producers.Environment {
	return map[string]producers.Environment{"letters": {
		Policy: policy{version: version}, Tokenizer: letters{}, Agent: a, Tools: []producers.Tool{double{}}, Reward: right{},
	}}
}

// right is a reward of 1 for the answer of the prompt.
type right struct{}

func (right) Score(_ context.Context, ticket *schemas.Ticket, t *producers.Transcript) (producers.Score, error) {
	score := 0.0
	if t.Answer == ticket.Prompt.Answers[0] {
		score = 1
	}
	return producers.Score{Total: score, Components: map[string]float64{producers.ComponentExactMatch: score}}, nil
}

// field is a broker with the run "test".
type field struct {
	t      *testing.T
	broker *broker.Broker
	// connecting makes the connections; nil makes them without keys.
	connecting func() *streams.Conn
}

func newField(t *testing.T) *field {
	t.Helper()
	f := &field{t: t, broker: streamtest.Start(t)}
	streamtest.Open(t, f.connect())
	return f
}

func (f *field) connect() *streams.Conn {
	f.t.Helper()
	if f.connecting != nil {
		return f.connecting()
	}
	return streamtest.Connect(f.t, streams.ConnectConfig{URL: f.broker.URL()})
}

// attach is another process's handle on the run.
func (f *field) attach() *streams.Run {
	f.t.Helper()
	run, err := f.connect().Attach(f.t.Context(), "test")
	require.NoError(f.t, err)
	return run
}

// produce runs a producer until stop, or the test's end.
func (f *field) produce(name string, concurrency int, envs map[string]producers.Environment) (stop func()) {
	f.t.Helper()
	run := f.attach()
	ctx, cancel := context.WithCancel(context.Background())
	done, listening := make(chan error, 1), make(chan struct{})
	go func() {
		done <- evaluation.Run(ctx, evaluation.Config{Name: name, Concurrency: concurrency}, evaluation.Deps{
			Stream: run, Environments: envs, Control: func(ctx context.Context, fn func(*schemas.Control)) error {
				close(listening) // it is followed once there are subscriptions
				return run.FollowControl(ctx, fn)
			},
		})
	}()
	<-listening
	require.NoError(f.t, run.NATS().Flush())
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(f.t, <-done)
	})
	f.t.Cleanup(stop)
	return stop
}

// doomed is a producer in a process of its own, which takes tickets and never ends them. took has the ids of those.
func (f *field) doomed() (kill func(), took <-chan string) {
	f.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), brokerVariable+"="+f.broker.URL())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, cmd.Start())
	ids := make(chan string, 16)
	go func() {
		defer close(ids)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if id, is := strings.CutPrefix(lines.Text(), "took "); is {
				ids <- id
			}
		}
	}()
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		for range ids { // what it said is read to the end
		}
		_ = cmd.Wait() // killed
	})
	f.t.Cleanup(kill)
	return kill, ids
}

// prompts are the letters, each with the answer that the policy and the tool give.
func prompts(n int) []schemas.Prompt {
	var out []schemas.Prompt
	for i := range n {
		letter := string(rune('a' + i%20))
		next := string(rune('b' + i%20))
		out = append(out, schemas.Prompt{ID: fmt.Sprintf("q%d", i), Text: letter, Answers: []string{next + next}, Source: "alphabet"})
	}
	return out
}

func evalConfig() producers.EvalConfig {
	return producers.EvalConfig{
		Run: "test", Name: "validation-v7", Task: "letters", Version: 7, Samples: 1, Concurrency: 4, Seed: 3, Attempts: 4,
		Limits: schemas.Limits{MaxTurns: 2, MaxTokens: 64},
	}
}

// quick takes a silent producer for dead soon.
func quick() evaluation.ClientOptions {
	return evaluation.ClientOptions{Silence: 2500 * time.Millisecond}
}
