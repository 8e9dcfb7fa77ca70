package atlas

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
)

// place is the result of find for a country.
type place struct {
	name, capital string
	code          int64
	neighbour     string // "" is none
}

// newRecord returns the place as the world's functions return it.
func (p place) newRecord() tasks.Record {
	r := tasks.Record{"capital": p.capital, "code": p.code, "neighbour": nil}
	if p.neighbour != "" {
		r["neighbour"] = p.neighbour
	}
	return r
}

// places are an atlas, by the key of a country's name.
type places map[string]place

// findPlace returns the place of a name.
func (a places) findPlace(name string) place { return a[facts.Key(name)] }

// newAtlas makes the atlas of the real countries. A country's neighbour is in its own split.
func newAtlas(countries []*facts.Country) (places, error) {
	out := places{}
	for _, c := range countries {
		code, err := strconv.ParseInt(c.Code, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the code of %s is %q: want a number", c.Name, c.Code)
		}
		out[facts.Key(c.Name)] = place{c.Name, c.Capital, code, c.Neighbour}
	}
	return out, nil
}

// shuffleFacts deals the facts of an atlas to other countries: none keeps its own.
func (a places) shuffleFacts(seed uint64) places {
	keys := slices.Sorted(maps.Keys(a))
	rng := rand.New(rand.NewPCG(seed, 13))
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	out := places{}
	for i, key := range keys {
		p := a[keys[(i+1)%len(keys)]]
		p.name = a[key].name
		out[key] = p
	}
	return out
}

// world gives the cells of an episode find.
type world struct{ atlas places }

// Open makes the function of an episode: it keeps no state.
func (w world) Open(producers.Session) (tasks.Functions, error) { return w, nil }

const findName = "find"

// Names is find.
func (world) Names() []string { return []string{findName} }

// Call finds a country by its name, however it is spaced.
func (w world) Call(_ context.Context, _ string, args []any) (any, error) {
	if len(args) == 1 {
		if name, ok := args[0].(string); ok {
			if p, there := w.atlas[facts.Key(name)]; there {
				return p.newRecord(), nil
			}
			return nil, errors.New("no such country")
		}
	}
	return nil, errors.New("takes the name of a country")
}
