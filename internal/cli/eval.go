package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

func newEvalCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "eval", Short: "Score a checkpoint on held-out questions", Args: cobra.NoArgs,
		Long: `Eval asks held-out questions and reports exact match and the parts of the reward, each with the interval that
holds 95 in a hundred of its bootstrap. With --repeat it asks each question several times, and reports mean@n,
pass@k (without bias) and maj@k. A tool or an engine that is away ends nothing: the rollout is tried again, and
what stays lost is counted and in no score.`,
		Example: "  weir eval\n  weir eval --split test --questions 480 --temperature 1 --repeat 8 --samples samples.jsonl\n  weir eval --control\n  weir eval --endpoint http://host:8000/v1 --model-name NAME --config run.yaml",
	}
	f := evalFlags{}
	flags := cmd.Flags()
	flags.StringVar(&f.split, "split", string(tasks.Validation), "train, validation or test")
	completeWith(cmd, "split", string(tasks.Train), string(tasks.Validation), string(tasks.Test))
	flags.IntVar(&f.questions, "questions", 240, "how many are asked")
	flags.Float32Var(&f.temperature, "temperature", 0, "0 is greedy")
	flags.BoolVar(&f.noTool, "no-tool", false, "take the tools away: what the policy knows by itself")
	flags.BoolVar(&f.control, "control", false, "ask again without the tools, and show both")
	flags.IntVar(&f.repeat, "repeat", 1, "how often each is asked; more than once needs a temperature")
	flags.DurationVar(&f.timeout, "timeout", 0, "bounds each rollout; 0 takes the task's limit")
	samples := flags.String("samples", "", "a JSONL file to keep every rollout in; it must not be there")
	f.endpoint = endpointFlags(cmd)
	f.model = checkpointFlags(cmd)
	format := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.validateFlags(); err != nil {
			return err
		}
		file, err := newSamplesFile(*samples)
		if err != nil {
			return err
		}
		defer file.dropEmpty()
		m, q, err := f.openPolicy(cmd, a)
		if err != nil {
			return err
		}
		defer m.Close()
		scored, without, err := f.scorePolicy(cmd.Context(), m, q, file)
		if err != nil {
			return err
		}
		f.noteMissing(a.err, scored)
		if format.isJSON() {
			return a.printJSON(f.jsonAnswer(m, scored, without))
		}
		f.printScore(a.out, m, scored, without)
		return nil
	}
	return cmd
}

// evalFlags select the questions and the model.
type evalFlags struct {
	split             string
	questions, repeat int
	temperature       float32
	noTool, control   bool
	timeout           time.Duration
	endpoint          *asked
	model             *assembly.ModelChoice
}

// validateFlags refuses the first flag that is wrong.
func (f *evalFlags) validateFlags() error {
	if !slices.Contains(tasks.Splits(), tasks.Split(f.split)) {
		return fault.Usagef("--split %s: want train, validation or test", f.split)
	}
	if f.questions <= 0 {
		return fault.Usagef("--questions %d: must be positive", f.questions)
	}
	if err := checkTemperature(f.temperature); err != nil {
		return err
	}
	switch {
	case f.repeat < 1:
		return fault.Usagef("--repeat %d: must be positive", f.repeat)
	case f.repeat > 1 && f.temperature == 0:
		return fault.Usagef("--repeat %d: at temperature 0 every sample is the same: set --temperature", f.repeat)
	case f.timeout < 0:
		return fault.Usagef("--timeout %s: must not be negative", f.timeout)
	case f.control && f.noTool:
		return fault.Usagef("--control and --no-tool: the control asks with the tools and without them")
	}
	return nil
}

// openPolicy opens the model that the flags name, and returns the question of its score.
func (f *evalFlags) openPolicy(cmd *cobra.Command, a *app) (*assembly.LoadedPolicy, *assembly.Question, error) {
	q := &assembly.Question{
		Split: tasks.Split(f.split), N: f.questions, Temperature: f.temperature, NoTool: f.noTool, Repeat: f.repeat, Timeout: f.timeout,
	}
	cfg, err := a.loadWritten(cmd)
	if err != nil {
		return nil, nil, err
	}
	s, err := a.processOf(cfg)
	if err != nil {
		return nil, nil, err
	}
	if f.endpoint.cfg.URL != "" {
		m, err := f.endpoint.openEndpoint(cmd, s, q)
		return m, q, err
	}
	m, err := s.Models().Load(cmd.Context(), f.model)
	if err != nil {
		return nil, nil, a.explainNoFiles(s, cmd.Name(), err)
	}
	return m, q, nil
}

// scorePolicy scores the policy, and where the control is asked for also without the tools. The rollouts go to file.
func (f *evalFlags) scorePolicy(ctx context.Context, m *assembly.LoadedPolicy, q *assembly.Question, file *samplesFile) (scored, without *assembly.Score, err error) {
	if scored, err = m.Score(ctx, *q); err != nil {
		return nil, nil, err
	}
	if err := file.writeSamples(scored.Samples); err != nil || !f.control {
		return scored, nil, err
	}
	bare := *q
	bare.NoTool = true
	if without, err = m.Score(ctx, bare); err != nil {
		return nil, nil, fmt.Errorf("the control: %w", err)
	}
	return scored, without, nil
}

