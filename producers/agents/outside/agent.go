package outside

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents"
	"github.com/weir-rl/weir/producers/gateway"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/schemas"
)

// agentPlace is the place of an episode's agent among few: a sandbox's for its program, or one of the calls of its service.
type agentPlace interface{ Leave() }

// drive has an agent work on an episode until it is done: its return value is its outcome, unless the agent posted an outcome before. With
// place nil it takes none.
type drive func(ctx context.Context, offer gateway.Offer, place agentPlace) (gateway.Outcome, error)

// agent runs episodes by a program outside.
type agent struct {
	server  *gateway.Server
	speaker gateway.Speaker
	idle    time.Duration
	drive   drive
	log     *slog.Logger
	// awaited says that the program comes for episodes by itself.
	awaited bool
	// addressed says that the programs know the gateway's address beforehand.
	addressed bool
	// lasts says that the program may live on while its producer dies.
	lasts bool
	// apart reports whether the programs have a network of their own, and reach the gateway there alone; nil is no.
	apart func(ctx context.Context) (bool, error)
	// takePlace waits for a place for an episode's agent, which waitsFor names; nil where agents take none.
	takePlace func(ctx context.Context) (agentPlace, error)
	waitsFor  string
	// pooled says that tools and rewards take their places from where the agents have theirs: all episodes could wait for each other.
	pooled bool
}

// Awaited reports whether the program comes for episodes by itself.
func (a *agent) Awaited() bool { return a.awaited }

// Addressed reports whether the programs know the gateway's address beforehand.
func (a *agent) Addressed() bool { return a.addressed }

// Stay has a program that lives on while its producer dies find its episode again.
func (a *agent) Stay(_ context.Context, secret []byte, goesOn func(context.Context, string) (bool, error)) error {
	if !a.lasts {
		return nil
	}
	return a.server.Stay(secret, goesOn)
}

// openAgent makes the agent of a type.
func openAgent(ctx context.Context, o agents.Opening, cfg gateway.Config, key string) (*agent, error) {
	speaker, err := speakerOf(o, cfg)
	if err != nil {
		return nil, err
	}
	return &agent{
		server: gateway.NewServer(ctx, cfg, key, o.Log), speaker: speaker, idle: cfg.Idle, log: o.Log,
		addressed: key != "" || cfg.PublicURL != "",
	}, nil
}

// speakerOf speaks by the chat template of the model folder where there is a template, else in running text.
func speakerOf(o agents.Opening, cfg gateway.Config) (gateway.Speaker, error) {
	c, err := o.Chat(nil)
	if err == nil {
		return gateway.Templated(c), nil
	}
	if len(cfg.Stop) == 0 {
		return nil, fmt.Errorf("%w; for a model without a chat template name the tokens that end a turn, by stop", err)
	}
	return gateway.Running(o.Tokenizer, cfg.Stop)
}

// errDone ends the work for an episode that has its outcome.
var errDone = errors.New("the agent has posted its outcome")

// Run drives an episode: the program asks the policy, and posts its outcome or ends.
func (a *agent) Run(ctx context.Context, e *producers.Episode) error {
	place, err := a.awaitPlace(ctx, e)
	if err != nil {
		return err
	}
	if place != nil {
		defer place.Leave() // it is free when the program has ended
		if a.pooled {
			defer e.NotePlace()()
		}
	}
	session, address, err := a.openSession(ctx, e)
	if err != nil {
		return fmt.Errorf("%w: %w", producers.ErrUnavailable, err)
	}
	defer a.server.Close(session)
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	returned, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		outcome, err := a.drive(working, newOffer(e, address), place)
		if err == nil && working.Err() == nil {
			_ = session.Finish(outcome) // it may have posted its outcome itself
		}
		returned <- err
	}()
	outcome, err := a.awaitOutcome(ctx, session, returned)
	stop(errDone)
	if ctx.Err() == nil && session.Failed() == nil && endedItself(session, err) {
		a.log.Debug("the agent failed, and its episode has no answer", "episode", e.ID(), "limit", session.Limit(), "err", err)
		outcome, err = gateway.Outcome{}, nil
	}
	limit := session.Limit()
	session.Close() // the end of a program in a sandbox waits for its requests
	a.awaitEnd(e, ended)
	switch {
	case err == nil:
		finishEpisode(e, limit, outcome)
	case errors.Is(err, gateway.ErrUnclaimed):
		return fmt.Errorf("%w: %w: %w", producers.ErrUnavailable, producers.ErrNotBegun, err)
	}
	return err
}

// awaitPlace returns a place for the episode's program, nil where that takes none. The wait for the programs of other episodes is no
// part of the episode's time.
func (a *agent) awaitPlace(ctx context.Context, e *producers.Episode) (agentPlace, error) {
	if a.takePlace == nil {
		return nil, nil
	}
	defer e.HoldTime(a.waitsFor)()
	place, err := a.takePlace(ctx)
	switch {
	case ctx.Err() != nil:
		if place != nil {
			place.Leave()
		}
		return nil, context.Cause(ctx)
	case errors.Is(err, producers.ErrNoRoom):
		return nil, fmt.Errorf("%w: start the agent's program: %w", producers.ErrNotBegun, err)
	case err != nil:
		return nil, fmt.Errorf("%w: start the agent's program: %w", producers.ErrUnavailable, err)
	}
	return place, nil
}

