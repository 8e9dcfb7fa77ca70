package gateway

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu/hf/chat"
)

// kept is a Keeper in memory: what is not stored dies with the producer.
type kept struct {
	mu              sync.Mutex
	stored, pending [][]byte
	err             error // of StoreNotes
}

func (k *kept) Notes() [][]byte { return k.stored }

func (k *kept) Note(text []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.pending = append(k.pending, text)
}

func (k *kept) StoreNotes(context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stored, k.pending = append(k.stored, k.pending...), nil
	return k.err
}

// nextProducer is what another producer finds.
func (k *kept) nextProducer() *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &kept{stored: slices.Clone(k.stored)}
}

// fromText is a policy whose words follow from the context.
func fromText(_ context.Context, context string) (string, error) {
	h := fnv.New32a()
	h.Write([]byte(context))
	n := h.Sum32()
	if n%5 == 0 {
		return fmt.Sprintf(`call look {"at":  %d}`, n%97), nil
	}
	return fmt.Sprintf("word%d", n%997), nil
}

var staying = &keyring{[]byte("a secret of the run")}

// newLastingSession is the session of an episode at a producer, whose agent has come for it or back to it.
func newLastingSession(ctx context.Context, r Recorder, k Keeper) *Session {
	s := newSession(ctx, spelling{}, r, 1000)
	s.secret, s.episode, s.lasting = staying.newKey("e"), "e", newLasting(staying, k)
	return s
}

// player is an agent with several conversations.
type player struct {
	talks [][]chat.Message
	last  []*request // of each conversation
	heard []*reply
}

// nextRequest is the next request of a conversation, or the first of a new one.
func (p *player) nextRequest(i int, say string, tools bool) *request {
	if i == len(p.talks) {
		p.talks, p.last, p.heard = append(p.talks, nil), append(p.last, nil), append(p.heard, nil)
		say = fmt.Sprint(say, i) // equal requests cannot be told apart
	}
	r := &request{messages: append(slices.Clone(p.talks[i]), chat.Message{Role: chat.User, Content: say})}
	if tools {
		r.tools, r.mustCall = []chat.Tool{{Name: "look"}}, say == "two"
	}
	return r
}

func (p *player) hear(i int, r *request, got *reply) {
	p.talks[i] = append(slices.Clone(r.messages), got.asMessage())
	p.last[i], p.heard[i] = r, got
}

func contents(r *recorded) (out []string) {
	for _, c := range r.all {
		out = append(out, fmt.Sprint(c.begun, text(c.tokens), c.sampled))
	}
	return out
}

// Producers die between requests and within them. At the next producer the contexts are what they were, a request that comes again is given
// the answer that was given, and one that was open is answered as if nothing had happened.
func TestPropertyAConversationGoesOnAtTheNextProducerAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		book, keeper := &recorded{says: fromText}, new(kept)
		s := newLastingSession(ctx, book, keeper)
		require.NoError(t, s.claimKey(ctx))
		key, agent := s.secret, new(player)
		ask := func(r *request) *reply {
			got, delivered, err := s.askPolicy(ctx, r)
			require.NoError(t, err)
			delivered(true)
			return got
		}
		die := func() {
			before := contents(book)
			s.Close()
			book, keeper = &recorded{says: fromText}, keeper.nextProducer()
			s = newLastingSession(ctx, book, keeper)
			require.NoError(t, s.admitKey(ctx, key))
			require.Equal(t, before, contents(book))
			require.NoError(t, s.Failed())
		}
		for range rapid.IntRange(1, 25).Draw(t, "moves") {
			i := rapid.IntRange(0, min(3, len(agent.talks))).Draw(t, "conversation")
			switch move := rapid.SampledFrom([]string{"ask", "ask", "ask", "die", "again", "cut", "both"}).Draw(t, "move"); {
			case move == "die":
				die()
			case move == "again" && i < len(agent.talks):
				again := *agent.last[i]
				again.tries = 1
				got := ask(&again)
				require.Equal(t, agent.heard[i].id, got.id)
				require.Equal(t, agent.heard[i].asMessage(), got.asMessage())
			case move == "cut": // the producer dies while the policy answers
				r := agent.nextRequest(i, rapid.SampledFrom([]string{"one", "two", "anew"}).Draw(t, "say"), rapid.Bool().Draw(t, "tools"))
				first := *r
				first.tries = firstTry
				asked := make(chan struct{})
				book.says = func(ctx context.Context, _ string) (string, error) {
					close(asked)
					<-ctx.Done()
					return "", context.Cause(ctx)
				}
				ended := make(chan error, 1)
				go func() {
					_, _, err := s.askPolicy(ctx, &first)
					ended <- err
				}()
				<-asked
				_ = keeper.StoreNotes(ctx) // the journal is written from time to time
				die()
				require.Error(t, <-ended)
				r.tries = 1
				agent.hear(i, r, ask(r))
			case move == "both": // two conversations at once
				var two sync.WaitGroup
				at := []int{len(agent.talks), len(agent.talks) + 1}
				requests := []*request{agent.nextRequest(at[0], "left", false), agent.nextRequest(at[1], "right", true)}
				got := make([]*reply, 2)
				for n, r := range requests {
					two.Go(func() { got[n], _, _ = s.askPolicy(ctx, r) })
				}
				two.Wait()
				for n, r := range requests {
					require.NotNil(t, got[n])
					agent.hear(at[n], r, got[n])
				}
			default:
				r := agent.nextRequest(i, rapid.SampledFrom([]string{"one", "two", "anew"}).Draw(t, "say"), rapid.Bool().Draw(t, "tools"))
				agent.hear(i, r, ask(r))
			}
		}
		die()
		outcome := Outcome{Answer: "north"}
		require.NoError(t, s.Finish(outcome))
		s.Close()
		s = newLastingSession(ctx, &recorded{says: fromText}, keeper.nextProducer())
		back, err := s.awaitFormer(ctx, time.Hour) // nobody has to come for an episode that has its outcome
		require.NoError(t, err)
		require.True(t, back)
		got, err := s.Wait(ctx, 0)
		require.NoError(t, err)
		require.Equal(t, outcome, got)
		require.NoError(t, s.Finish(outcome), "an agent that does not know whether its outcome came posts it again")
		require.Error(t, s.Finish(Outcome{Answer: "south"}))
		s.Close()
	})
}

