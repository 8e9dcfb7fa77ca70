package facts

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

// Country is the facts of a country. All text is lower case ASCII.
type Country struct {
	Name, Capital, Currency, Code string
	// Domain, Abbreviation and Number are its codes in ISO 3166-1: two letters, three letters, three digits.
	Domain, Abbreviation, Number string
	// Area in square kilometres, at most 0 when the data has none.
	Area float64
	// Latitude and Longitude of its middle, in degrees, north and east positive.
	Latitude, Longitude float64
	// Borders are names of countries that are kept, in the data's order.
	Borders []string
	// Regions are names that no other region and no country has.
	Regions []string
	Split   tasks.Split
	// Neighbour is the first border in the same split; "" if there is none.
	Neighbour string
}

// Load reads the countries that are kept, sorted by name: countries with an ASCII name, capital, currency and calling code, none too long,
// and a capital that no kept country has (Kingston is Jamaica's and Norfolk Island's). The regions of each are the first few whose names
// are nothing else's.
func Load() ([]*Country, error) {
	all := gountries.New().FindAllCountries() // a map: its order is random
	raw := make([]gountries.Country, 0, len(all))
	for _, c := range all {
		raw = append(raw, c)
	}
	slices.SortFunc(raw, func(a, b gountries.Country) int { return cmp.Compare(a.Alpha3, b.Alpha3) })
	a := atlas{raw: raw, byAlpha3: map[string]*Country{}, taken: map[string]bool{}, capitalOf: map[string]*Country{}}
	kept := a.selectCountries()
	if len(kept) < 100 {
		return nil, errors.New("load countries: the module's data has too few of them")
	}
	a.addNeighbours()
	slices.SortFunc(kept, func(a, b *Country) int { return cmp.Compare(a.Name, b.Name) })
	return kept, nil
}

// atlas indexes the module's countries while they are loaded.
type atlas struct {
	raw       []gountries.Country // by alpha-3 code
	byAlpha3  map[string]*Country // the countries that are kept
	taken     map[string]bool     // names of countries, as keys
	capitalOf map[string]*Country // the country that has a capital of this name, by key
}

// selectCountries keeps the countries that have every fact, with names that no other country or capital has.
func (a *atlas) selectCountries() []*Country {
	var kept []*Country
	for _, r := range a.raw {
		if len(r.Currencies) == 0 || len(r.CallingCodes) == 0 {
			continue
		}
		c := &Country{
			Name:     cleanName(r.Name.Common),
			Capital:  cleanName(r.Capital),
			Currency: cleanName(r.Currencies[0]),
			Code:     cleanName(r.CallingCodes[0]),
			Domain:   cleanName(r.Alpha2), Abbreviation: cleanName(r.Alpha3), Number: cleanName(r.CCN3), Area: r.Area,
			Latitude: r.Latitude, Longitude: r.Longitude,
		}
		if c.Name == "" || c.Capital == "" || c.Currency == "" || c.Code == "" || a.taken[Key(c.Name)] || a.capitalOf[Key(c.Capital)] != nil {
			continue
		}
		a.taken[Key(c.Name)], a.capitalOf[Key(c.Capital)] = true, c
		a.byAlpha3[r.Alpha3] = c
		kept = append(kept, c)
	}
	return kept
}

// addNeighbours gives the countries that are kept their borders and their regions.
func (a *atlas) addNeighbours() {
	regionsOf := map[string]int{} // how many countries have a region of this name, by key
	for _, r := range a.raw {
		for _, name := range regionNames(r) {
			regionsOf[Key(name)]++
		}
	}
	for _, r := range a.raw {
		c := a.byAlpha3[r.Alpha3]
		if c == nil {
			continue
		}
		for _, alpha3 := range r.Borders {
			if other := a.byAlpha3[alpha3]; other != nil {
				c.Borders = append(c.Borders, other.Name)
			}
		}
		for _, name := range regionNames(r) {
			foreign := a.capitalOf[Key(name)] != nil && a.capitalOf[Key(name)] != c
			if len(c.Regions) < maxRegions && regionsOf[Key(name)] == 1 && !a.taken[Key(name)] && !foreign {
				c.Regions = append(c.Regions, name)
			}
		}
	}
}

// Key is the form of a name by which a search distinguishes names: their words. "north-east" and "north east" are the same.
func Key(name string) string {
	return strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '-' || r == '\'' }), " ")
}

// regionNames are the distinct clean names of a country's subdivisions, in the data's order.
func regionNames(c gountries.Country) []string {
	var names []string
	for _, s := range c.SubDivisions() {
		if name := cleanName(s.Name); name != "" && !slices.ContainsFunc(names, func(n string) bool { return Key(n) == Key(name) }) {
			names = append(names, name)
		}
	}
	return names
}

// cleanName returns a name in lower case, or "" if it cannot be used: not ASCII, too long, or with anything but
// letters, digits, spaces, hyphens and apostrophes in it.
func cleanName(name string) string {
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

// Divide puts every country into a split. Countries are dealt in pairs of neighbours where that can be
// done, so that most have a neighbour in their own split and two-hop questions exist in the small ones.
func Divide(countries []*Country, validation, test int, seed uint64) {
	byName := map[string]*Country{}
	for _, c := range countries {
		byName[c.Name] = c
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	room := map[tasks.Split]int{
		tasks.Validation: validation,
		tasks.Test:       test,
		tasks.Train:      len(countries) - validation - test,
	}
	for _, i := range rng.Perm(len(countries)) {
		c := countries[i]
		if c.Split != "" {
			continue
		}
		// A split is drawn in proportion to the room it has left, so all fill together.
		draw := rng.IntN(room[tasks.Train] + room[tasks.Validation] + room[tasks.Test])
		for _, split := range tasks.Splits() {
			if draw -= room[split]; draw < 0 {
				c.Split = split
				break
			}
		}
		room[c.Split]--
		for _, name := range c.Borders {
			if other := byName[name]; other.Split == "" && room[c.Split] > 0 {
				other.Split = c.Split
				room[c.Split]--
				break
			}
		}
	}
	for _, c := range countries {
		for _, name := range c.Borders {
			if byName[name].Split == c.Split {
				c.Neighbour = name
				break
			}
		}
	}
}
