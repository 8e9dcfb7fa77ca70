// Package tracing sends OpenTelemetry spans of each ticket's way, from its issue to the step that used its trajectory, by OTLP over
// HTTP. It alone links the OpenTelemetry SDK.
//
// The ids of a ticket's spans are computed from the run's name and the ticket's id, so that the roles need to tell one another
// nothing: the producer's spans find their parent, which the trainer sends when the trajectory has ended.
package tracing