// A journal that gives another conversation back ends the episode, which begins again, and nothing of it is answered.
func TestAConversationThatComesOutOtherwiseEndsItsEpisode(t *testing.T) {
	for name, change := range map[string]func(book *recorded, k *kept){
		"other tokens": func(book *recorded, _ *kept) {
			book.says = func(context.Context, string) (string, error) { return "other", nil }
		},
		"a note is missing":    func(_ *recorded, k *kept) { k.stored = slices.Delete(k.stored, 3, 4) },
		"a note is unreadable": func(_ *recorded, k *kept) { k.stored[3] = []byte("{") },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			keeper := new(kept)
			s := newLastingSession(ctx, &recorded{says: fromText}, keeper)
			require.NoError(t, s.claimKey(ctx))
			agent := new(player)
			for i := range 2 {
				for range 2 {
					r := agent.nextRequest(i, "one", false)
					got, _, err := s.askPolicy(ctx, r)
					require.NoError(t, err)
					agent.hear(i, r, got)
				}
			}
			key := s.secret
			s.Close()
			keeper = keeper.nextProducer()
			book := &recorded{says: fromText}
			change(book, keeper)
			s = newLastingSession(ctx, book, keeper)
			require.NoError(t, s.admitKey(ctx, key))
			require.ErrorIs(t, s.Failed(), errOtherwise)
			_, _, err := s.askPolicy(ctx, agent.nextRequest(0, "two", false))
			require.ErrorContains(t, err, "over")
			s.Close()
		})
	}
}

// An answer that is not stored is not told: another producer has the episode.
func TestAnAnswerThatIsNotStoredIsNotTold(t *testing.T) {
	overtaken := errors.New("another producer has the episode")
	keeper := &kept{}
	s := newLastingSession(t.Context(), &recorded{says: fromText}, keeper)
	require.NoError(t, s.claimKey(t.Context()))
	keeper.err = overtaken
	_, _, err := s.askPolicy(t.Context(), &request{messages: []chat.Message{{Role: chat.User, Content: "one"}}})
	require.ErrorContains(t, err, "another producer")
	require.ErrorContains(t, s.Finish(Outcome{}), "another producer")
	s.Close()
}

// claimed is a recorder that knows when its episode waits for an agent.
type claimed struct {
	recorded
	began time.Time
	waits []string
}

func (c *claimed) NoteUnclaimed(unclaimed bool) {
	c.waits = append(c.waits, fmt.Sprint(unclaimed, " after ", time.Since(c.began)))
}

// Finding 15a.8: an episode that another producer took over waited for its former agent in its own time, up to the whole of `return`, and
// the next agent was told of more time than it had.
func TestTheWaitForAFormerAgentIsNoPartOfAnEpisodesTime(t *testing.T) {
	t.Parallel()
	const within, gone = 30 * time.Second, 10 * time.Second
	for name, c := range map[string]struct {
		returns, ends bool
		want          []string
	}{
		"it comes back":      {returns: true, want: []string{"true after 0s", "false after 10s"}},
		"another takes over": {want: []string{"true after 0s", "true after 30s", "false after 40s"}},
		"the episode ends":   {ends: true, want: []string{"true after 0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, end := context.WithCancelCause(t.Context())
				defer end(nil)
				keeper := new(kept)
				before := newLastingSession(ctx, &recorded{says: fromText}, keeper)
				require.NoError(t, before.claimKey(ctx))
				_, _, err := before.askPolicy(ctx, new(player).nextRequest(0, "one", false))
				require.NoError(t, err)
				before.Close()

				record := &claimed{recorded: recorded{says: fromText}, began: time.Now()}
				session := newLastingSession(ctx, record, keeper.nextProducer())
				session.secret = staying.newKey("next")
				server := &Server{sessions: map[string]*Session{session.secret: session}, offers: newOffers("key"), stay: newStay()}
				offered := make(chan error, 1)
				go func() { offered <- server.Offer(ctx, Offer{APIKey: session.secret}, within) }()
				synctest.Wait()
				<-time.After(gone)
				over := errors.New("the ticket was withdrawn")
				switch {
				case c.returns:
					require.NoError(t, session.admitKey(ctx, before.secret))
					require.NoError(t, <-offered)
				case c.ends:
					end(over)
					require.ErrorIs(t, <-offered, over)
				default:
					<-time.After(within)
					(<-server.offers.waiting).taken <- struct{}{}
					require.NoError(t, <-offered)
				}
				require.Equal(t, c.want, record.waits)
				session.Close()
			})
		})
	}
}
