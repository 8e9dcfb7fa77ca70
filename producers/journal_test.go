package producers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate/generatetest"
)

// ledger is the journals of a run in memory, with the conditions of the broker. It is the naive model of what streams.Journal does.
type ledger struct {
	*stream
	mu      sync.Mutex
	records map[string][]stored
	// fences has the sequence of the record of a ticket that may not be missing.
	fences map[string]uint64
	next   uint64
	// seen is called after each record that was stored; it may end leases.
	seen func(r *schemas.JournalRecord, n int)
	// refuse is the error of every write; nil is none.
	refuse error
}

type stored struct {
	sequence uint64
	data     []byte
}

func newLedger(s *stream) *ledger {
	return &ledger{stream: s, records: map[string][]stored{}, fences: map[string]uint64{}}
}

func (l *ledger) OpenJournal(t *schemas.Ticket) producers.JournalStore {
	return &pages{ledger: l, ticket: t.ID}
}

type pages struct {
	ledger *ledger
	ticket string
	last   uint64
}

func (p *pages) Written() bool { return p.last != 0 }

func (p *pages) Read(context.Context) (out []*schemas.JournalRecord, at time.Time, err error) {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	for _, s := range p.ledger.records[p.ticket] {
		p.last = s.sequence
		r := new(schemas.JournalRecord)
		if fault := schemas.Unmarshal(s.data, r); fault != nil {
			err = errors.Join(err, fault)
			continue
		}
		out = append(out, r)
	}
	if p.ledger.isShort(p.ticket, out) {
		return nil, time.Now(), streams.ErrJournalShort
	}
	return out, time.Now(), err
}

// isShort is whether the record is missing after which a call went out. An end stands for all records before it.
func (l *ledger) isShort(ticket string, records []*schemas.JournalRecord) bool {
	fence := l.fences[ticket]
	return fence != 0 && !slices.ContainsFunc(l.records[ticket], func(s stored) bool { return s.sequence == fence }) &&
		!slices.ContainsFunc(records, func(r *schemas.JournalRecord) bool { return r.Ended })
}

// lose drops the newest records of a ticket, which the broker had confirmed and not written.
func (l *ledger) lose(ticket string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have := l.records[ticket]
	l.records[ticket] = have[:max(0, len(have)-n)]
}

func (p *pages) Append(_ context.Context, r *schemas.JournalRecord) error { return p.write(r, false) }

// Forbid sets the fence behind a record that there will never be.
func (p *pages) Forbid(context.Context) error {
	p.ledger.mu.Lock()
	defer p.ledger.mu.Unlock()
	p.ledger.next++
	p.ledger.fences[p.ticket] = p.ledger.next
	return nil
}

func (p *pages) Replace(_ context.Context, r *schemas.JournalRecord) error { return p.write(r, true) }

func (p *pages) write(r *schemas.JournalRecord, all bool) error {
	l := p.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return l.refuse
	}
	if err := r.Validate(); err != nil {
		return err
	}
	have := l.records[p.ticket]
	last := uint64(0)
	if len(have) > 0 {
		last = have[len(have)-1].sequence
	}
	if last != p.last {
		newest := new(schemas.JournalRecord)
		if len(have) == 0 || schemas.Unmarshal(have[len(have)-1].data, newest) != nil {
			newest = nil
		}
		p.last = last
		return &streams.OvertakenError{Newest: newest}
	}
	data, err := schemas.Marshal(r)
	if err != nil {
		return err
	}
	if all {
		have = nil
	}
	l.next++
	p.last = l.next
	l.records[p.ticket] = append(have, stored{l.next, data})
	if slices.ContainsFunc(r.Calls, func(c schemas.JournalCall) bool { return c.State == schemas.JournalStarted }) {
		if l.isShort(p.ticket, nil) {
			return streams.ErrJournalShort
		}
		l.fences[p.ticket] = l.next
	}
	if all && !r.Ended && l.fences[p.ticket] != 0 {
		l.fences[p.ticket] = l.next
	}
	if l.seen != nil {
		l.seen(r, int(l.next))
	}
	return nil
}

const stopToken = 5

// newSeeded makes a policy whose tokens follow from the seed and the context, each after a while.
func newSeeded(pace time.Duration) *generatetest.Engine {
	return &generatetest.Engine{First: stopToken, Kinds: 20, Pace: pace, Version: 3}
}

// countSampled counts the tokens that a policy sampled.
func countSampled(policy *generatetest.Engine) int {
	all, _ := policy.Sampled()
	return all
}

