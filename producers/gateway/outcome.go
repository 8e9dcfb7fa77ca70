package gateway

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"time"

	"github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/schemas"
)

// outcomeBody is an agent's post at the end of its episode.
type outcomeBody struct {
	Answer  string             `json:"answer"`
	Reward  *float64           `json:"reward"`
	Rewards map[string]float64 `json:"rewards"`
	// Failed says that the agent failed, and has no outcome: whatever else is posted does not count.
	Failed bool `json:"failed"`
}

// outcome returns the outcome that was posted to a session. A failure ends the episode where a limit refused the agent's last request; any
// other is the agent's own, and is refused.
func (b *outcomeBody) outcome(s *Session) (Outcome, error) {
	if !b.Failed {
		return Outcome{Answer: b.Answer, Reward: b.Reward, Rewards: b.Rewards}, nil
	}
	if s.Limit() == "" {
		return Outcome{}, openai.Refusal(http.StatusConflict, "invalid_request_error", "no_limit",
			"failed: no limit refused the last request of the episode, so the failure is the agent's own: mend the agent, or post an outcome")
	}
	return Outcome{}, nil
}

// The trainer refuses a trajectory with more components of its reward, or with a longer name of a component, in bytes.
const (
	mostComponents = 256
	mostName       = 256
)

// Check returns why the trainer would refuse the outcome's rewards; nil is that it would not. most bounds each by magnitude.
func (o Outcome) Check(most float64) error {
	checkOne := func(what string, v float64) error {
		if math.IsNaN(v) || math.Abs(v) > most {
			return fmt.Errorf("%s is %v: want a number of at most %g by magnitude; the agent's max_reward bounds it", what, v, most)
		}
		return nil
	}
	if o.Reward != nil {
		if err := checkOne("reward", *o.Reward); err != nil {
			return err
		}
	}
	if n := len(o.Rewards); n > mostComponents {
		return fmt.Errorf("rewards has %d components: want at most %d", n, mostComponents)
	}
	for name, v := range o.Rewards {
		if len(name) > mostName {
			return fmt.Errorf("rewards: the name of the component %.40q has %d bytes: want at most %d", name, len(name), mostName)
		}
		if err := checkOne(fmt.Sprintf("rewards.%.80s", name), v); err != nil {
			return err
		}
	}
	return nil
}

// Finish takes the outcome of the episode. The first counts, and a second is refused. An agent that may outlive its producer may post its
// outcome again, since it cannot know whether the outcome came; it is told when that is stored.
func (s *Session) Finish(o Outcome) error {
	if l := s.lasting; l != nil {
		l.finishing.Lock()
		defer l.finishing.Unlock()
		s.mu.Lock()
		posted, same := s.posted, reflect.DeepEqual(s.outcome, o)
		s.mu.Unlock()
		if posted && same {
			return nil
		}
		if !posted {
			l.keeper.Note(encodeNote(note{Outcome: &o}))
			if err := l.keeper.StoreNotes(s.alive); err != nil {
				return openai.Refusal(http.StatusServiceUnavailable, "server_error", "unavailable", "%v", err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.posted {
		return openai.Refusal(
			http.StatusConflict, "invalid_request_error", "episode_over", "the episode has its outcome already: it is posted once")
	}
	s.postOutcome(o)
	return nil
}

// postOutcome ends the episode with its outcome. The caller holds the lock.
func (s *Session) postOutcome(o Outcome) {
	s.posted, s.outcome = true, o
	close(s.ended)
}

var (
	// ErrUnclaimed is returned, wrapped, by Wait of an episode that no agent came for.
	ErrUnclaimed = errors.New("no agent came for the episode (start more agents, lower producer.concurrency, or raise idle)")
	// errIdle ends an episode whose agent has gone.
	errIdle = errors.New("the agent asked for nothing and did not finish")
)

// unclaimedRecorder is a [Recorder] that says of an episode that it waits for an agent.
type unclaimedRecorder interface {
	NoteUnclaimed(unclaimed bool)
}

// setOffered notes that the episode waits for an agent, or that an agent has come for it. A nil session waits for none.
func (s *Session) setOffered(offered bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offered = offered
	if recorder, ok := s.recorder.(unclaimedRecorder); ok {
		recorder.NoteUnclaimed(offered)
	}
	s.noteActivity()
}

// idleFault is why the session is given up: the time in which no request was open is over. nil is that it goes on.
func (s *Session) idleFault(idle time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.running > 0 || time.Since(s.touched) <= idle:
		return nil
	case s.offered:
		return fmt.Errorf("%w for %v", ErrUnclaimed, idle)
	}
	return fmt.Errorf("%w for %v", errIdle, idle)
}

// Wait returns the outcome when the agent has posted it. It fails when ctx ends, when the policy cannot be asked, and when for so long
// no request was open; 0 waits without a bound. An outcome that is there counts, though the session has ended since.
func (s *Session) Wait(ctx context.Context, idle time.Duration) (Outcome, error) {
	var tick <-chan time.Time
	if idle > 0 {
		t := time.NewTicker(max(idle/10, time.Millisecond))
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-s.ended:
			return s.takeOutcome()
		case <-s.alive.Done():
			select {
			case <-s.ended: // it came before the end
				return s.takeOutcome()
			default:
			}
			if ctx.Err() != nil {
				return Outcome{}, context.Cause(ctx)
			}
			return Outcome{}, fmt.Errorf("ask the policy for the agent: %w", context.Cause(s.alive))
		case <-tick:
			if err := s.idleFault(idle); err != nil {
				return Outcome{}, err
			}
		}
	}
}

// takeOutcome returns the outcome that is there.
func (s *Session) takeOutcome() (Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return Outcome{}, fmt.Errorf("ask the policy for the agent: %w", s.failed)
	}
	return s.outcome, nil
}

// Limit is the limit that refused the agent's last request; "" where the last request was answered, or there was none.
func (s *Session) Limit() schemas.StopReason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop
}

// Sampled reports whether the agent has got a reply of the policy's.
func (s *Session) Sampled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.stored) > 0
}

// Failed is the policy's error, nil for none.
func (s *Session) Failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Key is the episode's secret: its API key, and part of its base URL.
func (s *Session) Key() string { return s.secret }

// Close ends the agent's running requests. Later requests are refused.
func (s *Session) Close() {
	s.end(errOver)
	s.mu.Lock()
	running := make([]*asking, 0, len(s.asked))
	for _, same := range s.asked {
		running = append(running, same...)
	}
	s.mu.Unlock()
	for _, a := range running {
		<-a.done
	}
	if s.lasting != nil {
		s.lasting.restoring.Wait()
	}
}
