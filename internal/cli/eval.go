package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

func (a *app) evalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "eval", Short: "Score a checkpoint on held-out questions", Args: cobra.NoArgs,
		Long: `Eval asks held-out questions and reports exact match and the parts of the reward, each with the interval that
holds 95 in a hundred of its bootstrap. With --repeat it asks each question several times, and reports mean@n,
pass@k (without bias) and maj@k. A tool or an engine that is away ends nothing: the rollout is tried again, and
what stays lost is counted and in no score.`,
		Example: "  weir eval\n  weir eval --split test --questions 480 --temperature 1 --repeat 8 --samples samples.jsonl\n  weir eval --control\n  weir eval --endpoint http://host:8000/v1 --model-name NAME --config run.yaml",
	}
	split := cmd.Flags().String("split", string(tasks.Validation), "train, validation or test")
	completeWith(cmd, "split", string(tasks.Train), string(tasks.Validation), string(tasks.Test))
	questions := cmd.Flags().Int("questions", 240, "how many are asked")
	temperature := cmd.Flags().Float32("temperature", 0, "0 is greedy")
	noTool := cmd.Flags().Bool("no-tool", false, "take the tools away: what the policy knows by itself")
	control := cmd.Flags().Bool("control", false, "ask again without the tools, and show both")
	repeat := cmd.Flags().Int("repeat", 1, "how often each is asked; more than once needs a temperature")
	timeout := cmd.Flags().Duration("timeout", 0, "bounds each rollout; 0 takes the task's limit")
	samples := cmd.Flags().String("samples", "", "a JSONL file to keep every rollout in; it must not be there")
	asking := endpointFlags(cmd)
	model := a.checkpointFlags(cmd)
	format := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(tasks.Splits(), tasks.Split(*split)) {
			return fault.Usagef("--split %s: want train, validation or test", *split)
		}
		if *questions <= 0 {
			return fault.Usagef("--questions %d: must be positive", *questions)
		}
		if err := warmth(*temperature); err != nil {
			return err
		}
		switch {
		case *repeat < 1:
			return fault.Usagef("--repeat %d: must be positive", *repeat)
		case *repeat > 1 && *temperature == 0:
			return fault.Usagef("--repeat %d: at temperature 0 every sample is the same: set --temperature", *repeat)
		case *timeout < 0:
			return fault.Usagef("--timeout %s: must not be negative", *timeout)
		case *control && *noTool:
			return fault.Usage(errors.New("--control and --no-tool: the control asks with the tools and without them"))
		}
		file, err := newSamplesFile(*samples)
		if err != nil {
			return err
		}
		defer file.drop()
		q := assembly.Question{Split: tasks.Split(*split), N: *questions, Temperature: *temperature, NoTool: *noTool, Repeat: *repeat, Timeout: *timeout}
		cfg, err := a.loadWritten(cmd)
		if err != nil {
			return err
		}
		s, err := a.sessionOf(cfg)
		if err != nil {
			return err
		}
		var m *assembly.LoadedPolicy
		if asking.cfg.URL != "" {
			m, err = asking.open(cmd, s, &q)
		} else {
			m, err = model.Open(cmd.Context(), s)
		}
		if err != nil {
			return err
		}
		defer m.Close()
		r, err := m.Sampler.Score(cmd.Context(), m.Run, m.Course, q)
		if err != nil {
			return err
		}
		if err := file.write(r.Samples); err != nil {
			return err
		}
		var without *assembly.Score
		if *control {
			q.NoTool = true
			if without, err = m.Sampler.Score(cmd.Context(), m.Run, m.Course, q); err != nil {
				return fmt.Errorf("the control: %w", err)
			}
		}
		asked := (r.N + r.Failed) / *repeat
		if asked < *questions {
			fmt.Fprintf(a.err, "--questions %d: the %s split has %d questions; all of them were asked\n", *questions, *split, asked)
		}
		if r.Failed > 0 {
			fmt.Fprintf(a.err, "%d of %d rollouts failed, each %d times, and are in no score: %s\n", r.Failed, r.N+r.Failed, assembly.ScoreAttempts, firstError(r.Samples))
		}
		if format.json() {
			return a.printJSON(evalAnswer{m.Config.Run.Name, *split, m.Version, *temperature, !*noTool, *repeat, r.StandardError(), asking.cfg.Model, r, without})
		}
		fmt.Fprintf(a.out, "%s split, %s: exact match %.3f ± %.3f over %s, %.2f tool calls each   %s\n",
			*split, asking.who(m), r.ExactMatch, r.StandardError(), over(r.N, *repeat), r.Turns, bySource(r))
		a.printMeasures(r, without)
		return nil
	}
	return cmd
}

// over says how many rollouts a score is of.
func over(n, repeat int) string {
	if repeat == 1 {
		return fmt.Sprintf("%d questions", n)
	}
	return fmt.Sprintf("%d rollouts, %d of each question", n, repeat)
}

// printMeasures shows each measure with its interval, and the control's beside it.
func (a *app) printMeasures(r, without *assembly.Score) {
	for _, name := range slices.Sorted(maps.Keys(r.Measures)) {
		m := r.Measures[name]
		fmt.Fprintf(a.out, "  %-16s %.3f   %.3f to %.3f over %d questions", strings.Replace(name, "_at_", "@", 1), m.Value, m.Low, m.High, m.Questions)
		if without != nil {
			fmt.Fprintf(a.out, "   without tools %.3f", without.Measures[name].Value)
		}
		fmt.Fprintln(a.out)
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

// newSamplesFile makes the file before anything is asked: what cannot be written is told at once.
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

// write keeps the rollouts, an object a line.
func (f *samplesFile) write(samples []producers.EvalSample) error {
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

// drop removes a file that nothing was written to.
func (f *samplesFile) drop() {
	if f.file != nil {
		_ = f.file.Close()    // what failed was told
		_ = os.Remove(f.path) // likewise
	}
}

// warmth refuses what is no temperature.
func warmth(temperature float32) error {
	if !(temperature >= 0) || math.IsInf(float64(temperature), 0) {
		return fault.Usagef("--temperature %g: must be finite and not negative", temperature)
	}
	return nil
}

// evalAnswer is what eval prints as JSON.
type evalAnswer struct {
	Run           string  `json:"run"`
	Split         string  `json:"split"`
	Version       int64   `json:"version"`
	Temperature   float32 `json:"temperature"`
	Tool          bool    `json:"tool"`
	Repeat        int     `json:"repeat"`
	StandardError float64 `json:"standard_error"`
	// Model is what an endpoint serves; "" for a checkpoint.
	Model string `json:"model,omitempty"`
	*assembly.Score
	// Control is the same without tools, where it was asked for.
	Control *assembly.Score `json:"control,omitempty"`
}

// bySource lists the score of each kind of question.
func bySource(r *assembly.Score) string {
	var parts []string
	for _, source := range slices.Sorted(maps.Keys(r.BySource)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", source, r.BySource[source].ExactMatch))
	}
	return strings.Join(parts, "  ")
}
