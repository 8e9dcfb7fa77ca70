package mutants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// target is a part of the core and the tests that should hold it.
type target struct {
	name string
	// files are patterns of the sources, relative to the module.
	files []string
	// tests are arguments of go test: flags, then packages. Each element is a run of its own, cheapest first.
	tests [][]string
}

// allTargets are the parts that a user's trust rests on.
func allTargets() []target {
	return []target{
		{"admission", []string{"trainer/admission/*.go"}, [][]string{{"./trainer/admission"}}},
		{"batch", []string{"trainer/batch/*.go"}, [][]string{{"./trainer/batch"}}},
		{"checkpoint", []string{"trainer/checkpoint/*.go"}, [][]string{{"./trainer/checkpoint"}}},
		{"loss", []string{"trainer/loss/*.go"}, [][]string{{"./trainer/loss"}, {"./internal/goldentest"}}},
		{"lease", []string{"streams/lease.go", "streams/source.go"}, [][]string{
			{"-run", "Lease|Ticket|Producer|ConformanceEmbedded/.*(ticket|lease|producer)", "./streams", "./producers"},
			{"-run", "ConformanceEmbedded", "./streams"},
		}},
		{"feed", []string{"streams/feed.go", "streams/book.go"}, [][]string{
			{"-run", "Feed|Book|Model", "./streams"},
			{"-run", "ConformanceEmbedded", "./streams"},
		}},
	}
}

type verdict int

const (
	notCompiled verdict = iota
	killedByTest
	tooSlow
	survived
)

// checkTestsPass fails unless the target's tests pass as the tree stands.
func (t target) checkTestsPass(ctx context.Context, dir string, patience time.Duration) error {
	for _, tests := range t.tests {
		if out, err := runTests(ctx, dir, patience, tests...); err != nil {
			return fmt.Errorf("the tests fail before anything is changed: %w\n%s", err, out)
		}
	}
	return nil
}

// tryMutant runs the target's tests on a mutant.
func (t target) tryMutant(ctx context.Context, dir string, m mutant, patience time.Duration) (verdict, error) {
	changed, err := m.changedSource()
	if err != nil {
		return 0, err
	}
	scratch, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	file, err := filepath.Abs(m.file)
	if err != nil {
		return 0, err
	}
	mutated, overlay := filepath.Join(scratch, filepath.Base(file)), filepath.Join(scratch, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	if err != nil {
		return 0, err
	}
	if err := errors.Join(os.WriteFile(mutated, changed, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return 0, err
	}
	for _, tests := range t.tests {
		out, err := runTests(ctx, dir, patience, append([]string{"-overlay", overlay}, tests...)...)
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err == nil:
			continue
		case errors.Is(err, errTooSlow) || strings.Contains(out, "panic: test timed out"):
			return tooSlow, nil
		case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
			return notCompiled, nil
		case errors.As(err, &exit):
			return killedByTest, nil
		}
		return 0, err
	}
	return survived, nil
}

var errTooSlow = errors.New("the tests did not end")

// runTests runs go test in dir and returns its output.
func runTests(ctx context.Context, dir string, patience time.Duration, args ...string) (string, error) {
	limited, cancel := context.WithTimeoutCause(ctx, patience+time.Minute, errTooSlow)
	defer cancel()
	c := exec.CommandContext(limited, "go", append([]string{
		"test", "-count=1", "-failfast", "-vet=off", "-timeout=" + patience.String(),
	}, args...)...)
	c.Dir = dir
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	if err != nil && errors.Is(context.Cause(limited), errTooSlow) {
		err = errTooSlow
	}
	return out.String(), err
}
