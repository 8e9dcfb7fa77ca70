package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// grace is how long a role may take to end in order.
const grace = 40 * time.Second

// finishRun stops the roles in order and accounts for everything.
func (h *experiment) finishRun(ctx context.Context) error {
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	h.livingWorkers()
	broker := h.roles[0]
	for _, p := range slices.Backward(h.roles) {
		if p.name == roleBroker {
			break
		}
		if err := p.stopChild(ctx, grace); err != nil {
			h.reportTrouble("%v", err)
		}
	}
	h.leftOver(ctx)
	if h.cfg.Mode == ModeEmbedded {
		// The streams are read through the same broker, alone.
		broker = h.newProcess(roleBroker, "broker")
		h.roles = append(h.roles, broker)
		if err := broker.startChild(""); err != nil {
			return err
		}
	}
	evidence, err := h.gatherEvidence(ctx)
	if err != nil {
		return err
	}
	if err := broker.stopChild(ctx, grace); err != nil {
		h.reportTrouble("%v", err)
	}
	h.report.Audit, err = audit.Read(checkpoint.Records(h.cfg.Checkpoints), audit.Bounds{Eta: h.cfg.Eta, Reuse: h.cfg.Reuse}, evidence)
	if err != nil {
		return err
	}
	h.report.Steps = h.report.Audit.Steps
	h.judgeStrangers()
	return errors.Join(h.judgeArchive(), h.judgeCalls(), h.measureEffective())
}

// gatherEvidence gathers the messages that the witness saw, that were refused, and that a trainer would read again.
func (h *experiment) gatherEvidence(ctx context.Context) (*audit.Witness, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	info, err := h.witness.catchUp(ctx)
	if err != nil {
		return nil, err
	}
	w := &audit.Witness{Created: info.Created, First: info.State.FirstSeq}
	w.Seen, w.Gone = h.witness.copyRecords()
	refused, err := h.readRejected(ctx, info)
	if err != nil {
		return nil, err
	}
	w.Refused = append(h.refused, refused...)
	steps, err := checkpoint.Steps(h.cfg.Checkpoints)
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		c, err := checkpoint.Read(checkpoint.StepDir(h.cfg.Checkpoints, step), step)
		if err != nil {
			h.printLine("checkpoint of step %d is passed over: %v", step, err)
			continue
		}
		if !c.State.Created.Equal(info.Created) {
			return nil, fmt.Errorf("the checkpoint of step %d is of another stream than the broker's", step)
		}
		w.Ledger = c.State.Ledger
		break
	}
	return w, nil
}

func (h *experiment) readRejected(ctx context.Context, info *jetstream.StreamInfo) ([]audit.Refused, error) {
	conn, err := streams.Connect(ctx, streams.ConnectConfig{URL: "nats://" + h.cfg.Broker, Name: "auditor"}, nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	run, err := conn.Attach(ctx, h.cfg.Run)
	if err != nil {
		return nil, err
	}
	return h.refusedOf(ctx, run, info)
}

// judgeStrangers finds strangers' messages that were trained on.
func (h *experiment) judgeStrangers() {
	s := h.stranger
	s.mu.Lock()
	defer s.mu.Unlock()
	h.report.Hostile, h.report.HostileStored = s.sent, 0
	for _, all := range s.stored {
		h.report.HostileStored += len(all)
	}
	h.report.BrokerRefused, h.report.BrokerKnew = s.refused, s.known
	created := h.listStreams()
	for r, err := range checkpoint.Records(h.cfg.Checkpoints) {
		if r == nil {
			h.printLine("not looked at for strangers' messages: %v", err)
			continue
		}
		if r.Use > 1 {
			continue // the first use is judged
		}
		var next time.Time
		if i := slices.IndexFunc(created, r.Created.Before); i >= 0 {
			next = created[i]
		}
		for _, g := range r.Groups {
			for _, m := range g.Used() {
				kind := s.kindAt(m.Sequence, r.Created, next)
				if kind == "" && h.witness.wasStranger(r.Created, m.Sequence, m.ID) {
					kind = "unconfirmed"
				}
				if kind != "" && !h.witness.wasSent(r.Created, m.Sequence, m.ID) {
					h.report.HostileTrained = append(h.report.HostileTrained,
						fmt.Sprintf("%s as %s, sequence %d, in step %d", kind, m.ID, m.Sequence, r.Step))
				}
			}
		}
	}
}

// listStreams lists when the trajectory streams that there were, one after the other, were created, by the record and by the witness.
func (h *experiment) listStreams() (created []time.Time) {
	for r, err := range checkpoint.Records(h.cfg.Checkpoints) {
		if err != nil && r == nil {
			continue // judgeStrangers says so
		}
		created = append(created, r.Created)
	}
	seen, _ := h.witness.copyRecords()
	for _, s := range seen {
		created = append(created, s.Created)
	}
	slices.SortFunc(created, time.Time.Compare)
	return slices.CompactFunc(created, time.Time.Equal)
}