// counted is a tool that takes a while, and counts its calls by arguments. Its answers follow from the arguments and the calls of the session.
type counted struct {
	name    string
	effects producers.Effects
	takes   time.Duration
	mu      sync.Mutex
	calls   map[string]int
	session map[string]int
	noise   bool // it answers otherwise each time
}

func (t *counted) Spec() producers.ToolSpec   { return producers.ToolSpec{Name: t.name} }
func (t *counted) Effects() producers.Effects { return t.effects }

func (t *counted) Open(_ context.Context, s producers.Session) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.session[s.Episode] = 0
	return nil
}

func (t *counted) Close(context.Context, string) error { return nil }

func (t *counted) Call(ctx context.Context, c producers.Call) (producers.Observation, error) {
	t.mu.Lock()
	t.calls[fmt.Sprint(c.Episode, c.Index, c.Arguments)]++
	if t.effects == producers.EffectsSession {
		t.session[c.Episode]++
	}
	text := fmt.Sprintf("%s %d %d", c.Arguments, c.Index, t.session[c.Episode])
	if t.noise {
		text += fmt.Sprint(len(t.calls), t.calls)
	}
	t.mu.Unlock()
	select {
	case <-time.After(t.takes):
	case <-ctx.Done():
		return producers.Observation{}, ctx.Err()
	}
	reward := float64(len(c.Arguments)) / 8
	return producers.Observation{Text: text, Reward: &reward, Metrics: map[string]float64{"calls": 1}}, nil
}

func newCounted(name string, effects producers.Effects, takes time.Duration) *counted {
	return &counted{name: name, effects: effects, takes: takes, calls: map[string]int{}, session: map[string]int{}}
}

// walker is an agent whose moves follow from what the policy and the tools say: turns of several lengths, calls of one or two tools, and
// contexts that it writes anew.
func walker(turns int, tools ...string) agentFunc {
	return func(ctx context.Context, e *producers.Episode) error {
		if err := e.Begin([]int32{1, 2, 3}); err != nil {
			return err
		}
		for range turns {
			said, _, err := e.Generate(ctx, producers.GenerateOptions{Stop: []int32{stopToken}, MaxTokens: 12})
			if err != nil {
				return err
			}
			sum := 0
			for _, token := range said {
				sum += int(token)
			}
			if len(tools) > 0 && sum%5 != 0 {
				calls := []producers.ToolCall{{Name: tools[sum%len(tools)], Arguments: fmt.Sprint(sum)}}
				if sum%3 == 0 {
					calls = append(calls, producers.ToolCall{Name: tools[0], Arguments: fmt.Sprint(sum, "too")})
				}
				observations, err := e.Calls(ctx, calls)
				if err != nil {
					return err
				}
				for _, o := range observations {
					sum += len(o.Text)
				}
			}
			if sum%7 == 0 {
				err = e.Begin([]int32{1, 2, int32(3 + sum%20)})
			} else {
				err = e.Observe([]int32{int32(5 + sum%20)})
			}
			if err != nil {
				return err
			}
		}
		e.Finish(fmt.Sprint(e.Context()), schemas.StopAnswer)
		return nil
	}
}

func journalTicket(seed uint64) *schemas.Ticket {
	t := newTicket(1)
	t.Seed, t.Limits = seed, schemas.Limits{MaxTurns: 40, MaxTokens: 200, MaxTotalTokens: 900, MaxSegments: 12}
	return t
}

func journalConfig(name, mode string) producers.Config {
	cfg := config()
	cfg.Name, cfg.Concurrency, cfg.MaxDeliver, cfg.Journal.Mode = name, 1, 1000, mode
	return cfg
}

// plainTrajectory is the trajectory without its producer and its times.
func plainTrajectory(t *schemas.Trajectory) schemas.Trajectory {
	out := *t
	out.Producer, out.StartedAt, out.FinishedAt = "", time.Time{}, time.Time{}
	return out
}

// undisturbed runs an episode without a journal.
func undisturbed(t require.TestingT, ticket *schemas.Ticket, env producers.Environment) *schemas.Trajectory {
	trajectory, _, err := producers.Rollout(context.Background(), ticket, env)
	require.NoError(t, err)
	return trajectory
}

