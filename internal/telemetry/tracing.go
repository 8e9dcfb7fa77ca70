package telemetry

import (
	"net/url"

	"github.com/weir-rl/weir/internal/check"
)

// TracingConfig says where traces go: the way of each ticket, from its issue to the step that used its trajectory.
type TracingConfig struct {
	// Endpoint is an OpenTelemetry receiver that takes OTLP over HTTP, such as http://collector:4318; "" traces nothing.
	// Its path is /v1/traces unless it names another. Headers that it wants go into OTEL_EXPORTER_OTLP_HEADERS.
	// Defaults to "".
	Endpoint string `koanf:"endpoint"`
	// Sample is the share of tickets and steps that are traced, above 0 and at most 1. Every role picks the same ones.
	// Defaults to 1.
	Sample float64 `koanf:"sample"`
}

// DefaultTracingConfig traces nothing.
func DefaultTracingConfig() TracingConfig { return TracingConfig{Sample: 1} }

// Unread says why nothing depends on a key of the section, beginning with the other key that says so; "" if something does.
func (c TracingConfig) Unread(key string) string {
	if key != "endpoint" && c.Endpoint == "" {
		return "endpoint is empty"
	}
	return ""
}

// Validate reports every fault.
func (c TracingConfig) Validate() error {
	u, err := url.Parse(c.Endpoint)
	return check.All(
		check.That(c.Endpoint == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "",
			"endpoint", "%q: want the address of an OTLP receiver over HTTP, such as http://collector:4318", c.Endpoint),
		check.That(c.Sample > 0 && c.Sample <= 1, "sample", "%v: must be above 0 and at most 1; an empty endpoint traces nothing", c.Sample),
	)
}
