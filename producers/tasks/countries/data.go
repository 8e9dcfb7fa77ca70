package countries

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/pariz/gountries"

	"github.com/weir-rl/weir/producers/tasks"
)

const (
	maxNameBytes = 16 // longer names are left out: they make trajectories long and teach nothing new
	maxRegions   = 5
)

// country is what the task knows of one country. All text is lower case ASCII.
type country struct {
	name, capital, currency, code string
	borders                       []string // names of countries that are kept, in the data's order
	regions                       []string // names that no other region and no country has
	split                         tasks.Split
	neighbour                     string // the first border in the same split; "" if there is none
}

// fields are what can be asked of a country.
var fields = [...]string{"capital", "currency", "code"}

func (c *country) field(i int) string {
	return [...]string{c.capital, c.currency, c.code}[i]
}

// load reads the countries that the task keeps, sorted by name: those with an ASCII name, capital, currency
// and calling code, none too long, and a capital that no kept country has (Kingston is Jamaica's and Norfolk
// Island's). The regions of each are the first few whose names are nothing else's.
func load() ([]*country, error) {
	all := gountries.New().FindAllCountries() // a map: its order is random
	raw := make([]gountries.Country, 0, len(all))
	for _, c := range all {
		raw = append(raw, c)
	}
	slices.SortFunc(raw, func(a, b gountries.Country) int { return cmp.Compare(a.Alpha3, b.Alpha3) })

	byAlpha3 := map[string]*country{}
	taken := map[string]bool{}         // names of countries, as keys
	capitalOf := map[string]*country{} // who has a capital of this name, by key
	var kept []*country
	for _, r := range raw {
		if len(r.Currencies) == 0 || len(r.CallingCodes) == 0 {
			continue
		}
		c := &country{
			name:     clean(r.Name.Common),
			capital:  clean(r.Capital),
			currency: clean(r.Currencies[0]),
			code:     clean(r.CallingCodes[0]),
		}
		if c.name == "" || c.capital == "" || c.currency == "" || c.code == "" || taken[key(c.name)] || capitalOf[key(c.capital)] != nil {
			continue
		}
		taken[key(c.name)], capitalOf[key(c.capital)] = true, c
		byAlpha3[r.Alpha3] = c
		kept = append(kept, c)
	}
	if len(kept) < 100 {
		return nil, errors.New("load countries: the module's data has too few of them")
	}

	regionsOf := map[string]int{} // how many countries have a region of this name, by key
	for _, r := range raw {
		for _, name := range regionNames(r) {
			regionsOf[key(name)]++
		}
	}
	for _, r := range raw {
		c := byAlpha3[r.Alpha3]
		if c == nil {
			continue
		}
		for _, alpha3 := range r.Borders {
			if other := byAlpha3[alpha3]; other != nil {
				c.borders = append(c.borders, other.name)
			}
		}
		for _, name := range regionNames(r) {
			foreign := capitalOf[key(name)] != nil && capitalOf[key(name)] != c
			if len(c.regions) < maxRegions && regionsOf[key(name)] == 1 && !taken[key(name)] && !foreign {
				c.regions = append(c.regions, name)
			}
		}
	}
	slices.SortFunc(kept, func(a, b *country) int { return cmp.Compare(a.name, b.name) })
	return kept, nil
}

// key is what a search can tell names apart by: their words. "north-east" and "north east" are the same.
func key(name string) string {
	return strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '-' || r == '\'' }), " ")
}

// regionNames are the distinct clean names of a country's subdivisions, in the data's order.
func regionNames(c gountries.Country) []string {
	var names []string
	for _, s := range c.SubDivisions() {
		if name := clean(s.Name); name != "" && !slices.ContainsFunc(names, func(n string) bool { return key(n) == key(name) }) {
			names = append(names, name)
		}
	}
	return names
}

// clean returns a name in lower case, or "" if it cannot be used: not ASCII, too long, or with anything but
// letters, digits, spaces, hyphens and apostrophes in it.
func clean(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if len(name) > maxNameBytes {
		return ""
	}
	letters := false
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			letters = true
		case r == ' ', r == '-', r == '\'':
		default:
			return ""
		}
	}
	if !letters {
		return ""
	}
	return name
}

// divide puts every country into a split. Countries are dealt in pairs of neighbours where that can be
// done, so that most have a neighbour in their own split and two-hop questions exist in the small ones.
func divide(countries []*country, validation, test int, seed uint64) {
	byName := map[string]*country{}
	for _, c := range countries {
		byName[c.name] = c
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	room := map[tasks.Split]int{
		tasks.Validation: validation,
		tasks.Test:       test,
		tasks.Train:      len(countries) - validation - test,
	}
	for _, i := range rng.Perm(len(countries)) {
		c := countries[i]
		if c.split != "" {
			continue
		}
		// A split is drawn in proportion to the room it has left, so all fill together.
		draw := rng.IntN(room[tasks.Train] + room[tasks.Validation] + room[tasks.Test])
		for _, split := range tasks.Splits() {
			if draw -= room[split]; draw < 0 {
				c.split = split
				break
			}
		}
		room[c.split]--
		for _, name := range c.borders {
			if other := byName[name]; other.split == "" && room[c.split] > 0 {
				other.split = c.split
				room[c.split]--
				break
			}
		}
	}
	for _, c := range countries {
		for _, name := range c.borders {
			if byName[name].split == c.split {
				c.neighbour = name
				break
			}
		}
	}
}
