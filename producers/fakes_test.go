package producers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/rewards/weighted"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tools"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams/generate"
)

// corpus is a small world to search in.
func corpus() []tasks.Passage {
	return []tasks.Passage{
		{Title: "sweden", Text: "sweden has capital stockholm, currency sek, neighbour finland."},
		{Title: "finland", Text: "finland has capital helsinki, currency eur."},
	}
}

func newTokenizer(tb testing.TB) *tokenizer.Tokenizer {
	tb.Helper()
	words := tokenizer.Words("what is the capital of neighbour ? nothing found error there no tool named hmm gave up , .")
	for _, p := range corpus() {
		words = append(words, tokenizer.Words(p.Text)...)
	}
	slices.Sort(words)
	tok, err := tokenizer.New(tokenizer.Config{
		Special: []string{"<unk>", "<bos>", "<search>", "</search>", "<info>", "</info>", "<answer>", "</answer>"},
		Words:   slices.Compact(words), Unknown: "<unk>", Lowercase: true,
	})
	require.NoError(tb, err)
	return tok
}

// scripted is a policy that says the next line of a script each time, cut off at the bound it is given.
// The version of a line is its number from 0 unless versions says otherwise.
type scripted struct {
	tok      *tokenizer.Tokenizer
	lines    []string
	versions []int32

	mu       sync.Mutex
	at       map[string]int // next line by episode
	requests []schemas.GenerateRequest
	forgot   []string
}

func (p *scripted) Generate(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.requests = append(p.requests, *r)
	if p.at == nil {
		p.at = map[string]int{}
	}
	i := p.at[r.Episode]
	if i >= len(p.lines) {
		return nil, errors.New("the script is over")
	}
	p.at[r.Episode]++
	version := int32(i)
	if p.versions != nil {
		version = p.versions[i]
	}
	g := &generate.Result{Stop: schemas.GenerateStopToken, Engine: "script"}
	for k, id := range p.tok.Encode(p.lines[i]) {
		if k == r.MaxTokens {
			g.Stop = schemas.GenerateLength
			break
		}
		g.Tokens = append(g.Tokens, id)
		g.Logprobs = append(g.Logprobs, -float32(k+1)/8)
		g.Versions = append(g.Versions, version)
	}
	return g, nil
}

func (p *scripted) Forget(episode string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgot = append(p.forgot, episode)
	return nil
}

// policyFunc is a policy that is one function.
type policyFunc func(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error)

func (f policyFunc) Generate(ctx context.Context, r *schemas.GenerateRequest) (*generate.Result, error) {
	return f(ctx, r)
}

// agentFunc is an agent that is one function.
type agentFunc func(ctx context.Context, e *producers.Episode) error

func (f agentFunc) Run(ctx context.Context, e *producers.Episode) error { return f(ctx, e) }

// rewardFunc is a reward that is one function of the ticket.
type rewardFunc func(*schemas.Ticket) producers.Score

func (f rewardFunc) Score(_ context.Context, t *schemas.Ticket, _ *producers.Transcript) (producers.Score, error) {
	return f(t), nil
}

func newEnvironment(tb testing.TB, policy producers.Policy) producers.Environment {
	tb.Helper()
	tok := newTokenizer(tb)
	agent, err := search.New(search.DefaultConfig(), tok)
	require.NoError(tb, err)
	tool, err := tools.NewSearch(tools.DefaultSearchConfig(), corpus())
	require.NoError(tb, err)
	reward, err := weighted.New(weighted.DefaultConfig())
	require.NoError(tb, err)
	return producers.Environment{
		Policy: policy, Tokenizer: tok, Agent: agent, Tools: []producers.Tool{tool}, Reward: reward,
	}
}

func newTicket(id int) *schemas.Ticket {
	return &schemas.Ticket{
		Run: "r", ID: fmt.Sprintf("g%d-0-0", id), Group: fmt.Sprintf("g%d-0", id), Cursor: uint64(id), GroupSize: 1, Task: "t",
		Prompt: schemas.Prompt{
			ID: "p", Text: "what is the capital of the neighbour of sweden ?", Answers: []string{"Helsinki"}, Source: "2n",
		},
		Seed: 42, Sampling: schemas.Sampling{Temperature: 1}, Limits: schemas.Limits{MaxTurns: 4, MaxTokens: 96},
	}
}

var rightLines = []string{
	"<search> sweden </search>", "<search> finland </search>", "<answer> helsinki </answer>",
}

