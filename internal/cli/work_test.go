package cli

import (
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/streams/streamtest"
)

// Defect F8: every role called itself ready while nothing got done, and while the broker was away.
func TestReadinessTellsWhetherWorkGetsDone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	address := func() string { return streamtest.FreeAddress(t) }
	broker, look := address(), map[string]string{"broker": address(), "trainer": address(), "inference": address(), "producer": address()}
	start := func(role string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), binary(t), role, "--broker.listen", broker, "--broker.store_dir", dir+"/store", "--run.dir", dir,
			"--telemetry.listen", look[role], "--telemetry.stalled_after", "1s", "--trainer.cold_start.steps", "0",
			"--trainer.batch_groups", "2", "--trainer.group_size", "2", "--trainer.steps", "100000", "--eval.every", "0",
			"--trainer.selection.drop_zero_variance=false", "--model.hidden", "16", "--model.layers", "1")
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGKILL) }
		out := new(bytes.Buffer)
		c.Stdout, c.Stderr = out, out
		require.NoError(t, c.Start())
		t.Cleanup(func() {
			_ = c.Wait() // killed: that is the error
			if t.Failed() {
				t.Logf("%s: %s", role, out)
			}
		})
		return c
	}
	says := func(role string, ready bool, words string) {
		t.Helper()
		var code int
		var body string
		require.Eventually(t, func() bool {
			code, body = readyz(t, look[role])
			return (code == http.StatusOK) == ready && strings.Contains(body, words)
		}, 2*time.Minute, 50*time.Millisecond, "%s: %q: last %d %q", role, words, code, body)
	}
	b := start("broker")
	says("broker", true, "ready")
	start("trainer")
	says("trainer", false, "trainer: nothing was done for")
	says("trainer", false, "20 tickets wait for a producer, 0 are leased")

	start("inference")
	start("producer")
	says("trainer", true, "ready")
	says("producer", true, "ready")

	require.NoError(t, b.Process.Kill())
	for _, role := range []string{"trainer", "inference", "producer"} {
		says(role, false, "broker: nats://"+broker+" is away")
	}
	start("broker")
	for _, role := range []string{"broker", "trainer", "inference", "producer"} {
		says(role, true, "ready")
	}
}

// readyz is what a role's /readyz answers; a role that does not answer is not ready.
func readyz(t *testing.T, address string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	require.NoError(t, err)
	res, err := (&http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(body)
}
