package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/telemetry"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/evaluation"
	"github.com/weir-rl/weir/producers/toolworker"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/trainer"
	"github.com/weir-rl/weir/trainer/archive/archiver"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Metric is a Prometheus metric.
type Metric struct {
	// Role is the subcommand that shows it, "every role" for metrics that all roles show.
	Role string
	// Name begins with weir_. Type is counter, gauge or histogram.
	Name, Type, Help string
	Labels           []string
}

// Collectors are every metric of Weir's own, by role, then by name.
func Collectors() ([]Metric, error) {
	var all []Metric
	for _, role := range []struct {
		name string
		make func(prometheus.Registerer) error
	}{
		{"every role", func(r prometheus.Registerer) error { return r.Register(telemetry.NewRegistry("", "")) }},
		{"trainer", func(r prometheus.Registerer) error { _, err := trainer.NewMetrics(r); return err }},
		{"trainer", func(r prometheus.Registerer) error { _, err := evaluation.NewAccount(r); return err }},
		{"producer", func(r prometheus.Registerer) error { _, err := producers.NewMetrics(r); return err }},
		{"producer", func(r prometheus.Registerer) error { _, err := evaluation.NewMetrics(r); return err }},
		{"tools", func(r prometheus.Registerer) error { _, err := toolworker.NewMetrics(r); return err }},
		{"archive", func(r prometheus.Registerer) error { _, err := archiver.NewMetrics(r); return err }},
		{"inference", func(r prometheus.Registerer) error { _, err := consumers.NewMetrics(r); return err }},
		{"broker", func(r prometheus.Registerer) error { return r.Register(constant{broker.NewMetrics(nil)}) }},
	} {
		list := recorder{role: role.name}
		if err := role.make(&list); err != nil {
			return nil, fmt.Errorf("make the metrics of %s: %w", role.name, err)
		}
		if list.err != nil {
			return nil, list.err
		}
		slices.SortFunc(list.metrics, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
		all = append(all, list.metrics...)
	}
	return all, nil
}

// constant is a collector that makes its values when it is asked, so that only their names tell their types.
type constant struct{ prometheus.Collector }

// recorder is a registerer that notes the collectors.
type recorder struct {
	role    string
	metrics []Metric
	err     error
}

// Register notes a collector.
func (r *recorder) Register(c prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		c.Describe(descriptions)
	}()
	for d := range descriptions {
		m, err := readDescription(d)
		if err != nil {
			r.err = err
			continue
		}
		if !strings.HasPrefix(m.Name, "weir_") {
			continue // of the Go runtime and the process
		}
		m.Role = r.role
		if m.Type, err = typeOf(c, m.Name); err != nil {
			r.err = err
		}
		r.metrics = append(r.metrics, m)
	}
	return nil
}

// MustRegister notes collectors.
func (r *recorder) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		r.Register(c) //nolint:errcheck // it keeps the error
	}
}

// Unregister does nothing.
func (r *recorder) Unregister(prometheus.Collector) bool { return false }

var descPattern = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"),(?: unit: "[^"]*",)? constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// readDescription reads a description; the client library shows its parts as text only.
func readDescription(d *prometheus.Desc) (Metric, error) {
	parts := descPattern.FindStringSubmatch(d.String())
	if parts == nil {
		return Metric{}, fmt.Errorf("read the description of a metric: %s", d)
	}
	name, err := strconv.Unquote(parts[1])
	if err != nil {
		return Metric{}, err
	}
	help, err := strconv.Unquote(parts[2])
	if err != nil {
		return Metric{}, err
	}
	m := Metric{Name: name, Help: help}
	for pair := range strings.SplitSeq(parts[3], ",") {
		if label, _, ok := strings.Cut(pair, "="); ok {
			m.Labels = append(m.Labels, label)
		}
	}
	for label := range strings.SplitSeq(parts[4], ",") {
		if label != "" {
			m.Labels = append(m.Labels, label)
		}
	}
	return m, nil
}

func typeOf(c prometheus.Collector, name string) (string, error) {
	switch c := c.(type) {
	case constant:
		if strings.HasSuffix(name, "_total") {
			return "counter", nil
		}
		return "gauge", nil
	case *prometheus.CounterVec:
		return "counter", nil
	case *prometheus.GaugeVec, prometheus.Gauge:
		return "gauge", nil
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram", nil
	case prometheus.Counter:
		return "counter", nil
	case *prometheus.Registry:
		families, err := c.Gather()
		if err != nil {
			return "", err
		}
		for _, f := range families {
			if f.GetName() == name {
				return strings.ToLower(f.GetType().String()), nil
			}
		}
	}
	return "", fmt.Errorf("%s: of a type that this page does not know, or shown only after its first value", name)
}

const metricsHead = `# Metrics

A role shows its own at ` + "`/metrics` on `telemetry.listen`" + ` (Prometheus), with those of the Go runtime and the process.
` + "`deploy/prometheus` scrapes them, `deploy/grafana`" + ` draws them. The trainer also writes what each step came to in
` + "`runs/<run>/metrics.jsonl`" + `: the second half of this page.

`

const jsonHead = `## metrics.jsonl

One JSON object a line: ` + "`at`, `type`, `step`, `policy_version` and `metrics`" + `, a flat map of the keys below. A run that
goes on after a crash goes on in the same file; where a step stands twice, the later line counts. Values that JSON cannot
hold are left out. The types are ` + "`step_done`" + ` (a step of training), ` + "`evaluated`" + ` (a score on the validation split),
` + "`tested`" + ` (the final report of ` + "`weir up`) and `run_done`" + ` (no keys).

`

// Metrics writes the reference of a run's measurements, and of the alerts of a module's folder.
func Metrics(root string) ([]byte, error) {
	var b strings.Builder
	b.WriteString(generated + metricsHead)
	all, err := Collectors()
	if err != nil {
		return nil, err
	}
	b.WriteString("## What to look at first\n\n")
	var rows [][]string
	for _, a := range Advices() {
		rows = append(rows, []string{a.See, a.Means, a.Do})
	}
	writeTable(&b, []string{"what you see", "what it means", "what to do"}, rows)
	if err := writeAlerts(&b, root); err != nil {
		return nil, err
	}
	role := ""
	rows = nil
	for i, m := range all {
		if m.Role != role {
			fmt.Fprintf(&b, "## Prometheus: %s\n\n", m.Role)
			role = m.Role
		}
		labels := ""
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(slices.Sorted(slices.Values(m.Labels)), "`, `") + "`"
		}
		rows = append(rows, []string{"`" + m.Name + "`", m.Type, labels, m.Help})
		if i+1 == len(all) || all[i+1].Role != role {
			writeTable(&b, []string{"metric", "type", "labels", "what it is"}, rows)
			rows = nil
		}
	}
	b.WriteString(jsonHead)
	for _, g := range metrics.Groups() {
		fmt.Fprintf(&b, "### %s\n\n", g.Title)
		rows = nil
		for _, k := range g.Keys {
			rows = append(rows, []string{"`" + k.Name + "`", k.Unit, k.Help})
		}
		writeTable(&b, []string{"key", "unit", "what it is"}, rows)
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "\n"), nil
}
