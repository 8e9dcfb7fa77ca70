package deploy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
)

// The stack is built from a binary of this machine, so that no image is pulled, and brought up under a name of its
// own: broker, trainer, inference and two producers. They learn three small steps over the wire.
func TestComposeStackTrains(t *testing.T) {
	t.Parallel()
	engineOrSkip(t)
	buildBinary(t)
	s := newStack(t)
	s.compose(t.Context(), "build", "broker")
	out := s.docker(t.Context(), "run", "--rm", s.project, "version")
	require.Regexp(t, `^weir \S+ \(\S+\)`, out)
	if !fulltest.Enabled() {
		return // the image is built and its binary starts
	}

	ctx := t.Context() // what is awaited below has no limit but the package's
	s.compose(ctx, "up", "--detach", "--no-build", "--scale", "producer=2", "broker", "trainer", "inference", "producer")

	code := s.docker(ctx, "wait", s.container(ctx, "trainer", 1))
	require.Equal(t, "0", strings.TrimSpace(code), "the trainer ends by itself when its steps are done")
	audit := s.compose(ctx, "run", "--rm", "--no-deps", "-T", "trainer", "audit")
	require.Contains(t, audit, "steps 3,")
	require.Contains(t, audit, "audit: twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0")
	status := s.compose(ctx, "exec", "-T", "broker", "/weir", "status")
	require.Regexp(t, `policy version\s+│ 3`, status)

	// The image's other roles go on after the training is done, and show what they did.
	s.until(ctx, "inference applies version 3", func() bool {
		return s.metric(ctx, "inference", 1, "weir_inference_applied_version") == 3
	})
	for i := range 2 {
		require.Positive(t, s.metric(ctx, "producer", i+1, "weir_producer_episodes_total"), "producer %d takes its share", i+1)
	}
	require.Positive(t, s.metric(ctx, "broker", 1, "weir_build_info"))
	models, err := s.page(ctx, "inference", 1, 8000, "/v1/models")
	require.NoError(t, err)
	require.Contains(t, models, `"weir"`)
}

// engineOrSkip asks for a Docker engine. Without one there is nothing to bring the stack up on.
func engineOrSkip(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "version", "--format", "{{.Server.Version}}").CombinedOutput()
	if err != nil {
		t.Skipf("no Docker engine answers, so the stack was not brought up: docker version: %v: %s", err, bytes.TrimSpace(out))
	}
	if _, _, err := composeCommand(t.Context()); err != nil {
		t.Skipf("a Docker engine answers, but neither docker compose nor docker-compose is there: %v", err)
	}
}

// composeCommand is the compose that is installed: the plugin, or the older program.
func composeCommand(ctx context.Context) (string, []string, error) {
	if exec.CommandContext(ctx, "docker", "compose", "version").Run() == nil {
		return "docker", []string{"compose"}, nil
	}
	_, err := exec.LookPath("docker-compose")
	return "docker-compose", nil, err
}

// buildBinary puts the static binary where the image's host target takes it.
func buildBinary(t *testing.T) {
	t.Helper()
	require.NoError(t, os.MkdirAll("bin", 0o755))
	// Beside its place and then renamed, so that two tests that build at once do not see half of it.
	beside, err := os.MkdirTemp("bin", "made-") //nolint:usetesting // a rename stays within a file system
	require.NoError(t, err)
	defer func() { _ = os.RemoveAll(beside) }()
	made := filepath.Join(beside, "weir")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join("deploy", made), "./cmd/weir")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Rename(made, filepath.Join("bin", "weir")))
}

// stack is one compose project.
type stack struct {
	t       *testing.T
	project string
	env     []string
	// files are the compose files, each over those before it.
	files []string
}

// newStack is a project with an image, volumes and a network of its own, of which nothing is left after the test. Over are compose files
// between the stack's and the test's.
func newStack(t *testing.T, over ...string) *stack {
	t.Helper()
	s := &stack{t: t, project: fmt.Sprintf("weir-test-%d-%d", os.Getpid(), time.Now().UnixNano())}
	s.files = append(append([]string{"docker-compose.yml"}, over...), "deploy/testdata/small.yml")
	s.env = append(os.Environ(), "WEIR_BUILD_TARGET=host", "WEIR_IMAGE="+s.project, "WEIR_TEST_IMAGE="+s.project, "WEIR_VIEW_PORT=127.0.0.1:", "DOCKER_BUILDKIT=0",
		"COMPOSE_PROJECT_NAME="+s.project, "COMPOSE_INTERACTIVE_NO_CLI=1")
	t.Cleanup(s.remove)
	return s
}