// runKilled runs a ticket at producers that die after the records whose numbers kill has, each in the middle of what it does: its lease
// lapses, and nothing of it is written any more. It returns when the ticket is done.
func runKilled(t *testing.T, ticket *schemas.Ticket, env producers.Environment, mode string, metrics *producers.Metrics, kill func(n int) bool) (*ledger, int) {
	t.Helper()
	kept := newLedger(newStream())
	kept.left = 1
	delivery, deaths := 1, 0
	for {
		lease := kept.offer(ticket, delivery)
		once := sync.OnceFunc(func() {
			deaths++
			lease.lose()
		})
		kept.seen = func(r *schemas.JournalRecord, n int) {
			if kill(n) && r.Delivery == delivery && !r.Ended {
				once()
			}
		}
		p := startWith(t, journalConfig(fmt.Sprintf("p%d", delivery), mode), producers.Deps{
			Stream: kept, Environments: map[string]producers.Environment{"t": env}, Metrics: metrics,
		})
		select {
		case <-kept.idle:
			p.stop()
			return kept, deaths
		case <-lease.lost:
		}
		p.stop()
		delivery++
	}
}

func newJournalMetrics(t *testing.T) (*producers.Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := producers.NewMetrics(registry)
	require.NoError(t, err)
	return m, registry
}

// Invariant: an episode whose producers die, at whatever record, gives the trajectory that it would have given undisturbed; a tool that
// changes something outside is called once.
func TestInvariantAnEpisodeOutlivesItsProducers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		turns := rapid.IntRange(1, 6).Draw(rt, "turns")
		pace := rapid.SampledFrom([]time.Duration{20 * time.Millisecond, 150 * time.Millisecond, 900 * time.Millisecond}).Draw(rt, "pace")
		takes := rapid.SampledFrom([]time.Duration{0, 700 * time.Millisecond, 5 * time.Second}).Draw(rt, "takes")
		kills := rapid.SliceOfN(rapid.IntRange(1, 30), 1, 6).Draw(rt, "kills")
		mode := rapid.SampledFrom([]string{producers.JournalOn, producers.JournalAuto}).Draw(rt, "mode")
		synctest.Test(t, func(t *testing.T) {
			build := func() (producers.Environment, *generatetest.Engine, []*counted) {
				policy := newSeeded(pace)
				kept := []*counted{
					newCounted("look", producers.EffectsNone, takes), newCounted("cell", producers.EffectsSession, takes), newCounted("pay", producers.EffectsOutside, takes),
				}
				env := newEnvironment(t, policy)
				env.Agent, env.Tools = walker(turns, "look", "cell", "pay"), []producers.Tool{kept[0], kept[1], kept[2]}
				env.Reward = rewardFunc(func(*schemas.Ticket) producers.Score { return producers.Score{Total: 1} })
				return env, policy, kept
			}
			ticket := journalTicket(seed)
			env, _, _ := build()
			want := undisturbed(t, ticket, env)
			env, policy, kept := build()
			led, deaths := runKilled(t, ticket, env, mode, nil, func(n int) bool { return slices.Contains(kills, n) })
			for call, n := range kept[2].calls {
				require.Equal(t, 1, n, "a payment was made %d times: %s", n, call)
			}
			if len(led.published) == 0 {
				require.Len(t, led.closed, 1)
				require.Contains(t, led.closed[0].Why, "was being called when the episode's producer died")
				return
			}
			require.Equal(t, plainTrajectory(want), plainTrajectory(withDurations(led.published[0], want)))
			lost := int(2*producers.DefaultJournalConfig().Every/pace) + 2
			if mode == producers.JournalAuto {
				lost += int(producers.DefaultJournalConfig().After / pace)
			}
			require.LessOrEqual(t, countSampled(policy)-want.ActionTokens(), lost*deaths, "a death loses the tokens of a moment")
			for _, s := range led.records[ticket.ID] {
				r := new(schemas.JournalRecord)
				require.NoError(t, schemas.Unmarshal(s.data, r))
				require.True(t, r.Ended, "an ended episode leaves no journal")
			}
		})
	})
}

// withDurations gives a trajectory's calls the durations of another's: they are clock times.
func withDurations(t, of *schemas.Trajectory) *schemas.Trajectory {
	for i := range t.Turns {
		for k := range t.Turns[i].Calls {
			if i < len(of.Turns) && k < len(of.Turns[i].Calls) {
				t.Turns[i].Calls[k].Duration = of.Turns[i].Calls[k].Duration
			}
		}
	}
	return t
}

