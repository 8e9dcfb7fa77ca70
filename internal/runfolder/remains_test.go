package runfolder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The folder of a run tells how the run stands where no broker does: whether it began, when it last wrote, at which step, and how it ended.
func TestAFolderTellsHowItsRunEnded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	step := `{"at":"2026-01-02T03:00:00Z","type":"step_done","step":%,"policy_version":1,"metrics":{}}` + "\n"
	for name, c := range map[string]struct {
		config, metrics, log string
		age                  time.Duration
		noted                string
		up                   bool
		want, never          string
	}{
		"never":    {want: "has not begun on this machine"},
		"starting": {config: "trainer: {steps: 4}", age: time.Minute, want: "no step is done; there is no checkpoint|may be starting"},
		"refused": {
			config: "trainer: {steps: 4}", age: time.Hour, log: `{"level":"ERROR","msg":"no device","err":"cuda"}`,
			want: "last written to 1h0m ago|no step is done|ended before its first step|newest error in |no device err=cuda",
		},
		"stopped":  {config: "trainer: {steps: 4}", age: time.Hour, metrics: "3", want: "step 3 of 4 is done, 4m0s ago|ended before its last step"},
		"killed":   {config: "trainer: {steps: 4}", age: time.Hour, metrics: "3", noted: "nats://gone", want: "was killed, .* nats://gone, which does not answer"},
		"up":       {config: "trainer: {steps: 4}", age: time.Hour, noted: "nats://here", up: true, want: "is up: its broker answers at nats://here", never: "killed"},
		"finished": {config: "trainer: {steps: 4}", age: time.Hour, metrics: "4", log: `{"level":"ERROR","msg":"x"}`, want: "step 4 of 4 is done|finished", never: "newest error"},
		"unknown":  {metrics: "7", age: time.Hour, want: "step 7 is done, 4m0s ago"},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{ConfigFile: c.config, MetricsFile: c.metrics, LogFile: c.log} {
			if text == "" {
				continue
			}
			if file == MetricsFile {
				text = strings.Replace(step, "%", text, 1)
			}
			path := filepath.Join(dir, file)
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			require.NoError(t, os.Chtimes(path, now, now.Add(-c.age)))
		}
		r := ReadRemains(Run{Name: name, Dir: dir})
		r.Noted, r.Up = c.noted, c.up
		told := strings.Join(r.Lines(now), "\n")
		for want := range strings.SplitSeq(c.want, "|") {
			require.Regexp(t, want, told, name)
		}
		if c.never != "" {
			require.NotContains(t, told, c.never, name)
		}
	}
}
