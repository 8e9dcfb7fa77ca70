// Package metrics declares what a step of a run is reported by: each key of metrics.jsonl once, with its unit, its meaning
// and, where there is one, the gauge that Prometheus shows. The trainer, the evaluator, the progress view and docs/metrics.md
// read the keys from here.
//
//	v := map[string]float64{}
//	metrics.RewardMean.Set(v, 0.75)
//	v[metrics.RewardComponent.Of("exact_match")] = 0.5
package metrics

import "strings"

// Key is one number of an event's metrics.
type Key struct {
	// Name is what the number stands under. It ends with <...> where the run decides the rest: see Of.
	Name string
	// Unit is "" for a number without one.
	Unit string
	// Help says what the number is, and what it means where it moves.
	Help string
	// Gauge shows the last step's value; the zero value is none.
	Gauge Gauge
}

// Gauge is a Prometheus gauge.
type Gauge struct {
	// Name follows weir_trainer_.
	Name string
	Help string
}

// Set puts the number under its key.
func (k Key) Set(v map[string]float64, x float64) { v[k.Name] = x }

// In is the number among those of an event, 0 where it is not there.
func (k Key) In(v map[string]float64) float64 { return v[k.Name] }

// Prefix is what the names of a key begin with that the run decides the rest of; of another key it is its name.
func (k Key) Prefix() string {
	prefix, _, _ := strings.Cut(k.Name, "<")
	return prefix
}

// Of is the name of one of the numbers of such a key.
func (k Key) Of(name string) string { return k.Prefix() + name }

// Loss is the name of a number that a loss reports.
func Loss(name string) string { return "loss/" + name }

// OffPolicy is the name of a measure of the distance from the policy that sampled.
func OffPolicy(name string) string { return "off_policy/" + name }
