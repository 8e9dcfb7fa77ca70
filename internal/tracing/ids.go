package tracing

import (
	"context"
	"crypto/sha256"
	"fmt"

	"go.opentelemetry.io/otel/trace"
)

// TicketTrace is the id of the trace of a ticket, as the same 32 hexadecimal digits in every role.
func TicketTrace(run, ticket string) string {
	return rootSpan("ticket", run, ticket).TraceID().String()
}

// StepTrace is the id of the trace of a step.
func StepTrace(run string, step int64) string { return stepSpan(run, step).TraceID().String() }

func ticketSpan(run, ticket string) trace.SpanContext { return rootSpan("ticket", run, ticket) }

func stepSpan(run string, step int64) trace.SpanContext {
	return rootSpan("step", run, fmt.Sprint(step))
}

// rootSpan is the span that begins the trace of a ticket or a step.
func rootSpan(kind, run, name string) trace.SpanContext {
	sum := sha256.Sum256([]byte("weir\x00" + kind + "\x00" + run + "\x00" + name))
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(sum[:16]), SpanID: trace.SpanID(sum[16:24]), TraceFlags: trace.FlagsSampled, Remote: true,
	})
}

// childSpan is a span of the same trace, by its parent and a name that is unique below it.
func childSpan(parent trace.SpanContext, name string) trace.SpanContext {
	id := parent.SpanID()
	sum := sha256.Sum256(append(id[:], name...))
	return parent.WithSpanID(trace.SpanID(sum[:8]))
}

// givenIDs has spans take the ids that were computed for them.
type givenIDs struct{}

// idKey is where a context has them.
type idKey struct{}

// NewIDs are the ids of a span without a parent.
func (givenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, _ := ctx.Value(idKey{}).(trace.SpanContext)
	return id.TraceID(), id.SpanID()
}

// NewSpanID is the id of a span with a parent.
func (givenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	id, _ := ctx.Value(idKey{}).(trace.SpanContext)
	return id.SpanID()
}
