package library

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
)

// place is a country, real or made up.
type place struct {
	name    string
	values  [len(fields)]string     // "" for what is not known
	next    [len(directions)]*place // its neighbour in each direction, nil if it has none
	regions []string
}

// fields are the facts that can be asked of a country.
var fields = [...]string{"capital", "currency", "code", "domain", "abbreviation", "number", "area"}

// directions in which a neighbour can lie.
var directions = [...]string{"north", "east", "south", "west"}

// books are where facts are kept.
var books = [...]string{"almanac", "atlas", "directory", "gazetteer", "ledger", "register", "survey", "yearbook"}

// shelf says which book has which fact: the fields in their order, then the neighbours, then the country of a region.
type shelf [len(fields) + len(directions) + 1]string

const (
	factNeighbour = len(fields) // the first of them
	factRegion    = len(fields) + len(directions)
)

// realShelf is where the facts of the real world are kept.
var realShelf = shelf{
	"gazetteer", "ledger", "directory", "register", "yearbook", "almanac", "survey",
	"atlas", "ledger", "directory", "yearbook",
	"gazetteer",
}

// usualBooks returns the first n books in which a fact may be kept, the real world's first.
func usualBooks(fact, n int) []string {
	at := slices.Index(books[:], realShelf[fact])
	var out []string
	// The steps are uneven, so that two facts of a book seldom share another book.
	for _, step := range []int{0, 3, 1, 6, 4, 2, 5, 7}[:n] {
		out = append(out, books[(at+step)%len(books)])
	}
	return out
}

// newPassages returns all passages of a world's books.
func newPassages(places []*place, in shelf) []tasks.Passage {
	var out []tasks.Passage
	for _, p := range places {
		for _, book := range books {
			var says []string
			for i, value := range p.values {
				if value != "" && in[i] == book {
					says = append(says, fields[i]+" "+value)
				}
			}
			for d, next := range p.next {
				if next != nil && in[factNeighbour+d] == book {
					says = append(says, directions[d]+" "+next.name)
				}
			}
			if says != nil {
				out = append(out, tasks.Passage{Title: book + " " + p.name, Text: p.name + " has " + strings.Join(says, ", ") + "."})
			}
		}
		for _, region := range p.regions {
			out = append(out, tasks.Passage{Title: in[factRegion] + " " + region, Text: region + " is a region of " + p.name + "."})
		}
	}
	return out
}

// isAmbiguous reports whether a name has a word in it that questions and passages use, as South Sudan does.
func isAmbiguous(name string) bool {
	return slices.ContainsFunc(tokenizer.LowerWords(name), func(word string) bool {
		return slices.Contains(tokenizer.LowerWords(wording), word)
	})
}

// wording is every word of the questions and passages that is no name or value.
var wording = "what is the of neighbour country has a region " +
	strings.Join(fields[:], " ") + " " + strings.Join(directions[:], " ") + " " + strings.Join(books[:], " ")

// realPlaces are the places of the real world, by split. Of the countries that border one in a direction, the nearest of
// the same split is its neighbour there.
func realPlaces(countries []*facts.Country) map[tasks.Split][]*place {
	byName := map[string]*place{}
	facts := map[string]*facts.Country{}
	out := map[tasks.Split][]*place{}
	for _, c := range countries {
		p := &place{
			name: c.Name, regions: c.Regions,
			values: [...]string{c.Capital, c.Currency, c.Code, c.Domain, c.Abbreviation, c.Number, roundedArea(c.Area)},
		}
		byName[c.Name], facts[c.Name] = p, c
		out[c.Split] = append(out[c.Split], p)
	}
	for _, c := range countries {
		var nearest [len(directions)]float64
		for _, name := range c.Borders {
			other := facts[name]
			if other == nil || other.Split != c.Split {
				continue
			}
			d, far := bearingTo(c, other)
			if p := byName[c.Name]; p.next[d] == nil || far < nearest[d] {
				p.next[d], nearest[d] = byName[name], far
			}
		}
	}
	return out
}

// bearingTo returns the direction in which a country lies from another, by their middles, and the distance in degrees.
func bearingTo(from, to *facts.Country) (direction int, far float64) {
	north := to.Latitude - from.Latitude
	east := math.Remainder(to.Longitude-from.Longitude, 360) * math.Cos((from.Latitude+to.Latitude)/2*math.Pi/180)
	far = math.Hypot(north, east)
	switch {
	case north >= math.Abs(east):
		return 0, far
	case -north >= math.Abs(east):
		return 2, far
	case east > 0:
		return 1, far
	}
	return 3, far
}

// roundedArea returns an area in square kilometres in two digits, "450k", and "" when there is none.
func roundedArea(area float64) string {
	if area <= 0 {
		return ""
	}
	unit := math.Pow(10, math.Floor(math.Log10(area))-1)
	size := math.Round(area/unit) * unit
	switch {
	case size >= 1e6:
		return strconv.FormatFloat(size/1e6, 'f', 0, 64) + "m"
	case size >= 1e3:
		return strconv.FormatFloat(size/1e3, 'f', 0, 64) + "k"
	}
	return strconv.FormatFloat(math.Ceil(size), 'f', 0, 64)
}

// drawOne draws an element of a list.
func drawOne[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }
