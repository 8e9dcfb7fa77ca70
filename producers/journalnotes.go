package producers

import (
	"context"
	"errors"
	"time"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

// SecretKeeper is a Stream whose producers share a secret: see [streams.Run.AgentSecret].
type SecretKeeper interface {
	Stream
	AgentSecret(ctx context.Context) ([]byte, error)
	// JournalGoesOn reports whether the episode of a journal may go on somewhere: see [streams.Run.JournalGoesOn].
	JournalGoesOn(ctx context.Context, journal string) (bool, error)
}

// Lasting is an Agent whose programs may live on while their producer dies, and go on with their episodes at another producer. Such an
// agent keeps notes of an episode in the episode's journal.
type Lasting interface {
	Agent
	// Stay has the agent be reachable from now on, and not from its first episode on. The run's producers share the secret; goesOn reports
	// of an episode, by its JournalName, whether it may go on at a producer. It is called before the first episode, again from time to time,
	// and only where episodes have journals.
	Stay(ctx context.Context, secret []byte, goesOn func(ctx context.Context, journal string) (bool, error)) error
}

// HasJournal reports whether the episode's moves are written down, so that another producer can go on with it.
func (e *Episode) HasJournal() bool { return e.journal != nil }

// JournalName is the name of the episode's journal within the run.
func (e *Episode) JournalName() string { return streams.JournalName(e.ticket) }

// Notes are the notes of the episode's agent at earlier producers, oldest first; nil is nothing. The caller must not change them.
func (e *Episode) Notes() [][]byte {
	if e.journal == nil {
		return nil
	}
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	return e.journal.past.notes
}

// Note keeps text for the producer that goes on with the episode. A note is never stored before the tokens that the policy has sampled
// until then. Without a journal it does nothing.
func (e *Episode) Note(text []byte) {
	j := e.journal
	if j == nil || len(text) == 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.over {
		return
	}
	note := schemas.JournalNote{Text: text}
	j.pending.Notes = append(j.pending.Notes, note)
	j.waiting += note.Size()
	j.scheduleFlush()
}

// StoreNotes returns when all that the episode has done is stored, or when no producer can go on with it after this producer, since its
// journal is beyond a bound: the stored part is withdrawn then. It fails where another producer has the episode, or ctx ends.
func (e *Episode) StoreNotes(ctx context.Context) error {
	j := e.journal
	if j == nil {
		return nil
	}
	if err := j.flush(ctx); err != nil {
		return err
	}
	j.mu.Lock()
	shutOut, withdraw := j.shutOut, j.givenUp && !j.withdrawn
	j.withdrawn = j.withdrawn || withdraw
	j.mu.Unlock()
	switch {
	case shutOut:
		return errLeaseLost
	case withdraw:
		return j.withdraw(ctx)
	}
	return nil
}

// withdraw empties the stored part of an episode that goes on without its journal: a later producer would take up a part of it as all.
func (j *journal) withdraw(ctx context.Context) error {
	select {
	case <-j.writing:
		defer func() { j.writing <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	j.mu.Lock()
	record, forbidden := j.newRecord(), j.forbidden
	j.mu.Unlock()
	if forbidden || !j.store.Written() {
		return nil
	}
	record.Number = 0
	err := j.store.Replace(ctx, record)
	switch overtaken, _ := errors.AsType[*streams.OvertakenError](err); {
	case overtaken != nil && j.isBehind(overtaken.Newest):
		return errLeaseLost
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return nil // a broker that has lost the journal, or refuses it, has nothing to take up
}

// takeNotes moves notes that wait into a record that has so many bytes, as many as it holds, and returns their bytes. first is whether the
// record is empty.
func takeNotes(record, pending *schemas.JournalRecord, size int, first bool) (taken int) {
	n := 0
	for n < len(pending.Notes) && (first && n == 0 || size+taken+pending.Notes[n].Size() <= recordBytes) {
		taken += pending.Notes[n].Size()
		n++
	}
	record.Notes, pending.Notes = pending.Notes[:n:n], pending.Notes[n:]
	return taken
}

// secretRenewed is how often the agents' secret is read again, so that it is kept.
const secretRenewed = time.Hour

// stayReachable has the agents whose programs may outlive the producer be reachable, where episodes have journals.
func (w *worker) stayReachable(ctx context.Context) {
	keeper, ok := w.stream.(SecretKeeper)
	if !ok || w.cfg.Journal.Mode == JournalOff || w.cfg.Journal.Mode == "" {
		return
	}
	for task, env := range w.envs {
		agent, ok := env.Agent.(Lasting)
		if !ok {
			continue
		}
		secret, err := keeper.AgentSecret(ctx)
		if err == nil {
			err = agent.Stay(ctx, secret, keeper.JournalGoesOn)
		}
		if err != nil && ctx.Err() == nil {
			w.log.Warn("agents outside are not found again where their producer dies", "task", task, "err", err)
		}
	}
}

// keepReachable is stayReachable again and again, until ctx ends.
func (w *worker) keepReachable(ctx context.Context) {
	ticks := time.NewTicker(secretRenewed)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
			w.stayReachable(ctx)
		case <-ctx.Done():
			return
		}
	}
}