// journalEnvironment is an environment of a walker with a tool.
func journalEnvironment(t *testing.T, policy producers.Policy, turns int, kept ...producers.Tool) producers.Environment {
	t.Helper()
	env := newEnvironment(t, policy)
	var names []string
	for _, tool := range kept {
		names = append(names, tool.Spec().Name)
	}
	env.Agent, env.Tools = walker(turns, names...), kept
	env.Reward = rewardFunc(func(*schemas.Ticket) producers.Score { return producers.Score{Total: 1} })
	return env
}

func counter(t *testing.T, registry *prometheus.Registry, name string, labels ...string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() != "weir_producer_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			if len(labels) == 0 || len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == labels[0] {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// secondSeed is a seed of which the walker calls its tool at its first turns.
const secondSeed = 11

func TestATakenUpEpisodeSamplesNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		policy, tool := newSeeded(500*time.Millisecond), newCounted("look", producers.EffectsNone, 3*time.Second)
		env, ticket := journalEnvironment(t, policy, 5, tool), journalTicket(secondSeed)
		want := undisturbed(t, ticket, env)
		policy.Forget()
		metrics, registry := newJournalMetrics(t)
		led, deaths := runKilled(t, ticket, env, producers.JournalOn, metrics, func(n int) bool { return n%4 == 0 })
		require.Greater(t, deaths, 3)
		require.Equal(t, plainTrajectory(want), plainTrajectory(withDurations(led.published[0], want)))
		again := countSampled(policy) - want.ActionTokens()
		require.LessOrEqual(t, again, deaths)
		counted := counter(t, registry, "journal_tokens_total", "sampled_again")
		require.GreaterOrEqual(t, counted, float64(again), "the metric is no understatement")
		require.InDelta(t, deaths, counter(t, registry, "journal_taken_up_total"), 1, "a producer may die with its first record, before it counts")
		require.Positive(t, counter(t, registry, "journal_tokens_total", "given_back"))
		require.Zero(t, counter(t, registry, "journal_tokens_total", "left"))
		require.Positive(t, counter(t, registry, "journal_calls_total", "given_back"))
		require.Zero(t, counter(t, registry, "journal_given_up_total"))
		require.Equal(t, "p"+fmt.Sprint(deaths+1), led.published[0].Producer)
		took := led.published[0].FinishedAt.Sub(led.published[0].StartedAt)
		plain := want.FinishedAt.Sub(want.StartedAt)
		require.InDelta(t, plain.Seconds(), took.Seconds(), 2.5*float64(deaths), "its time is that of the work on it")
	})
}

// Without a journal, and with one and no deaths, the same trajectory comes of a ticket, bit for bit.
func TestAJournalChangesNoTrajectory(t *testing.T) {
	for _, mode := range []string{producers.JournalOff, producers.JournalAuto, producers.JournalOn} {
		synctest.Test(t, func(t *testing.T) {
			tool := newCounted("pay", producers.EffectsOutside, time.Second)
			env, ticket := journalEnvironment(t, newSeeded(100*time.Millisecond), 6, tool), journalTicket(secondSeed)
			want := undisturbed(t, ticket, env)
			led, deaths := runKilled(t, ticket, env, mode, nil, func(int) bool { return false })
			require.Zero(t, deaths)
			require.Equal(t, plainTrajectory(want), plainTrajectory(led.published[0]))
			if mode == producers.JournalOff {
				require.Zero(t, led.next)
			} else {
				require.Positive(t, led.next)
			}
		})
	}
}

// The rule of auto: an episode that is shorter than journal.after, and calls no tool with an effect outside, writes nothing. A tool that took
// journal.every had it write.
func TestAShortEpisodeWritesNothing(t *testing.T) {
	for _, takes := range []time.Duration{10 * time.Millisecond, 120 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			env := journalEnvironment(t, newSeeded(time.Millisecond), 4, newCounted("look", producers.EffectsNone, takes))
			led, _ := runKilled(t, journalTicket(secondSeed), env, producers.JournalAuto, nil, func(int) bool { return false })
			require.Len(t, led.published, 1)
			require.Zero(t, led.next)
		})
	}
}

func TestACallThatMayHaveHappenedEndsTheEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := newCounted("pay", producers.EffectsOutside, 30*time.Second)
		env, ticket := journalEnvironment(t, newSeeded(100*time.Millisecond), 5, tool), journalTicket(secondSeed)
		metrics, registry := newJournalMetrics(t)
		led, deaths := runKilled(t, ticket, env, producers.JournalAuto, metrics, func(n int) bool { return n == 1 })
		require.Equal(t, 1, deaths)
		require.Empty(t, led.published)
		require.Len(t, led.closed, 1)
		require.Contains(t, led.closed[0].Why, "does not say that it may be called again")
		require.Positive(t, counter(t, registry, "journal_calls_total", "uncertain"))
		for call, n := range tool.calls {
			require.Equal(t, 1, n, call)
		}
	})
}