// noteMissing notes questions that the split lacks, and rollouts that are in no score.
func (f *evalFlags) noteMissing(w io.Writer, r *assembly.Score) {
	if n := (r.N + r.Failed) / f.repeat; n < f.questions {
		fmt.Fprintf(w, "--questions %d: the %s split has %d questions; all of them were asked\n", f.questions, f.split, n)
	}
	if r.Failed > 0 {
		fmt.Fprintf(w, "%d of %d rollouts failed, each %d times, and are in no score: %s\n", r.Failed, r.N+r.Failed, assembly.ScoreAttempts, firstError(r.Samples))
	}
}

// jsonAnswer is the score as JSON.
func (f *evalFlags) jsonAnswer(m *assembly.LoadedPolicy, r, without *assembly.Score) evalAnswer {
	return evalAnswer{m.Config.Run.Name, f.split, m.Version, f.temperature, !f.noTool, f.repeat, r.StandardError(), f.endpoint.cfg.Model, r, without}
}

// printScore prints the score for people.
func (f *evalFlags) printScore(w io.Writer, m *assembly.LoadedPolicy, r, without *assembly.Score) {
	fmt.Fprintf(w, "%s split, %s: exact match %.3f ± %.3f over %s, %.2f tool calls each   %s\n",
		f.split, f.endpoint.nameModel(m), r.ExactMatch, r.StandardError(), countRollouts(r.N, f.repeat), r.Turns, sourceScores(r))
	printMeasures(w, r, without)
}

// countRollouts says how many rollouts a score is of.
func countRollouts(n, repeat int) string {
	if repeat == 1 {
		return fmt.Sprintf("%d questions", n)
	}
	return fmt.Sprintf("%d rollouts, %d of each question", n, repeat)
}

// printMeasures shows each measure with its interval, and the control's beside it.
func printMeasures(w io.Writer, r, without *assembly.Score) {
	for _, name := range slices.Sorted(maps.Keys(r.Measures)) {
		m := r.Measures[name]
		fmt.Fprintf(w, "  %-16s %.3f   %.3f to %.3f over %d questions", strings.Replace(name, "_at_", "@", 1), m.Value, m.Low, m.High, m.Questions)
		if without != nil {
			fmt.Fprintf(w, "   without tools %.3f", without.Measures[name].Value)
		}
		fmt.Fprintln(w)
	}
}

// firstError is why the first of the lost rollouts is lost.
func firstError(samples []producers.EvalSample) string {
	for _, s := range samples {
		if s.Error != "" {
			return s.Error
		}
	}
	return ""
}

// samplesFile is where rollouts are kept; its zero value keeps none.
type samplesFile struct {
	path string
	file *os.File
}

// newSamplesFile makes the file before anything is asked: a file that cannot be written is reported at once.
func newSamplesFile(path string) (*samplesFile, error) {
	if path == "" {
		return &samplesFile{}, nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil, fault.Usagef("--samples %s: it is there already: remove it, or name another", path)
	}
	if err != nil {
		return nil, fault.Usagef("--samples: %w", err)
	}
	return &samplesFile{path, file}, nil
}

// writeSamples keeps the rollouts, an object a line.
func (f *samplesFile) writeSamples(samples []producers.EvalSample) error {
	if f.file == nil {
		return nil
	}
	out := bufio.NewWriter(f.file)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, s := range samples {
		if err := enc.Encode(s); err != nil {
			return fmt.Errorf("--samples: %w", err)
		}
	}
	err := errors.Join(out.Flush(), f.file.Close())
	f.file = nil
	if err != nil {
		return fmt.Errorf("--samples: %w", err)
	}
	return nil
}

// dropEmpty removes a file that nothing was written to.
func (f *samplesFile) dropEmpty() {
	if f.file != nil {
		_ = f.file.Close()    // the error was printed
		_ = os.Remove(f.path) // likewise
	}
}

// checkTemperature refuses a value that is no temperature.
func checkTemperature(temperature float32) error {
	if !(temperature >= 0) || math.IsInf(float64(temperature), 0) {
		return fault.Usagef("--temperature %g: must be finite and not negative", temperature)
	}
	return nil
}

// evalAnswer is the JSON answer of weir eval.
type evalAnswer struct {
	Run           string  `json:"run"`
	Split         string  `json:"split"`
	Version       int64   `json:"version"`
	Temperature   float32 `json:"temperature"`
	Tool          bool    `json:"tool"`
	Repeat        int     `json:"repeat"`
	StandardError float64 `json:"standard_error"`
	// Model is the model of an endpoint; "" for a checkpoint.
	Model string `json:"model,omitempty"`
	*assembly.Score
	// Control is the same without tools, where it was asked for.
	Control *assembly.Score `json:"control,omitempty"`
}

// sourceScores lists the score of each kind of question.
func sourceScores(r *assembly.Score) string {
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(r.BySource)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", source, r.BySource[source].ExactMatch))
	}
	return strings.Join(parts, "  ")
}