// compose runs one compose command and returns what it printed.
func (s *stack) compose(ctx context.Context, args ...string) string {
	s.t.Helper()
	name, first, err := composeCommand(ctx)
	require.NoError(s.t, err)
	return s.command(ctx, name, append(append(first, s.over()...), args...)...)
}

// over are the flags that name the compose files.
func (s *stack) over() (flags []string) {
	for _, file := range s.files {
		flags = append(flags, "-f", file)
	}
	return flags
}

func (s *stack) docker(ctx context.Context, args ...string) string {
	s.t.Helper()
	return s.command(ctx, "docker", args...)
}

func (s *stack) command(ctx context.Context, name string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = "..", s.env
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		s.t.Fatalf("%s %s: %v\n%s%s\n%s", name, strings.Join(args, " "), err, out.String(), problems.String(), s.logs())
	}
	return out.String()
}

// logs are the last lines of every container, for a failure's report.
func (s *stack) logs() string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var all strings.Builder
	ids, _ := exec.CommandContext(ctx, "docker", "ps", "-aq", "--filter", "label=com.docker.compose.project="+s.project).Output()
	for id := range strings.FieldsSeq(string(ids)) {
		text, _ := exec.CommandContext(ctx, "docker", "logs", "--tail", "20", id).CombinedOutput()
		fmt.Fprintf(&all, "-- container %s\n%s\n", id, text)
	}
	return all.String()
}

// remove leaves nothing behind: containers, network, volumes, image.
func (s *stack) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	name, first, err := composeCommand(ctx)
	require.NoError(s.t, err)
	args := append(append(first, s.over()...), "down", "--volumes", "--remove-orphans", "--timeout", "2")
	for _, c := range [][]string{append([]string{name}, args...), {"docker", "image", "rm", "--force", s.project}} {
		cmd := exec.CommandContext(ctx, c[0], c[1:]...)
		cmd.Dir, cmd.Env = "..", s.env
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Errorf("clean up: %s: %v\n%s", strings.Join(c, " "), err, out)
		}
	}
}

// container is the id of a service's nth container.
func (s *stack) container(ctx context.Context, service string, n int) string {
	s.t.Helper()
	ids := strings.Fields(s.docker(ctx, "ps", "-aq", "--filter", "label=com.docker.compose.project="+s.project,
		"--filter", "label=com.docker.compose.service="+service, "--filter", "label=com.docker.compose.container-number="+strconv.Itoa(n)))
	require.Len(s.t, ids, 1, "containers of %s %d", service, n)
	return ids[0]
}

// page reads a page of a service from outside the stack.
func (s *stack) page(ctx context.Context, service string, n, port int, path string) (string, error) {
	s.t.Helper()
	cmd := exec.CommandContext(ctx, "docker", "port", s.container(ctx, service, n), strconv.Itoa(port))
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask for the port of %s: %w", service, err)
	}
	address, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", service, path, res.Status, body)
	}
	return string(body), err
}

// metric is the sum of a metric over its labels.
func (s *stack) metric(ctx context.Context, service string, n int, name string) float64 {
	s.t.Helper()
	page, err := s.page(ctx, service, n, 9090, "/metrics")
	require.NoError(s.t, err)
	sum, found := sumOf(page, name)
	require.True(s.t, found, "%s shows %s", service, name)
	return sum
}

// sumOf is the sum of a metric over its labels, as a page of metrics shows it.
func sumOf(page, name string) (sum float64, found bool) {
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || !strings.HasPrefix(rest, " ") && !strings.HasPrefix(rest, "{") {
			continue
		}
		if value, err := strconv.ParseFloat(rest[strings.LastIndex(rest, " ")+1:], 64); err == nil {
			sum, found = sum+value, true
		}
	}
	return sum, found
}

// until asks again and again until it is so.
func (s *stack) until(ctx context.Context, what string, so func() bool) {
	s.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-ctx.Done():
			s.t.Fatalf("%s: %v\n%s", what, context.Cause(ctx), s.logs())
		case <-tick.C:
		}
	}
}
