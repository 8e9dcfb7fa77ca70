package code

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/sandbox"
	"github.com/weir-rl/weir/producers/sandbox/workspace"
)

var (
	//go:embed judge.py
	judge string
	//go:embed child.py
	child string
)

// job is the judge's input.
type job struct {
	Site    bool      `json:"site"`
	Alone   bool      `json:"alone"` // in a process namespace: all that is left of a test can be ended
	Timeout float64   `json:"timeout"`
	Entry   string    `json:"entry"`
	Child   string    `json:"child"`
	Tests   []jobTest `json:"tests"`
	Code    []string  `json:"code"`
}

// jobTest has no output that is expected: that stays here.
type jobTest struct {
	Input string            `json:"input"`
	Args  []json.RawMessage `json:"args"`
	Most  int               `json:"most"` // bytes of the output that are read
}

// told is a line of the judge's.
type told struct {
	Begun   bool            `json:"begun"`
	Test    *int            `json:"test"`
	Out     *string         `json:"out"`
	Value   json.RawMessage `json:"value"`
	Passed  bool            `json:"passed"`
	Tests   *int            `json:"tests"`
	Machine string          `json:"machine"`
	Lost    string          `json:"lost"`
	Broken  string          `json:"broken"`
}

// verdict is the result of a program.
type verdict struct{ passed, of int }

const (
	// slack is how many bytes are read beyond twice the expected output, and mostRead the most that are read.
	slack    = 4096
	mostRead = 1 << 20
	// mostTold bounds the judge's report.
	mostTold = 64 << 20
	// startTime is the time of the judge's own start beside the programs' time.
	startTime = 10 * time.Second
)

// errBroken is of tests that are at fault themselves.
var errBroken = errors.New("the prompt's tests are broken")

// testProgram tests a program. Its error is the machinery's, or errBroken.
func (r *Reward) testProgram(ctx context.Context, episode, program string, tests *suite) (verdict, error) {
	pool, err := r.spaces.Ready(ctx)
	if err != nil {
		return verdict{}, err
	}
	j := job{Site: r.cfg.Site, Alone: pool.Tier() == sandbox.TierFull, Timeout: r.cfg.TestTimeout.Seconds(), Entry: tests.entry, Child: child, Tests: []jobTest{}, Code: append([]string{}, tests.code...)}
	room := 64 << 10
	for _, t := range tests.tests {
		one := jobTest{Most: min(2*len(t.Output)+slack, mostRead)}
		if j.Entry == "" {
			one.Input = programText(t.Input)
		} else {
			one.Args = callArguments(t)
		}
		j.Tests = append(j.Tests, one)
		room += 6*one.Most + 1024
	}
	stdin, err := json.Marshal(j)
	if err != nil {
		return verdict{}, fmt.Errorf("write the tests: %w", err)
	}
	command := producers.Command{
		Argv: []string{"python3", "-I", "-S", "-c", judge}, Stdin: stdin, Files: map[string][]byte{"solution.py": []byte(program)},
		Timeout: r.cfg.Timeout + startTime, Output: min(room+1024*len(j.Code), mostTold),
	}
	result, err := r.runJudge(ctx, episode, command)
	if errors.Is(err, errSpoilt) {
		return verdict{of: len(tests.tests) + len(tests.code)}, nil
	}
	if err != nil {
		return verdict{}, err
	}
	return readVerdict(&result, tests)
}

// errSpoilt is of a program that ended its sandbox, or left its judge no process to start.
var errSpoilt = errors.New("the program ended its sandbox")

// runJudge runs the judge in a fresh sandbox. A sandbox that ends meanwhile, or that has no process left once the program ran, may be the
// machine's doing or the program's: another judge is tried, and if that fails as well while a judge with an empty program does not, the
// program was the cause.
func (r *Reward) runJudge(ctx context.Context, episode string, command producers.Command) (producers.Result, error) {
	for range 2 {
		result, err := r.runOnce(ctx, episode, command)
		if err == nil && judgeHadNoProcess(result.Stdout) {
			continue
		}
		if err == nil || errors.Is(err, producers.ErrUnavailable) || context.Cause(ctx) != nil {
			return result, err
		}
	}
	if _, err := r.runOnce(ctx, episode, producers.Command{Argv: []string{"true"}}); err != nil {
		return producers.Result{}, wrapUnavailable(err)
	}
	return producers.Result{}, errSpoilt
}

// runOnce runs a command in a fresh sandbox, in the place of the episode's own; where no sandbox can be had, its error wraps
// ErrUnavailable.
func (r *Reward) runOnce(ctx context.Context, episode string, command producers.Command) (producers.Result, error) {
	w, err := r.spaces.FreshAfter(ctx, episode)
	if err != nil {
		return producers.Result{}, wrapUnavailable(err)
	}
	defer w.Close()
	for name, text := range command.Files {
		if err := w.WriteFile(ctx, name, text); err != nil {
			return producers.Result{}, wrapUnavailable(err) // nothing of the program has run
		}
	}
	command.Files = nil
	result, err := w.Run(ctx, command)
	if err != nil && context.Cause(ctx) == nil && !errors.Is(err, workspace.ErrGone) {
		return result, wrapUnavailable(err)
	}
	return result, err
}

// wrapUnavailable makes an error the machinery's.
func wrapUnavailable(err error) error {
	if errors.Is(err, producers.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", producers.ErrUnavailable, err)
}

// judgeHadNoProcess reports whether the judge could start no process after a process of the program had run.
func judgeHadNoProcess(stdout []byte) bool {
	last := bytes.TrimRight(stdout, "\n")
	last = last[bytes.LastIndexByte(last, '\n')+1:]
	var t told
	return json.Unmarshal(last, &t) == nil && t.Lost != ""
}

// readVerdict reads the judge's report. A test that the judge did not report, because it was ended, is not passed.
func readVerdict(result *producers.Result, tests *suite) (verdict, error) {
	v := verdict{of: len(tests.tests) + len(tests.code)}
	begun := false
	lines := bufio.NewScanner(bytes.NewReader(result.Stdout))
	lines.Buffer(nil, mostTold)
	for lines.Scan() {
		var t told
		if json.Unmarshal(lines.Bytes(), &t) != nil {
			continue // of a flood, the middle is left out
		}
		switch {
		case t.Machine != "":
			return v, fmt.Errorf("%w: the judge: %s", producers.ErrUnavailable, t.Machine)
		case t.Broken != "":
			return v, fmt.Errorf("%w: %s", errBroken, t.Broken)
		case t.Tests != nil:
			if v.of = *t.Tests; v.of == 0 {
				return v, fmt.Errorf("%w: no statement of theirs tests anything", errBroken)
			}
		case t.Test != nil && t.hasPassed(*t.Test, tests):
			v.passed++
		}
		begun = begun || t.Begun
	}
	if !begun {
		return v, fmt.Errorf("%w: the judge did not begin: exit status %d: %.300s", producers.ErrUnavailable, result.Exit, strings.TrimSpace(string(result.Stderr)))
	}
	return v, nil
}

// hasPassed reports whether a test was passed.
func (t *told) hasPassed(at int, tests *suite) bool {
	switch {
	case at < 0:
		return false
	case at >= len(tests.tests):
		return t.Passed
	case tests.entry != "":
		return t.Value != nil && tests.wrapped.sameResult(t.Value, tests.tests[at].Output)
	}
	return t.Out != nil && sameOutput(*t.Out, programText(tests.tests[at].Output))
}
