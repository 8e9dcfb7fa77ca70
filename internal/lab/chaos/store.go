package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// loseStore kills the broker and brings it back with an empty store.
func (h *experiment) loseStore(ctx context.Context, rng *rand.Rand) error {
	return h.withoutBroker(ctx, rng, "store lost", func() error {
		if err := h.rememberStore(ctx, 0); err != nil {
			return err
		}
		return os.RemoveAll(h.cfg.Store)
	})
}

// restoreStore kills the broker, copies its store, lets the run go on for a while, kills the broker again and brings it back
// with the copy: every stream ends earlier than its readers have read.
func (h *experiment) restoreStore(ctx context.Context, rng *rand.Rand) error {
	copied := filepath.Join(h.cfg.Dir, "copy-of-the-store")
	if err := os.RemoveAll(copied); err != nil {
		return err
	}
	err := h.withoutBroker(ctx, rng, "store copied", func() error { return os.CopyFS(copied, os.DirFS(h.cfg.Store)) })
	if err != nil {
		return err
	}
	_ = harness.Wait(ctx, h.cfg.Lease/2+time.Duration(rng.Int64N(int64(h.cfg.Lease)))) // then the copy is put back sooner
	return h.withoutBroker(ctx, rng, "store restored", func() error {
		last, err := h.lastOf(ctx, copied)
		if err != nil {
			return err
		}
		if err := h.rememberStore(ctx, last); err != nil {
			return err
		}
		if err := os.RemoveAll(h.cfg.Store); err != nil {
			return err
		}
		return os.Rename(copied, h.cfg.Store)
	})
}

// withoutBroker kills the process that the broker is in, does something to its store, and starts the process again.
func (h *experiment) withoutBroker(ctx context.Context, rng *rand.Rand, fault string, do func() error) error {
	broker := h.roles[0]
	if !broker.killChild() {
		return nil // it has just ended by itself, and is being started
	}
	h.countEvent(h.report.Kills, broker.name)
	h.countEvent(h.report.Faults, fault)
	h.printLine("%s, after kill -9 %s", fault, broker.name)
	err := do()
	_ = harness.Wait(ctx, time.Duration(rng.Int64N(int64(downtime)))) // then it is started sooner
	h.restartRole(broker)
	if err != nil {
		return fmt.Errorf("%s: %w", fault, err)
	}
	return nil
}

// rememberStore has the witness write down the store's messages before the store is lost. keeps is the sequence up to which the
// trajectory stream will have its messages when it is back.
func (h *experiment) rememberStore(ctx context.Context, keeps uint64) error {
	return h.openRestingStore(ctx, h.cfg.Store, func(js jetstream.JetStream, run *streams.Run) error {
		info, err := h.witness.readAll(ctx, js)
		if err != nil {
			return err
		}
		refused, err := h.refusedOf(ctx, run, info)
		if err != nil {
			return err
		}
		h.refused = append(h.refused, refused...)
		h.witness.markLost(info, keeps)
		h.storeLost = append(h.storeLost, time.Now())
		return nil
	})
}

// lastOf is where the trajectory stream of a store ends.
func (h *experiment) lastOf(ctx context.Context, store string) (last uint64, err error) {
	err = h.openRestingStore(ctx, store, func(js jetstream.JetStream, _ *streams.Run) error {
		stream, err := js.Stream(ctx, streamName(h.cfg.Run))
		if err == nil {
			last = stream.CachedInfo().State.LastSeq
		}
		return err
	})
	return last, err
}

// openRestingStore opens a store that no broker uses, for this process alone.
func (h *experiment) openRestingStore(ctx context.Context, store string, look func(jetstream.JetStream, *streams.Run) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	config := broker.DefaultConfig()
	config.StoreDir, config.Listen = store, ""
	broker, err := broker.Start(ctx, config, nil)
	if err != nil {
		return fmt.Errorf("open the store at rest: %w", err)
	}
	defer broker.Shutdown()
	conn, err := streams.Connect(ctx, streams.ConnectConfig{Broker: broker, Name: "auditor"}, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn.NATS())
	if err != nil {
		return err
	}
	run, err := conn.Attach(ctx, h.cfg.Run)
	if errors.Is(err, streams.ErrNoRun) {
		return nil // the broker was killed before it had made the streams
	}
	if err != nil {
		return err
	}
	return look(js, run)
}

// refusedOf lists the rejected stream's messages of the present trajectory stream.
func (h *experiment) refusedOf(ctx context.Context, run *streams.Run, info *jetstream.StreamInfo) (out []audit.Refused, err error) {
	first := true
	for m, err := range run.Rejected(ctx) {
		if err != nil {
			return nil, err
		}
		if first && m.Sequence > 1 {
			return nil, fmt.Errorf("%d refused messages have left the rejected stream, so they cannot be accounted for: raise streams.rejected_max_bytes", m.Sequence-1)
		}
		first = false
		h.countEvent(h.report.RejectedBy, string(m.Reason))
		if m.Stream == info.Config.Name {
			out = append(out, audit.Refused{Sequence: m.Original, Created: info.Created, Reason: string(m.Reason)})
		}
	}
	return out, nil
}
