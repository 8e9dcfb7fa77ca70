package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/ports"
)

// Every alert fires on what it is for and is silent beside it, as promtool finds by alerts_test.yml, which names each.
func TestAlertsFireOnWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	cases, err := os.ReadFile(filepath.Join("prometheus", "alerts_test.yml"))
	require.NoError(t, err)
	for _, rule := range rules(t) {
		require.Contains(t, string(cases), fmt.Sprintf("alertname: %s\n", rule["alert"]), "alerts_test.yml has no case in which the alert fires")
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("no promtool (Debian's package prometheus): the alerts were not tried")
	}
	cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", "alerts_test.yml")
	cmd.Dir = "prometheus"
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd = exec.CommandContext(t.Context(), promtool, "check", "config", "prometheus.yml")
	cmd.Dir = "prometheus"
	out, err = cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// mayBeEmpty is what a sound run on this machine shows nothing of: it has no GPU, no server of vLLM or SGLang, no tool worker and no archive of
// its own, its groups do not branch, and nothing in it fails.
var mayBeEmpty = regexp.MustCompile(`DCGM_|weir_archive_|weir_producer_dropped_total|weir_producer_sessions_unclosed_total|weir_producer_forks_total|weir_trainer_rejected_total` +
	`|weir_inference_(server_|weight_checks_)|weir_tool_|weir_trainer_mismatch_(mean|ess)|outcome="error"|(sum|max) by \((stream|le)\).*(limit_messages|publish_seconds_bucket\[10m\])`)

// versionsAwaited bounds, by what the run has done, how long an expression that shows nothing is asked again.
const versionsAwaited = 2000

// Every expression of the dashboards is evaluated by a Prometheus that scrapes a run, and answers with numbers; every expression of
// the alerts is evaluated too, and none of them holds.
func TestDashboardsShowARun(t *testing.T) {
	t.Parallel()
	fulltest.Need(t, "a run and a Prometheus beside it")
	prometheus, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("no prometheus (Debian's package of that name): the dashboards' expressions were not evaluated")
	}
	buildBinary(t)
	ctx := t.Context() // what is awaited below has no limit but the package's
	dir := t.TempDir()
	shown, asked := reserved(t), reserved(t)
	weir, err := filepath.Abs(filepath.Join("bin", "weir"))
	require.NoError(t, err)
	start(t, dir, nil, weir, "up", "--run.dir", dir, "--telemetry.listen", shown, "--broker.listen", "127.0.0.1:0", "--view.listen", "127.0.0.1:0",
		"--trainer.steps", "1000000", "--trainer.cold_start.steps", "200", "--trainer.batch_groups", "4", "--trainer.group_size", "4",
		"--trainer.minibatches", "1", "--trainer.selection.drop_zero_variance=false", "--trainer.limits.max_tokens", "64",
		"--eval.every", "0", "--producer.concurrency", "8", "--inference.slots", "32")
	config := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 1s}
scrape_configs:
  - job_name: weir
    static_configs: [{targets: [%q], labels: {role: up}}]
`, shown), 0o600))
	start(t, dir, nil, prometheus, "--config.file", config, "--storage.tsdb.path", filepath.Join(dir, "tsdb"), "--web.listen-address", asked)

	ask := func(expr string) (int, error) { return query(ctx, "http://"+asked, expr) }
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	// Rates need two scrapes with something done between them.
	for n := 0; n == 0; n, _ = ask("rate(weir_trainer_steps_total[30s]) > 0 and weir_trainer_policy_version > 5") {
		select {
		case <-ctx.Done():
			t.Fatal("the run takes no step, or is not scraped")
		case <-tick.C:
		}
	}
	seen, missing := 0, []string{}
	for _, e := range dashboardExpressions(t) {
		n, err := ask(strings.ReplaceAll(e, "$__rate_interval", "30s"))
		require.NoError(t, err, e)
		if mayBeEmpty.MatchString(e) {
			continue
		}
		late := 0
		for ; n == 0 && late == 0; n, _ = ask(strings.ReplaceAll(e, "$__rate_interval", "30s")) { // a busy machine does less in 30 seconds
			select {
			case <-ctx.Done():
				t.Fatalf("nothing is shown by %s", e)
			case <-tick.C:
			}
			late, _ = ask(fmt.Sprintf("weir_trainer_policy_version > %d", versionsAwaited))
		}
		if n == 0 {
			missing = append(missing, e)
		}
		seen++
	}
	require.Empty(t, missing, "nothing is shown by these after %d versions", versionsAwaited)
	require.Greater(t, seen, 80)
	for _, rule := range rules(t) {
		n, err := ask(rule["expr"].(string))
		require.NoError(t, err, rule["alert"])
		if rule["for"] == nil || rule["labels"].(map[string]any)["severity"] == "critical" && rule["alert"] != "WeirNoStep" {
			require.Zero(t, n, "%s holds of a sound run", rule["alert"])
		}
	}
}

// start runs a program until the test ends.
func start(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(dir, filepath.Base(name)+".log"))
	require.NoError(t, err)
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, append(os.Environ(), env...), log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = cmd.Wait()                          // how it ended does not matter
		_ = log.Close()                         // it was only for a failure's report
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s\n%s", name, text[max(0, len(text)-4000):])
		}
	})
}

func reserved(t *testing.T) string {
	t.Helper()
	p, err := ports.Reserve()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Release()) })
	return p.Address
}

// query is how many series an expression has now, and an error if it is none.
func query(ctx context.Context, server, expr string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/api/v1/query?"+url.Values{"query": {expr}}.Encode(), http.NoBody)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []json.RawMessage }
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return 0, err
	}
	if answer.Status != "success" {
		return 0, fmt.Errorf("%s: %s", expr, answer.Error)
	}
	return len(answer.Data.Result), nil
}