// endWithin bounds the wait for a program's end: the system may not let go of a program that was killed.
const endWithin = 30 * time.Second

// awaitEnd waits until an episode's program has ended, so that its workspace is whole when the reward reads it.
func (a *agent) awaitEnd(e *producers.Episode, ended <-chan struct{}) {
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		a.log.Warn("the agent's program has not ended, and its episode is scored without its end", "episode", e.ID(), "after", endWithin)
	}
}

// endedItself reports whether an agent's failure ends its episode without an answer, and is none of the machinery: what the policy said may
// be why. Clients raise an error where a limit refuses a request, and few agents catch it: the service then answers 500 or 503. A
// service that cannot read the policy's text often answers 400 or 422.
func endedItself(session *gateway.Session, err error) bool {
	if refused, ok := errors.AsType[*remote.RefusedError](err); ok {
		return session.Sampled() && blamesRequest(refused.Status)
	}
	answered, ok := errors.AsType[*remote.StatusError](err)
	switch {
	case !ok:
		return false
	case answered.Status >= 500:
		return session.Limit() != ""
	}
	return session.Sampled() && blamesRequest(answered.Status)
}

// blamesRequest reports whether a status 4xx tells of what was asked, and not of an address, a token or a load.
func blamesRequest(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	}
	return status >= 400 && status < 500
}

// awaitOutcome returns the outcome of a session, or why there is none. The program may go on where the outcome was posted.
func (a *agent) awaitOutcome(ctx context.Context, session *gateway.Session, returned <-chan error) (gateway.Outcome, error) {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	type result struct {
		outcome gateway.Outcome
		err     error
	}
	posted := make(chan result, 1)
	go func() {
		outcome, err := session.Wait(waiting, a.idle)
		posted <- result{outcome, err}
	}()
	select {
	case got := <-posted:
		return got.outcome, got.err
	case err := <-returned:
		if err == nil { // the outcome is there
			got := <-posted
			return got.outcome, got.err
		}
		stop(err)
		session.Close()
		if got := <-posted; got.err == nil {
			return got.outcome, nil // it was posted before
		}
		if failed := session.Failed(); failed != nil {
			return gateway.Outcome{}, failed // why the program could not go on
		}
		return gateway.Outcome{}, err
	}
}

// openSession opens the session of an episode, and returns where its agent asks.
func (a *agent) openSession(ctx context.Context, e *producers.Episode) (*gateway.Session, gateway.Address, error) {
	most := e.Limits().MaxTurns + 1
	if a.apart != nil {
		apart, err := a.apart(ctx)
		if err != nil {
			return nil, gateway.Address{}, err
		}
		if apart {
			session := a.server.OpenPrivate(ctx, a.speaker, recorder{e}, most)
			return session, session.At(fmt.Sprintf("http://127.0.0.1:%d", gatewayPort)), nil
		}
	}
	open := a.server.Open
	if a.lasts && e.HasJournal() {
		open = func(ctx context.Context, s gateway.Speaker, r gateway.Recorder, most int) (*gateway.Session, error) {
			return a.server.OpenLasting(ctx, s, r, most, e.JournalName(), e)
		}
	}
	session, err := open(ctx, a.speaker, recorder{e}, most)
	if errors.Is(err, gateway.ErrNoAddress) {
		return nil, gateway.Address{}, fmt.Errorf("%w: %w", producers.ErrNotBegun, err)
	}
	if err != nil {
		return nil, gateway.Address{}, err
	}
	return session, a.server.Address(session), nil
}

// newOffer makes the offer of an episode.
func newOffer(e *producers.Episode, address gateway.Address) gateway.Offer {
	prompt := e.Prompt()
	return gateway.Offer{
		BaseURL: address.OpenAI, AnthropicURL: address.Anthropic, APIKey: address.Key, Episode: e.ID(), Prompt: prompt.Text,
		PromptID: prompt.ID, Task: e.Task(), Source: prompt.Source, Seed: e.Seed(), World: []byte(e.World()),
		Timeout: e.TimeLeft().Seconds(),
	}
}

// finishEpisode ends the episode with the agent's outcome. limit is the limit that refused the agent's last request; "" is none.
func finishEpisode(e *producers.Episode, limit schemas.StopReason, o gateway.Outcome) {
	if o.Reward != nil {
		e.Post(*o.Reward, o.Rewards)
	}
	switch {
	case o.Answer != "":
		e.Finish(o.Answer, schemas.StopAnswer)
	case limit != "":
		e.Finish("", limit)
	default:
		e.Finish("", schemas.StopFormat)
	}
}

// recorder is an episode as the gateway writes it.
type recorder struct{ episode *producers.Episode }

// LateReporter counts the agent's requests after the episode's end.
func (r recorder) LateReporter() func(n int, request string) { return r.episode.LateReporter() }

// NoteUnclaimed notes whether the episode waits for an agent.
func (r recorder) NoteUnclaimed(unclaimed bool) { r.episode.NoteUnclaimed(unclaimed) }

// Open begins a context.
func (r recorder) Open(tokens []int32) (gateway.Context, error) { return r.episode.Open("", tokens) }
