package library

import (
	"math/rand/v2"

	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/producers/tasks/facts"
)

// mostTogether bounds the countries that come into a split together.
const mostTogether = 12

// divideCountries puts every country into a split, together with the countries that border it and the countries that border these, so that
// questions of several hops exist in the small splits.
func divideCountries(countries []*facts.Country, validation, test int, seed uint64) {
	byName := map[string]*facts.Country{}
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
		if countries[i].Split != "" {
			continue
		}
		// A split is drawn in proportion to the room it has left, so all fill together.
		var into tasks.Split
		draw := rng.IntN(room[tasks.Train] + room[tasks.Validation] + room[tasks.Test])
		for _, split := range tasks.Splits() {
			if draw -= room[split]; draw < 0 {
				into = split
				break
			}
		}
		together := []*facts.Country{countries[i]}
		for n := 0; n < len(together) && room[into] > 0; n++ {
			c := together[n]
			if c.Split != "" {
				continue
			}
			c.Split = into
			room[into]--
			for _, name := range c.Borders {
				if other := byName[name]; other != nil && other.Split == "" && len(together) < mostTogether {
					together = append(together, other)
				}
			}
		}
	}
}