// losesOnce is a tool whose first call ends with an error.
type losesOnce struct {
	*counted
	err error
}

func (f *losesOnce) Call(ctx context.Context, c producers.Call) (producers.Observation, error) {
	o, err := f.counted.Call(ctx, c)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		err, f.err = f.err, nil
	}
	return o, err
}

// Reader 11, finding 7: a call that was under way at a tool worker which died was made again, though nobody could say whether it had happened.
func TestACallWhoseAnswerIsLostIsNotMadeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err           error
		made          int
		closed, whole int
	}{
		"it may have happened": {fmt.Errorf("%w: %w: the worker is lost", producers.ErrMayHaveRun, producers.ErrUnavailable), 1, 1, 0},
		"it was refused":       {fmt.Errorf("%w: no worker", producers.ErrUnavailable), 2, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tool := &losesOnce{newCounted("pay", producers.EffectsOutside, time.Second), c.err}
				env := journalEnvironment(t, newSeeded(100*time.Millisecond), 5, tool)
				led := newLedger(newStream())
				led.left = 1
				led.offer(journalTicket(secondSeed), 1)
				p := startWith(t, journalConfig("p1", producers.JournalAuto), producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}})
				<-led.idle
				p.stop()
				require.Len(t, led.closed, c.closed)
				require.Len(t, led.published, c.whole)
				most := 0
				for _, n := range tool.calls {
					most = max(most, n)
				}
				require.Equal(t, c.made, most)
			})
		})
	}
}

// A tool with a session that does not say what it changes ends with its producer.
func TestASessionThatIsLostEndsTheEpisode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := newCounted("server", producers.EffectsLost, time.Second)
		env, ticket := journalEnvironment(t, newSeeded(300*time.Millisecond), 8, tool), journalTicket(secondSeed)
		metrics, registry := newJournalMetrics(t)
		led, _ := runKilled(t, ticket, env, producers.JournalOn, metrics, func(n int) bool { return n == 5 })
		require.Empty(t, led.published)
		require.Len(t, led.closed, 1)
		require.Positive(t, counter(t, registry, "journal_calls_total", "session_lost"))
	})
}

// A tool that answers otherwise when its calls are made again: the episode goes on from there with the new answer.
func TestAToolThatAnswersOtherwiseOnReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tool := newCounted("cell", producers.EffectsSession, time.Second)
		tool.noise = true
		env, ticket := journalEnvironment(t, newSeeded(300*time.Millisecond), 6, tool), journalTicket(secondSeed)
		metrics, registry := newJournalMetrics(t)
		led, deaths := runKilled(t, ticket, env, producers.JournalOn, metrics, func(n int) bool { return n == 5 })
		require.Equal(t, 1, deaths)
		require.Len(t, led.published, 1)
		require.NoError(t, led.published[0].Validate())
		require.Positive(t, counter(t, registry, "journal_calls_total", "differs"))
	})
}

func TestAJournalThatIsOfNoUseBeginsAgain(t *testing.T) {
	key := func(b byte) schemas.Bytes { return slices.Repeat(schemas.Bytes{b}, schemas.JournalKeyBytes) }
	ticket := journalTicket(secondSeed)
	record := func(change func(*schemas.JournalRecord)) []byte {
		r := &schemas.JournalRecord{Run: ticket.Run, Ticket: ticket.ID, Basis: schemas.JournalBasis(ticket), Producer: "p0", Delivery: 1}
		change(r)
		data, err := schemas.Marshal(r)
		require.NoError(t, err)
		return data
	}
	whole := record(func(*schemas.JournalRecord) {})
	build := slices.Clone(whole)
	build[slices.Index(build, byte(schemas.Version))]++
	for name, c := range map[string]struct {
		data []byte
		why  string
	}{
		"cut":            {whole[:len(whole)/2], "unreadable"},
		"another build":  {build, "unreadable"},
		"another ticket": {record(func(r *schemas.JournalRecord) { r.Basis = key(9) }), "foreign"},
		"gap":            {record(func(r *schemas.JournalRecord) { r.Number = 4 }), "gap"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := journalEnvironment(t, newSeeded(300*time.Millisecond), 5, newCounted("look", producers.EffectsNone, time.Second))
				want := undisturbed(t, ticket, env)
				led := newLedger(newStream())
				led.left = 1
				led.records[ticket.ID], led.next = []stored{{7, c.data}}, 7
				led.offer(ticket, 2)
				metrics, registry := newJournalMetrics(t)
				p := startWith(t, journalConfig("p2", producers.JournalOn), producers.Deps{
					Stream: led, Environments: map[string]producers.Environment{"t": env}, Metrics: metrics,
				})
				<-led.idle
				p.stop()
				require.Equal(t, plainTrajectory(want), plainTrajectory(withDurations(led.published[0], want)))
				require.Equal(t, 1.0, counter(t, registry, "journal_begun_again_total", c.why))
			})
		})
	}
}

