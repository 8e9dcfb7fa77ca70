package tracing

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
)

// Stage is a part of a step.
type Stage struct {
	Name string
	Took time.Duration
}

// Step sends the spans of a step that ended at an instant: the whole, and its stages in sequence from its beginning.
func (t *Tracer) Step(step int64, ended time.Time, took time.Duration, stages ...Stage) {
	if t == nil {
		return
	}
	id, at := stepSpan(t.run, step), ended.Add(-took)
	for _, s := range stages {
		next := at.Add(s.Took)
		t.sendSpans(span{id: childSpan(id, s.Name), parent: id, name: s.Name, from: at, to: next, notes: []attribute.KeyValue{attribute.Int64("weir.step", step)}})
		at = next
	}
	t.sendSpans(span{id: id, name: "training step", from: ended.Add(-took), to: ended, notes: []attribute.KeyValue{attribute.Int64("weir.step", step)}})
}
