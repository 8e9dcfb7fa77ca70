// Package metrics declares the numbers of a step's report: each key of metrics.jsonl once, with its unit, its meaning and, if any, its
// Prometheus gauge. The trainer, the evaluator, the progress view and docs/metrics.md read the keys from here.
//
//	v := map[string]float64{}
//	metrics.RewardMean.Set(v, 0.75)
//	v[metrics.RewardComponent.Of("exact_match")] = 0.5
package metrics

import "strings"

// Key is a number of an event's metrics.
type Key struct {
	// Name is the number's key. It ends with <...> where the run decides the rest: see Of.
	Name string
	// Unit is "" for a number without a unit.
	Unit string
	// Help describes the number, and the meaning of a change.
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

// Prefix is the fixed beginning of a key's names where the run decides the rest; otherwise the name.
func (k Key) Prefix() string {
	prefix, _, _ := strings.Cut(k.Name, "<")
	return prefix
}

// Of is the name of a number of a key with a prefix.
func (k Key) Of(name string) string { return k.Prefix() + name }

// Loss is the name of a number that a loss reports.
func Loss(name string) string { return "loss/" + name }

// OffPolicy is the name of a measure of the distance from the policy that sampled.
func OffPolicy(name string) string { return "off_policy/" + name }