// stream is a run's streams in memory: tickets go round until they are done. Like a source of leases it hands out no more
// at once than it has slots, and a lease gives its slot back when it ends or is lost.
type stream struct {
	tickets chan *lease
	slots   chan struct{}
	control chan *schemas.Control

	mu        sync.Mutex
	published []*schemas.Trajectory
	closed    []*schemas.GroupClosed
	done      []string
	returned  []time.Duration
	released  int // of returned, those that do not count
	// failPublish and failDone make so many of the next calls fail.
	failPublish, failDone int
	// idle is closed when no ticket is out or waiting any more.
	idle chan struct{}
	left int
	// closedForGood says that tickets is closed.
	closedForGood bool
}

func newStream(tickets ...*schemas.Ticket) *stream {
	s := &stream{
		tickets: make(chan *lease, 100), slots: make(chan struct{}, config().Concurrency),
		control: make(chan *schemas.Control, 10), idle: make(chan struct{}), left: len(tickets),
	}
	for _, ticket := range tickets {
		s.offer(ticket, 1)
	}
	return s
}

// offer puts a ticket where it can be taken.
func (s *stream) offer(ticket *schemas.Ticket, delivery int) *lease {
	l := &lease{stream: s, ticket: ticket, delivery: delivery, lost: make(chan struct{})}
	s.tickets <- l
	return l
}

func (s *stream) Take(ctx context.Context) (producers.Lease, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case l, open := <-s.tickets:
		if !open {
			return nil, errors.New("the source is closed")
		}
		l.free = sync.OnceFunc(func() { <-s.slots })
		return l, nil
	case <-ctx.Done():
		<-s.slots
		return nil, ctx.Err()
	}
}

func (s *stream) Publish(_ context.Context, t *schemas.Trajectory) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failPublish > 0 {
		s.failPublish--
		return errors.New("the stream is away")
	}
	s.published = append(s.published, t)
	return nil
}

func (s *stream) CloseGroup(_ context.Context, c *schemas.GroupClosed) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = append(s.closed, c)
	return nil
}

func (s *stream) FollowControl(ctx context.Context, fn func(*schemas.Control)) error {
	for {
		select {
		case c := <-s.control:
			fn(c)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *stream) settle() {
	if s.left--; s.left == 0 {
		close(s.idle)
	}
}

type lease struct {
	stream   *stream
	ticket   *schemas.Ticket
	delivery int
	lost     chan struct{}
	free     func()
}

func (l *lease) Ticket() *schemas.Ticket { return l.ticket }
func (l *lease) Delivery() int           { return l.delivery }
func (l *lease) Lost() <-chan struct{}   { return l.lost }

// lose has the lease lapse.
func (l *lease) lose() {
	close(l.lost)
	l.free()
}

func (l *lease) Done(context.Context) error {
	l.stream.mu.Lock()
	defer l.stream.mu.Unlock()
	l.free()
	if l.stream.failDone > 0 {
		l.stream.failDone--
		l.stream.offer(l.ticket, l.delivery+1)
		return errors.New("the stream is away")
	}
	l.stream.done = append(l.stream.done, l.ticket.ID)
	l.stream.settle()
	return nil
}

func (l *lease) Release(ctx context.Context, delay time.Duration) error {
	l.delivery--
	l.stream.mu.Lock()
	l.stream.released++
	l.stream.mu.Unlock()
	return l.Return(ctx, delay)
}

func (l *lease) Return(_ context.Context, delay time.Duration) error {
	l.stream.mu.Lock()
	defer l.stream.mu.Unlock()
	l.free()
	l.stream.returned = append(l.stream.returned, delay)
	if l.stream.closedForGood {
		return nil
	}
	l.stream.offer(l.ticket, l.delivery+1)
	return nil
}

// producer is a producer that runs until stop.
type producer struct {
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
}

// start runs a producer whose tickets are all of the task of newTicket.
func start(t *testing.T, cfg producers.Config, s *stream, env producers.Environment) *producer {
	t.Helper()
	return startWith(t, cfg, producers.Deps{Stream: s, Environments: map[string]producers.Environment{"t": env}})
}

func startWith(t *testing.T, cfg producers.Config, deps producers.Deps) *producer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &producer{t: t, cancel: cancel, ended: make(chan error, 1)}
	go func() {
		p.ended <- producers.Run(ctx, cfg, deps)
	}()
	return p
}

func (p *producer) stop() {
	p.t.Helper()
	p.cancel()
	require.NoError(p.t, <-p.ended)
}

func ids(trajectories []*schemas.Trajectory) []string {
	var out []string
	for _, t := range trajectories {
		out = append(out, t.ID)
	}
	slices.Sort(out)
	return out
}
