package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-rl/weir/internal/telemetry"
)

// Tracer sends the spans of a role. A nil Tracer sends none. It is safe for concurrent use and never waits for the receiver:
// a queue of bounded length holds the spans that are not sent yet, and spans that do not fit are left out.
type Tracer struct {
	run      string
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Role is the role that traces.
type Role struct {
	// Name is the role's, Worker the process's.
	Name, Worker string
	// Run and Version are the run's name and the program's version.
	Run, Version string
}

// Open begins to trace. It is nil where the configuration names no receiver. A receiver that is not there is no error: the log says
// so when the first spans cannot be sent, and again after each time that it was there.
func Open(ctx context.Context, cfg telemetry.TracingConfig, role Role, log *slog.Logger) (*Tracer, error) {
	if cfg.Endpoint == "" {
		return nil, nil
	}
	u, err := url.Parse(cfg.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint: %w", err)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithProxy(proxyOnlyTo(u)))
	if err != nil {
		return nil, fmt.Errorf("tracing.endpoint %s: %w", cfg.Endpoint, err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(&watched{SpanExporter: exporter, log: log, endpoint: u.Redacted()}),
		sdk.WithSampler(sdk.TraceIDRatioBased(cfg.Sample)),
		sdk.WithIDGenerator(givenIDs{}),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.namespace", "weir"), attribute.String("service.name", "weir-"+role.Name),
			attribute.String("service.instance.id", role.Worker), attribute.String("service.version", role.Version),
			attribute.String("weir.run", role.Run),
		)),
	)
	return &Tracer{run: role.Run, provider: provider, tracer: provider.Tracer("github.com/weir-rl/weir")}, nil
}

// proxyOnlyTo is the environment's choice of a proxy for requests to the receiver, and refuses all others: the headers of OTEL_EXPORTER_OTLP_HEADERS may
// hold keys, and net/http sends headers that it does not know as secrets along with a redirect. A client of its own would take away
// the certificates and times that the environment sets.
func proxyOnlyTo(receiver *url.URL) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		if r.URL.Scheme != receiver.Scheme || r.URL.Host != receiver.Host {
			return nil, fmt.Errorf("a redirect is not followed to another host, %s://%s: set tracing.endpoint to where the receiver is", r.URL.Scheme, r.URL.Host)
		}
		return http.ProxyFromEnvironment(r)
	}
}

// Close sends the spans that are left, as long as ctx lets it.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// span is a span that has ended.
type span struct {
	id     trace.SpanContext
	parent trace.SpanContext // the zero value begins a trace
	name   string
	from   time.Time
	to     time.Time
	// failed is why it came to nothing; "" where it did not.
	failed string
	links  []trace.SpanContext
	notes  []attribute.KeyValue
}

func (t *Tracer) sendSpans(s span) {
	if s.from.IsZero() || s.to.IsZero() {
		return // an end that nobody knows, as after a restart
	}
	if s.to.Before(s.from) {
		s.to = s.from // two machines' clocks
	}
	ctx := context.WithValue(context.Background(), idKey{}, s.id)
	if s.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, s.parent)
	}
	options := []trace.SpanStartOption{trace.WithTimestamp(s.from), trace.WithAttributes(s.notes...)}
	for _, l := range s.links {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: l}))
	}
	_, sent := t.tracer.Start(ctx, s.name, options...)
	if s.failed != "" {
		sent.SetStatus(codes.Error, s.failed)
	}
	sent.End(trace.WithTimestamp(s.to))
}

// watched tells the log of a receiver that takes no spans, once for each time.
type watched struct {
	sdk.SpanExporter
	log      *slog.Logger
	endpoint string
	away     atomic.Bool
}

// ExportSpans sends spans. Its errors end here: nobody else would tell of them.
func (w *watched) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := w.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !w.away.Swap(true):
		w.log.Warn("spans are lost: the receiver of traces does not take them", "tracing.endpoint", w.endpoint, "spans", len(spans), "err", err)
	case err == nil && w.away.Swap(false):
		w.log.Info("the receiver of traces takes spans again", "tracing.endpoint", w.endpoint)
	}
	return nil
}