// An episode that outgrows its journal, or whose journal the broker does not take, goes on without.
func TestAnEpisodeGoesOnWithoutItsJournal(t *testing.T) {
	for why, change := range map[string]func(*ledger, *producers.Config){
		"full":        func(_ *ledger, c *producers.Config) { c.Journal.MaxBytes = 600 },
		"lost":        func(l *ledger, _ *producers.Config) { l.refuse = streams.ErrJournalLost },
		"too_large":   func(l *ledger, _ *producers.Config) { l.refuse = streams.ErrTooLarge },
		"unavailable": func(l *ledger, _ *producers.Config) { l.refuse = streams.ErrDenied },
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ticket := journalTicket(secondSeed)
				env := journalEnvironment(t, newSeeded(300*time.Millisecond), 6, newCounted("pay", producers.EffectsOutside, time.Second))
				want := undisturbed(t, ticket, env)
				led := newLedger(newStream())
				led.left = 1
				led.offer(ticket, 1)
				cfg := journalConfig("p1", producers.JournalOn)
				change(led, &cfg)
				metrics, registry := newJournalMetrics(t)
				p := startWith(t, cfg, producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}, Metrics: metrics})
				<-led.idle
				p.stop()
				require.Equal(t, plainTrajectory(want), plainTrajectory(withDurations(led.published[0], want)))
				require.Equal(t, 1.0, counter(t, registry, "journal_given_up_total", why))
			})
		})
	}
}

// A producer that is stopped hands its episodes over: nothing of them is done again.
func TestADrainedEpisodeGoesOnElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticket := journalTicket(secondSeed)
		policy := newSeeded(250 * time.Millisecond)
		env := journalEnvironment(t, policy, 8, newCounted("look", producers.EffectsNone, time.Second))
		want := undisturbed(t, ticket, env)
		policy.Forget()
		led := newLedger(newStream())
		led.left = 1
		led.offer(ticket, 1)
		cfg := journalConfig("p1", producers.JournalAuto)
		cfg.Grace, cfg.Journal.After = 0, time.Hour
		p := startWith(t, cfg, producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}})
		<-time.After(6100 * time.Millisecond)
		p.stop()
		l := <-led.tickets
		l.delivery = 2 // the broker counts the deliveries, and not only those that failed
		led.tickets <- l
		p = startWith(t, journalConfig("p2", producers.JournalAuto), producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}})
		<-led.idle
		p.stop()
		require.Equal(t, plainTrajectory(want), plainTrajectory(withDurations(led.published[0], want)))
		require.Equal(t, want.ActionTokens(), countSampled(policy), "each token was sampled once")
	})
}

// A producer whose ticket another producer has taken stops at its next record.
func TestAProducerThatWasOvertakenStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticket := journalTicket(secondSeed)
		env := journalEnvironment(t, newSeeded(300*time.Millisecond), 8, newCounted("look", producers.EffectsNone, time.Second))
		led := newLedger(newStream())
		led.left = 1
		old := led.offer(ticket, 1)
		first := startWith(t, journalConfig("p1", producers.JournalOn), producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}})
		<-time.After(3500 * time.Millisecond)
		led.offer(ticket, 2) // the first producer does not hear that its lease has lapsed
		second := startWith(t, journalConfig("p2", producers.JournalOn), producers.Deps{Stream: led, Environments: map[string]producers.Environment{"t": env}})
		<-led.idle
		second.stop()
		first.stop()
		_ = old
		require.Len(t, led.published, 1)
		require.Equal(t, "p2", led.published[0].Producer)
	})
}
