package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weir-rl/weir/internal/lab/harness"
)

// torment makes faults at random instants until the time is up. The seed fixes their order and distances.
func (h *experiment) torment(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Duration)
	defer cancel()
	h.burst(ctx, rand.New(rand.NewPCG(h.cfg.Seed, 2)), len(forgeries())) // every kind once, at least
	for {
		h.mu.Lock()
		wait := time.Duration(h.rng.ExpFloat64() * float64(h.cfg.Every))
		seed := h.rng.Uint64()
		h.mu.Unlock()
		if harness.Wait(ctx, min(wait, 4*h.cfg.Every)) != nil {
			return
		}
		h.fault(ctx, rand.New(rand.NewPCG(seed, 1)))
	}
}

// fault makes one.
func (h *experiment) fault(ctx context.Context, rng *rand.Rand) {
	if h.cfg.Engine != EngineNative && rng.IntN(3) == 0 && h.workerFault(ctx, rng) {
		return
	}
	p := h.roles[rng.IntN(len(h.roles))]
	switch n := rng.IntN(100); {
	case n < 54:
		h.killSome(ctx, rng, downtime, p)
	case n < 60:
		h.killSome(ctx, rng, downtime, h.roles...)
	case n < 68 && len(h.links) > 0:
		h.stall(ctx, rng, stalled, h.roles[1+rng.IntN(len(h.roles)-1)])
	case n < 70 && len(h.links) > 0:
		h.stall(ctx, rng, 2*h.cfg.Lease, h.roles[1+rng.IntN(len(h.roles)-1)])
	case n < 75:
		h.freeze(ctx, rng, p)
	case n < 78:
		h.outage(ctx, rng)
	case n < 80 && h.cfg.Lose:
		h.lose(ctx, rng)
	case n < 82:
		h.count(h.report.Faults, "tickets stolen")
		h.say("a thief took %d tickets and acknowledged them", h.stranger.steal(ctx, 1+rng.IntN(stolen)))
	case n < 84:
		h.count(h.report.Faults, "markers")
		h.say("%d markers that close nothing", h.stranger.mark(ctx, markers))
	case n < 88 && h.cfg.Fill:
		h.fill(ctx, rng)
	default:
		h.burst(ctx, rng, 1+rng.IntN(20))
	}
}

// fill fills the trajectory stream, and every other time the ticket stream at once with it.
func (h *experiment) fill(ctx context.Context, rng *rand.Rand) {
	var tickets int
	var both sync.WaitGroup
	if rng.IntN(2) == 0 {
		own := rand.New(rand.NewPCG(rng.Uint64(), 4))
		both.Go(func() { tickets = h.stranger.fillTickets(ctx, own) })
	}
	n, full := h.stranger.fill(ctx, rng)
	both.Wait()
	if tickets > 0 {
		h.count(h.report.Faults, "tickets filled")
		h.say("the ticket stream was filled with %d tickets of junk", tickets)
	}
	if full {
		h.count(h.report.Faults, "stream filled")
		h.say("the trajectory stream is full, with %d messages of junk", n)
	}
}

// outage takes the broker away for longer than a lease: it is killed, or stands still.
func (h *experiment) outage(ctx context.Context, rng *rand.Rand) {
	away := h.cfg.Lease + time.Duration(rng.Int64N(int64(h.cfg.Lease)))
	broker := h.roles[0]
	h.count(h.report.Faults, "outage")
	h.say("the broker is away for %s", away.Round(time.Second))
	if rng.IntN(2) == 0 {
		broker.signal(syscall.SIGSTOP)
		_ = harness.Wait(ctx, away) // then it goes on sooner
		broker.signal(syscall.SIGCONT)
		return
	}
	if broker.kill() {
		h.count(h.report.Kills, broker.name)
		_ = harness.Wait(ctx, away) // then it is started sooner
		h.restart(broker)
	}
}

// lose has the broker's store come back empty or shorter.
func (h *experiment) lose(ctx context.Context, rng *rand.Rand) {
	lose := h.loseStore
	if rng.IntN(2) == 0 {
		lose = h.restoreStore
	}
	if err := lose(context.WithoutCancel(ctx), rng); err != nil {
		h.trouble("%v", err)
	}
}

// burst sends strangers' messages of that number of kinds.
func (h *experiment) burst(ctx context.Context, rng *rand.Rand, kinds int) {
	h.stranger.send(ctx, rng, kinds)
	h.stranger.shout(ctx, rng)
	h.count(h.report.Faults, "hostile burst")
}

// killSome kills roles at once and starts them again after a while.
func (h *experiment) killSome(ctx context.Context, rng *rand.Rand, away time.Duration, roles ...*process) {
	roles = slices.Clone(roles)
	rng.Shuffle(len(roles), func(i, j int) { roles[i], roles[j] = roles[j], roles[i] })
	var dead []*process
	for _, p := range roles {
		if p.kill() {
			h.count(h.report.Kills, p.name)
			h.say("kill -9 %s", p.name)
			dead = append(dead, p)
		}
	}
	for _, p := range dead {
		_ = harness.Wait(ctx, time.Duration(rng.Int64N(int64(away)))) // then it is started sooner
		h.restart(p)
	}
}

// The longest that a role stays away, is frozen, or has its link stalled.
const (
	downtime = time.Second
	frozen   = 4 * time.Second
	stalled  = 6 * time.Second
)

// The most tickets that a thief takes at once, and how many markers a stranger sends: more than the trainer may hold unread.
const (
	stolen  = 70
	markers = 1100
)

// freeze stops a role in its tracks and lets it go on, as a machine that swaps or a VM that is moved.
func (h *experiment) freeze(ctx context.Context, rng *rand.Rand, p *process) {
	h.count(h.report.Faults, "freeze "+p.name)
	p.signal(syscall.SIGSTOP)
	_ = harness.Wait(ctx, time.Duration(rng.Int64N(int64(frozen)))) // then it goes on sooner
	p.signal(syscall.SIGCONT)
}

// stall holds a role's link back.
func (h *experiment) stall(ctx context.Context, rng *rand.Rand, longest time.Duration, p *process) {
	h.count(h.report.Faults, "stall "+p.name)
	h.links[p.name].stall(ctx, time.Duration(rng.Int64N(int64(longest))))
}

// killInTurn kills each named role once, with a step between.
func (h *experiment) killInTurn(ctx context.Context) {
	for _, kill := range h.cfg.Kills {
		name, stage, _ := strings.Cut(kill, "@")
		if strings.Contains(name, "/") {
			if !h.killNamed(ctx, name) || !h.advance(ctx, "after the death of "+kill, 1) {
				return
			}
			continue
		}
		at := slices.IndexFunc(h.roles, func(p *process) bool { return p.name == name })
		if at < 0 {
			h.trouble("no role is named %s", name)
			return
		}
		p := h.roles[at]
		if !p.kill() {
			h.trouble("%s had ended before it could be killed", name)
			return
		}
		h.count(h.report.Kills, name)
		h.say("kill -9 %s", name)
		if stage == "" {
			h.restart(p)
		} else if err := h.killAt(ctx, p, stage); err != nil {
			h.trouble("%v", err)
			return
		}
		if !h.advance(ctx, "after the death of "+kill, 1) {
			return
		}
	}
}

// killAt starts a role that ends itself after a stage, and waits for that end.
func (h *experiment) killAt(ctx context.Context, p *process, stage string) error {
	if err := p.start(stage); err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, h.cfg.Patience)
	defer cancel()
	select {
	case <-p.ended():
		return nil
	case <-patience.Done():
		return fmt.Errorf("%s did not come to the end of %s", p.name, stage)
	}
}
