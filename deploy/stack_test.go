package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
)

// All that an operator does to a stack while it trains: more and fewer producers and inference consumers, a container of each role
// killed, each role replaced by a container of another image. Then the run is ended, and the record of all of it is audited.
func TestComposeStackIsScaledKilledAndUpgradedWhileItTrains(t *testing.T) {
	t.Parallel()
	engineOrSkip(t)
	fulltest.Need(t, "minutes of a stack of containers; TestComposeStackTrains builds the image and starts its binary")
	buildBinary(t)
	s := newStack(t)
	s.compose(t.Context(), "build", "broker")
	before := s.project + "-before"                                                          // another name of the same image, from which each role is replaced
	t.Cleanup(func() { _ = exec.Command("docker", "image", "rm", "--force", before).Run() }) // there may be none
	s.docker(t.Context(), "tag", s.project, before)

	ctx := t.Context() // what is awaited below has no limit but the package's
	services := []string{"keys", "broker", "trainer", "inference", "producer"}
	up := func(image, steps string, args ...string) {
		s.env = append(s.env, "WEIR_IMAGE="+image, "WEIR_TEST_STEPS="+steps) // of a name that stands twice the last counts
		s.compose(ctx, append([]string{"up", "--detach", "--no-build"}, args...)...)
	}
	const endless = "1000000"
	up(before, endless, services...)
	s.trains(ctx, "the stack")

	up(before, endless, append([]string{"--no-recreate", "--scale", "producer=4", "--scale", "inference=2"}, services...)...)
	for n := range 4 {
		s.until(ctx, fmt.Sprintf("producer %d takes tickets", n+1), func() bool {
			return s.shows(ctx, "producer", n+1, "weir_producer_episodes_total")
		})
	}
	s.until(ctx, "the second inference consumer samples", func() bool {
		return s.shows(ctx, "inference", 2, "weir_inference_tokens_total")
	})

	since := s.now(ctx)
	up(before, endless, append([]string{"--no-recreate", "--scale", "producer=1", "--scale", "inference=1"}, services...)...)
	s.trains(ctx, "the stack made smaller")
	ended := strings.Fields(s.docker(ctx, "events", "--since", since, "--until", s.now(ctx), "--filter", "event=die",
		"--filter", "label=com.docker.compose.project="+s.project,
		"--format", `{{index .Actor.Attributes "com.docker.compose.service"}}={{.Actor.Attributes.exitCode}}`))
	ended = slices.DeleteFunc(ended, func(e string) bool { return e == "keys=0" }) // it looks at the keys at each up
	require.ElementsMatch(t, []string{"inference=0", "producer=0", "producer=0", "producer=0"}, ended, "three producers and an inference consumer drained and ended in order")

	for _, role := range []string{"producer", "inference", "trainer", "broker"} {
		s.docker(ctx, "kill", s.container(ctx, role, 1))
		s.docker(ctx, "start", s.container(ctx, role, 1))
		s.trains(ctx, "the stack whose "+role+" was killed")
	}

	// The order of docs/upgrading.md.
	for _, role := range []string{"broker", "inference", "producer"} {
		up(s.project, endless, "--no-deps", role)
		s.trains(ctx, "the stack with a new "+role)
	}
	s.compose(ctx, "up", "--detach", "--no-build", "--no-deps", "view")
	s.until(ctx, "the page of the run is served", func() bool {
		page, err := s.page(ctx, "view", 1, 8686, "/")
		return err == nil && strings.Contains(page, "<html")
	})
	last := s.version(ctx) + 20
	up(s.project, fmt.Sprint(last), "--no-deps", "trainer")
	code := s.docker(ctx, "wait", s.container(ctx, "trainer", 1))
	require.Equal(t, "0", strings.TrimSpace(code), "the trainer ends by itself when its steps are done")

	var audit struct {
		OK    bool
		Steps int64
	}
	text := s.compose(ctx, "run", "--rm", "--no-deps", "-T", "trainer", "audit", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(text), &audit), text)
	require.True(t, audit.OK, text)
	require.GreaterOrEqual(t, audit.Steps, last, text)
	require.Contains(t, s.compose(ctx, "exec", "-T", "broker", "/weir", "inspect", "rejected", "--reason", "version"), "nothing was refused",
		"no message came that its reader could not read")
	// A role's container has its own key and no other.
	mounts := s.docker(ctx, "inspect", "--format", `{{range .Mounts}}{{.Destination}} {{end}}`, s.container(ctx, "producer", 1))
	require.Equal(t, "/keys/producer", strings.TrimSpace(mounts))
}

// shows says whether a metric is above 0; a container that does not answer yet shows none.
func (s *stack) shows(ctx context.Context, service string, n int, name string) bool {
	page, err := s.page(ctx, service, n, 9090, "/metrics")
	if err != nil {
		return false
	}
	value, found := sumOf(page, name)
	return found && value > 0
}

// version is the newest policy version, -1 while the broker or the trainer does not tell.
func (s *stack) version(ctx context.Context) int64 {
	name, first, err := composeCommand(ctx)
	require.NoError(s.t, err)
	args := append(append(first, s.over()...), "exec", "-T", "broker", "/weir",
		"status", "-o", "json", "--broker.seed_file", "/keys/ring/viewer.seed") // the build before does not find it by itself
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = "..", s.env
	out, err := cmd.Output()
	var now struct {
		PolicyVersion int64 `json:"policy_version"`
	}
	if err != nil || json.Unmarshal(out, &now) != nil {
		return -1
	}
	return now.PolicyVersion
}

// trains waits for steps that began after now: two, of which the first may have been under way.
func (s *stack) trains(ctx context.Context, what string) {
	s.t.Helper()
	began, from := time.Now(), int64(-1)
	s.until(ctx, what+" trains", func() bool {
		now := s.version(ctx)
		if from < 0 {
			from = now
		}
		return from >= 0 && now >= from+3
	})
	s.t.Logf("%s trains, %s", what, time.Since(began).Round(100*time.Millisecond))
}

// now is the engine's time, which need not be this machine's.
func (s *stack) now(ctx context.Context) string {
	s.t.Helper()
	return strings.TrimSpace(s.docker(ctx, "info", "--format", "{{.SystemTime}}"))
}
