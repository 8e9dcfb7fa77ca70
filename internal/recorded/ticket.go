package recorded

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// The keys of a prompt's Meta that name the trajectories which answer its tickets.
const (
	metaGroup    = "recorded_group"
	metaSamples  = "recorded_samples"  // sample@sequence, in the order of the tickets
	metaBaseline = "recorded_baseline" // of the ticket for a greedy rollout
	metaPass     = "recorded_pass"     // from 1
)

// nameOf names a sample among the run's messages.
func (g *group) nameOf(s sample) messages.Name {
	return messages.Name{ID: g.id + "-" + strconv.Itoa(s.number), Sequence: s.sequence}
}

// Prompt is the prompt at a cursor below End: that of a recorded group. Its tickets are answered by the trajectories that Meta names.
func (r *Recording) Prompt(cursor uint64) schemas.Prompt {
	n := uint64(len(r.order))
	g := r.order[cursor%n]
	var samples []string
	for _, s := range g.samples {
		samples = append(samples, s.text())
	}
	p := schemas.Prompt{
		ID: g.prompt, Source: g.source, Text: fmt.Sprintf("group %s of run %s", g.id, r.cfg.Run),
		Meta: map[string]string{metaGroup: g.id, metaSamples: strings.Join(samples, " "), metaPass: strconv.FormatUint(cursor/n+1, 10)},
	}
	if g.baseline != nil {
		p.Meta[metaBaseline] = g.baseline.text()
	}
	return p
}

// End is the number of groups in all passes.
func (r *Recording) End() uint64 { return uint64(len(r.order)) * uint64(r.cfg.Passes) }

func (s sample) text() string { return fmt.Sprintf("%d@%d", s.number, s.sequence) }

// parseSample is the inverse of sample.text.
func parseSample(text string) (s sample, ok bool) {
	number, sequence, _ := strings.Cut(text, "@")
	var err, other error
	s.number, err = strconv.Atoi(number)
	s.sequence, other = strconv.ParseUint(sequence, 10, 64)
	return s, err == nil && other == nil && s.number >= 0
}

// answerOf names the trajectory that answers a ticket: the n-th sample of a group the n-th that was recorded, whatever its number was.
func answerOf(t *schemas.Ticket) (messages.Name, error) {
	meta := t.Prompt.Meta
	g := &group{id: meta[metaGroup]}
	all := strings.Fields(meta[metaSamples])
	text := ""
	switch {
	case g.id == "":
		return messages.Name{}, fmt.Errorf("%w: ticket %s names no recorded group", producers.ErrNotRecorded, t.ID)
	case t.Sampling.Temperature == 0:
		text = meta[metaBaseline]
	case t.Sample < len(all):
		text = all[t.Sample]
	}
	s, ok := parseSample(text)
	if !ok {
		return messages.Name{}, fmt.Errorf("%w: group %s has %d samples", producers.ErrNotRecorded, g.id, len(all))
	}
	return g.nameOf(s), nil
}

// Recall implements producers.Recording.
func (r *Recording) Recall(_ context.Context, ticket *schemas.Ticket) (*schemas.Trajectory, error) {
	name, err := answerOf(ticket)
	if err != nil {
		return nil, err
	}
	m, err := r.lookup.Read(name)
	if damage := (*messages.Damage)(nil); errors.As(err, &damage) || errors.Is(err, messages.ErrNotKept) {
		why := producers.ErrStops
		if r.cfg.OnDamage == DamageSkips {
			why = producers.ErrNotRecorded
		}
		return nil, fmt.Errorf("%w: the archive of run %s: %w", why, r.cfg.Run, err)
	}
	if err != nil {
		return nil, err
	}
	t := new(schemas.Trajectory)
	if err := schemas.Unmarshal(m.Data, t); err != nil {
		return nil, fmt.Errorf("%w: trajectory %s of run %s: %w", producers.ErrNotRecorded, name.ID, r.cfg.Run, err)
	}
	if r.rewards != nil && !r.rewards.replace(name, t) {
		return nil, fmt.Errorf("%w: trajectory %s of run %s has no reward in %s", producers.ErrNotRecorded, name.ID, r.cfg.Run, r.cfg.Rewards)
	}
	return t, nil
}
