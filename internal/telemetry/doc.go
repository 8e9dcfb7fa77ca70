// Package telemetry is how a process shows itself: structured logs, Prometheus metrics, health and readiness
// over HTTP.
package telemetry
