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

// injectFaults makes faults at random instants until the time is up. The seed fixes their order and distances.
func (h *experiment) injectFaults(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Duration)
	defer cancel()
	h.sendForgeries(ctx, rand.New(rand.NewPCG(h.cfg.Seed, 2)), len(forgeryKinds())) // every kind once, at least
	for {
		h.mu.Lock()
		wait := time.Duration(h.rng.ExpFloat64() * float64(h.cfg.Every))
		seed := h.rng.Uint64()
		h.mu.Unlock()
		if harness.Wait(ctx, min(wait, 4*h.cfg.Every)) != nil {
			return
		}
		h.injectFault(ctx, rand.New(rand.NewPCG(seed, 1)))
	}
}

// injectFault makes a fault.
func (h *experiment) injectFault(ctx context.Context, rng *rand.Rand) {
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
		h.stallRole(ctx, rng, stalled, h.roles[1+rng.IntN(len(h.roles)-1)])
	case n < 70 && len(h.links) > 0:
		h.stallRole(ctx, rng, 2*h.cfg.Lease, h.roles[1+rng.IntN(len(h.roles)-1)])
	case n < 75:
		h.freezeRole(ctx, rng, p)
	case n < 78:
		h.injectOutage(ctx, rng)
	case n < 80 && h.cfg.Lose:
		h.loseSomeStore(ctx, rng)
	case n < 82:
		h.countEvent(h.report.Faults, "tickets stolen")
		h.printLine("a thief took %d tickets and acknowledged them", h.stranger.stealTickets(ctx, 1+rng.IntN(stolen)))
	case n < 84:
		h.countEvent(h.report.Faults, "markers")
		h.printLine("%d markers that close nothing", h.stranger.sendMarkers(ctx, markers))
	case n < 88 && h.cfg.Fill:
		h.fillStreams(ctx, rng)
	default:
		h.sendForgeries(ctx, rng, 1+rng.IntN(20))
	}
}

// fillStreams fills the trajectory stream, and every other time the ticket stream at once with it.
func (h *experiment) fillStreams(ctx context.Context, rng *rand.Rand) {
	var tickets int
	var both sync.WaitGroup
	if rng.IntN(2) == 0 {
		own := rand.New(rand.NewPCG(rng.Uint64(), 4))
		both.Go(func() { tickets = h.stranger.fillTickets(ctx, own) })
	}
	n, full := h.stranger.fillTrajectories(ctx, rng)
	both.Wait()
	if tickets > 0 {
		h.countEvent(h.report.Faults, "tickets filled")
		h.printLine("the ticket stream was filled with %d tickets of junk", tickets)
	}
	if full {
		h.countEvent(h.report.Faults, "stream filled")
		h.printLine("the trajectory stream is full, with %d messages of junk", n)
	}
}

// injectOutage takes the broker away for longer than a lease: it is killed, or stands still.
func (h *experiment) injectOutage(ctx context.Context, rng *rand.Rand) {
	away := h.cfg.Lease + time.Duration(rng.Int64N(int64(h.cfg.Lease)))
	broker := h.roles[0]
	h.countEvent(h.report.Faults, "outage")
	h.printLine("the broker is away for %s", away.Round(time.Second))
	if rng.IntN(2) == 0 {
		broker.sendSignal(syscall.SIGSTOP)
		_ = harness.Wait(ctx, away) // then it goes on sooner
		broker.sendSignal(syscall.SIGCONT)
		return
	}
	if broker.killChild() {
		h.countEvent(h.report.Kills, broker.name)
		_ = harness.Wait(ctx, away) // then it is started sooner
		h.restartRole(broker)
	}
}

// loseSomeStore has the broker's store come back empty or shorter.
func (h *experiment) loseSomeStore(ctx context.Context, rng *rand.Rand) {
	lose := h.loseStore
	if rng.IntN(2) == 0 {
		lose = h.restoreStore
	}
	if err := lose(context.WithoutCancel(ctx), rng); err != nil {
		h.reportTrouble("%v", err)
	}
}

// sendForgeries sends strangers' messages of that number of kinds.
func (h *experiment) sendForgeries(ctx context.Context, rng *rand.Rand, kinds int) {
	h.stranger.sendKinds(ctx, rng, kinds)
	h.stranger.breakProtocol(ctx, rng)
	h.countEvent(h.report.Faults, "hostile burst")
}

// killSome kills roles at once and starts them again after a while.
func (h *experiment) killSome(ctx context.Context, rng *rand.Rand, away time.Duration, roles ...*process) {
	roles = slices.Clone(roles)
	rng.Shuffle(len(roles), func(i, j int) { roles[i], roles[j] = roles[j], roles[i] })
	var dead []*process
	for _, p := range roles {
		if p.killChild() {
			h.countEvent(h.report.Kills, p.name)
			h.printLine("kill -9 %s", p.name)
			dead = append(dead, p)
		}
	}
	for _, p := range dead {
		_ = harness.Wait(ctx, time.Duration(rng.Int64N(int64(away)))) // then it is started sooner
		h.restartRole(p)
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

// freezeRole stops a role in its tracks and lets it go on, as a machine that swaps or a VM that is moved.
func (h *experiment) freezeRole(ctx context.Context, rng *rand.Rand, p *process) {
	h.countEvent(h.report.Faults, "freeze "+p.name)
	p.sendSignal(syscall.SIGSTOP)
	_ = harness.Wait(ctx, time.Duration(rng.Int64N(int64(frozen)))) // then it goes on sooner
	p.sendSignal(syscall.SIGCONT)
}

// stallRole holds a role's link back.
func (h *experiment) stallRole(ctx context.Context, rng *rand.Rand, longest time.Duration, p *process) {
	h.countEvent(h.report.Faults, "stall "+p.name)
	h.links[p.name].stallFor(ctx, time.Duration(rng.Int64N(int64(longest))))
}

// killInTurn kills each named role once, with a step between.
func (h *experiment) killInTurn(ctx context.Context) {
	for _, kill := range h.cfg.Kills {
		name, stage, _ := strings.Cut(kill, "@")
		if strings.Contains(name, "/") {
			if !h.killNamed(ctx, name) || !h.awaitSteps(ctx, "after the death of "+kill, 1) {
				return
			}
			continue
		}
		at := slices.IndexFunc(h.roles, func(p *process) bool { return p.name == name })
		if at < 0 {
			h.reportTrouble("no role is named %s", name)
			return
		}
		p := h.roles[at]
		if !p.killChild() {
			h.reportTrouble("%s had ended before it could be killed", name)
			return
		}
		h.countEvent(h.report.Kills, name)
		h.printLine("kill -9 %s", name)
		if stage == "" {
			h.restartRole(p)
		} else if err := h.killAt(ctx, p, stage); err != nil {
			h.reportTrouble("%v", err)
			return
		}
		if !h.awaitSteps(ctx, "after the death of "+kill, 1) {
			return
		}
	}
}

// killAt starts a role that ends itself after a stage, and waits for that end.
func (h *experiment) killAt(ctx context.Context, p *process, stage string) error {
	if err := p.startChild(stage); err != nil {
		return err
	}
	patience, cancel := context.WithTimeout(ctx, h.cfg.Patience)
	defer cancel()
	select {
	case <-p.endedChannel():
		return nil
	case <-patience.Done():
		return fmt.Errorf("%s did not come to the end of %s", p.name, stage)
	}
}
