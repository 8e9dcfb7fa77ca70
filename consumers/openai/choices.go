package openai

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	api "github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/schemas"
)

// mostAnswers bounds the answers of a request.
const mostAnswers = 64

// choice is an answer of a request.
type choice struct {
	index int
	// first of its context.
	first bool
	p     *prompt
	a     *answer
}

// makeChoices makes a request's answers ready: n of each context, in order. The first of a context is the answer that the request would get
// alone; the others have seeds that follow from its seed.
func (o *API) makeChoices(b *samplingBody, contexts [][]int32, defaultMax int, prefix string) ([]*choice, error) {
	n := 1
	if b.N != nil {
		n = *b.N
	}
	switch {
	case n < 1:
		return nil, api.BadRequest("invalid_parameter", "n is %d: must be positive", n)
	case n > mostAnswers || len(contexts)*n > mostAnswers:
		return nil, api.BadRequest("invalid_parameter", "%d answers are asked for: at most %d", len(contexts)*n, mostAnswers)
	case b.BestOf != nil && *b.BestOf != n:
		return nil, api.BadRequest("unsupported_parameter", "best_of is %d: every answer that is sampled is given; use n", *b.BestOf)
	case b.Episode != "" && len(contexts)*n > 1:
		return nil, api.BadRequest("invalid_parameter", "episode names the cache of one answer: leave it out where there are several")
	}
	var out []*choice
	first := newAnswer(prefix)
	for _, tokens := range contexts {
		for k := range n {
			p, err := o.makePrompt(b, tokens, defaultMax)
			if err != nil {
				return nil, err
			}
			if len(out) > 0 {
				p.req.Seed = out[0].p.req.Seed
			}
			if k > 0 {
				p.req.Seed = schemas.MixSeed(p.req.Seed + uint64(k))
			}
			out = append(out, &choice{index: len(out), first: k == 0, p: p, a: &answer{id: first.id, created: first.created}})
		}
	}
	return out, nil
}

// generateAll fills the answers side by side and gives each piece of each to emit, never two at a time. The first error ends all.
func (o *API) generateAll(ctx context.Context, choices []*choice, emit func(c *choice, next piece) error) error {
	if len(choices) == 1 {
		return o.generateAnswer(ctx, choices[0].p, choices[0].a, func(next piece) error { return emit(choices[0], next) })
	}
	var turn sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range choices {
		group.Go(func() error {
			return o.generateAnswer(ctx, c.p, c.a, func(next piece) error {
				turn.Lock()
				defer turn.Unlock()
				return emit(c, next)
			})
		})
	}
	return group.Wait()
}

// writeAnswers writes the answers, whole or streamed. begin makes the event that opens a choice, part the event of a piece of a choice;
// either may be nil, which sends no such event. whole makes the body of an answer that is not streamed, last the closing event with the
// usage.
func (o *API) writeAnswers(w http.ResponseWriter, r *http.Request, b *samplingBody, choices []*choice,
	begin func(c *choice) any, part func(c *choice, next piece) any, whole func(u *api.Usage) any, last func(u *api.Usage) any,
) error {
	if names := o.ignoredSettings(b); len(names) > 0 {
		w.Header().Set("Weir-Ignored", strings.Join(names, ", "))
	}
	if !b.Stream {
		if err := o.generateAll(r.Context(), choices, func(*choice, piece) error { return nil }); err != nil {
			return err
		}
		api.WriteJSON(w, http.StatusOK, whole(countUsage(choices)))
		return nil
	}
	out := api.NewEvents(w)
	stop := out.KeepAlive(o.ping)
	defer stop()
	send := func(body any) error {
		if body == nil {
			return nil
		}
		return out.Send(body)
	}
	begun := false
	err := o.generateAll(r.Context(), choices, func(c *choice, next piece) error {
		if !begun { // and not sooner, so that a refusal has its status
			begun = true
			for _, each := range choices {
				if err := send(begin(each)); err != nil {
					return err
				}
			}
		}
		return send(part(c, next))
	})
	stop() // before anybody asks whether anything was written: an error before that has a status
	if err == nil && b.StreamOptions.WantsUsage() {
		err = out.Send(last(countUsage(choices)))
	}
	return out.End(err)
}

// countUsage counts a prompt that several answers share once.
func countUsage(choices []*choice) *api.Usage {
	prompt, completion := 0, 0
	for _, c := range choices {
		if c.first {
			prompt += len(c.p.req.Tokens)
		}
		completion += len(c.a.tokens)
	}
	return api.NewUsage(prompt, completion)
}
