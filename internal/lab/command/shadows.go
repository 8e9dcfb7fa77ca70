package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lab/chaos"
	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// shadowsBench measures what shadows cost the run that they follow: they are stopped and continued in turn, and neighbouring windows
// of the same run are compared.
type shadowsBench struct {
	bench
	file, home, folder string
	shadows            []int
	pairs              int
	window             time.Duration
}

// shadowsReport is the result of `weir-lab bench shadows`.
type shadowsReport struct {
	Window string        `json:"window"`
	Arms   []*shadowsArm `json:"arms"`
}

// shadowsArm is a run with a number of shadows.
type shadowsArm struct {
	Shadows int `json:"shadows"`
	// Pairs counts the pairs of windows that each had a whole step. Mean and Error are the mean of the time of a step with the shadows at work
	// over that with the shadows stopped, and its standard error; Median is their median.
	Pairs  int     `json:"pairs"`
	Mean   float64 `json:"step_ratio_mean"`
	Error  float64 `json:"step_ratio_standard_error"`
	Median float64 `json:"step_ratio_median"`
	// Processor is the run's processor time for each step with the shadows at work over that with the shadows stopped. Other programs
	// change it less than the clock's.
	Processor float64 `json:"processor_ratio"`
	// Taken is the processors that the shadows used while they were at work, Busy the processors that the whole machine used.
	Taken float64 `json:"shadow_processors"`
	Busy  float64 `json:"machine_processors"`
	// Behind is how many steps the shadows were behind in the end, at most; -1 where none had learnt a step.
	Behind float64 `json:"behind"`

	on, off windows
}

// windows sums up windows of a kind.
type windows struct {
	steps int
	run   time.Duration
}

func (l *lab) shadowsCommand() *cobra.Command {
	b := &shadowsBench{bench: bench{lab: l}}
	cmd := &cobra.Command{
		Use: "shadows", Short: "Measure what shadows cost the run that they follow", Args: cobra.NoArgs,
		Long: `Shadows trains the configured run beside shadows with the loss cispo, which are stopped and continued in turn. The
steps of neighbouring windows of one run are compared: what else the machine does changes both.`,
		Example: "  weir-lab bench shadows\n  weir-lab bench shadows --shadows 0,1,3 --pairs 40 --window 5s",
	}
	cmd.Flags().IntSliceVar(&b.shadows, "shadows", []int{0, 1, 3}, "numbers of shadows, a run each; 0 measures the noise")
	cmd.Flags().IntVar(&b.pairs, "pairs", 20, "pairs of windows for each number")
	cmd.Flags().DurationVar(&b.window, "window", 5*time.Second, "how long a window is")
	l.addConfigFlags(cmd)
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if b.pairs < 1 || b.window <= 0 || slices.ContainsFunc(b.shadows, func(n int) bool { return n < 0 }) {
			return fault.Usage(errors.New("--pairs and --window must be positive, --shadows not negative"))
		}
		remove, err := b.openHome()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
		r := &shadowsReport{Window: b.window.String()}
		for _, n := range b.shadows {
			a := &shadowsArm{Shadows: n}
			if err := b.prepareRun(cmd, n); err != nil {
				return err
			}
			if err := b.measureRun(cmd.Context(), a); err != nil {
				return err
			}
			r.Arms = append(r.Arms, a)
		}
		return l.printReport(format, r, r.Print)
	}
	return cmd
}

// prepareRun writes the configuration of a run that does not end before it is measured.
func (b *shadowsBench) prepareRun(cmd *cobra.Command, shadows int) error {
	from := b.configSources(cmd)
	from.Tasks = []string{b.doors.Quick}
	home := filepath.Join(b.bench.home, fmt.Sprintf("shadows-%d", shadows))
	from.Change = func(c *config.Config) {
		makeQuiet(c)
		c.Run.Name, c.Run.Dir, c.Eval.Every, c.Trainer.Steps = "followed", home, 0, 1<<20
		c.Trainer.Checkpoint.FullEvery = 2 // a shadow begins soon
	}
	cfg, err := b.resolveConfig(from)
	if err != nil {
		return err
	}
	b.home, b.folder = home, cfg.Folder()
	b.file, err = chaos.WriteFile(cfg, home)
	return err
}

// measured is a process that is measured.
type measured struct {
	*exec.Cmd
	ended chan struct{}
}

// begin starts a command of weir in a session of its own.
func (b *shadowsBench) begin(ctx context.Context, args ...string) (*measured, error) {
	program, err := selfProgram()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], args...)...)
	cmd.Env = withoutKeys(b.environ)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	log, err := os.OpenFile(b.logFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := errors.Join(cmd.Start(), log.Close()); err != nil {
		return nil, err
	}
	m := &measured{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the log has the reason
		close(m.ended)
	}()
	return m, nil
}

// logFile has the output of the processes.
func (b *shadowsBench) logFile() string { return filepath.Join(b.home, "log.txt") }

// measureRun trains a run with shadows beside it.
func (b *shadowsBench) measureRun(ctx context.Context, a *shadowsArm) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	run, err := b.begin(ctx, "up", "--plain", "--config", b.file)
	if err != nil {
		cancel()
		return err
	}
	all := []*measured{run}
	defer func() {
		cancel()
		for _, m := range all {
			<-m.ended
		}
	}()
	if err := b.awaitStep(ctx, run, b.folder, 3); err != nil {
		return err
	}
	for i := range a.Shadows {
		name := fmt.Sprintf("s%d", i)
		m, err := b.begin(ctx, "trainer", "--shadow", name, "--run.name", filepath.Base(b.folder), "--run.dir", b.home,
			"--trainer.loss.name", "cispo")
		if err != nil {
			return err
		}
		all = append(all, m)
		if err := b.awaitStep(ctx, m, filepath.Join(b.folder, runfolder.ShadowsFolder, name), 1); err != nil {
			return err
		}
	}
	return b.measurePairs(ctx, a, run.Process.Pid, all[1:])
}

// measurePairs measures windows with the shadows stopped and at work in turn; every other pair begins with the other.
func (b *shadowsBench) measurePairs(ctx context.Context, a *shadowsArm, run int, shadows []*measured) error {
	var ratios []float64
	var taken, busy, at time.Duration
	for pair := range b.pairs {
		var means [2]float64
		for i := range 2 {
			works := (i+pair)%2 == 1
			for _, cmd := range shadows {
				signal := syscall.SIGSTOP
				if works {
					signal = syscall.SIGCONT
				}
				if err := syscall.Kill(cmd.Process.Pid, signal); err != nil {
					return fmt.Errorf("a shadow has ended, see %s: %w", b.logFile(), err)
				}
			}
			began, runBefore, shadowsBefore := time.Now(), harness.ProcessCPUTime(run), sumCPUTime(shadows)
			busyBefore, _ := harness.MachineCPUTime()
			if err := harness.Wait(ctx, b.window); err != nil {
				return err
			}
			steps, mean, err := b.readWindow(began, time.Now())
			if err != nil {
				return err
			}
			of, slot := &a.off, 0
			if works {
				of, slot = &a.on, 1
				busyNow, _ := harness.MachineCPUTime()
				taken, busy, at = taken+sumCPUTime(shadows)-shadowsBefore, busy+busyNow-busyBefore, at+time.Since(began)
			}
			means[slot] = mean
			of.steps, of.run = of.steps+steps, of.run+harness.ProcessCPUTime(run)-runBefore
		}
		if means[0] > 0 && means[1] > 0 {
			ratios = append(ratios, means[1]/means[0])
		}
		fmt.Fprintf(b.err, "%d shadows, pair %d: a step took %.2f s without, %.2f s with\n", a.Shadows, pair+1, means[0], means[1])
	}
	a.sumUp(ratios)
	a.Taken, a.Busy = taken.Seconds()/at.Seconds(), busy.Seconds()/at.Seconds()
	var err error
	a.Behind, err = b.readBehind()
	return err
}

func sumCPUTime(all []*measured) (sum time.Duration) {
	for _, cmd := range all {
		sum += harness.ProcessCPUTime(cmd.Process.Pid)
	}
	return sum
}

func (a *shadowsArm) sumUp(ratios []float64) {
	a.Pairs = len(ratios)
	if a.on.steps > 0 && a.off.steps > 0 && a.off.run > 0 {
		a.Processor = a.on.run.Seconds() / float64(a.on.steps) / (a.off.run.Seconds() / float64(a.off.steps))
	}
	if a.Pairs == 0 {
		return
	}
	for _, r := range ratios {
		a.Mean += r / float64(a.Pairs)
	}
	squares := 0.0
	for _, r := range ratios {
		squares += (r - a.Mean) * (r - a.Mean)
	}
	a.Error = math.Sqrt(squares / float64(max(a.Pairs-1, 1)) / float64(a.Pairs))
	a.Median = harness.SpreadOf(ratios).Median
}

// readWindow counts the steps that ended within a window, and returns the mean time in seconds of the steps that began within it too; 0
// for none.
func (b *shadowsBench) readWindow(began, ended time.Time) (steps int, mean float64, err error) {
	records, err := report.ReadMetrics(filepath.Join(b.folder, "metrics.jsonl"))
	if err != nil {
		return 0, 0, err
	}
	whole := 0
	for _, r := range records {
		if r.Type != string(schemas.EventStepDone) || r.At.Before(began) || r.At.After(ended) {
			continue
		}
		steps++
		if took := metrics.TimeStep.In(r.Metrics); !r.At.Add(-time.Duration(took * float64(time.Second))).Before(began) {
			whole, mean = whole+1, mean+took
		}
	}
	return steps, mean / float64(max(whole, 1)), nil
}

// awaitStep waits until a process has done a step, of which it writes into a folder.
func (b *shadowsBench) awaitStep(ctx context.Context, m *measured, folder string, step int64) error {
	for {
		records, err := report.ReadMetrics(filepath.Join(folder, "metrics.jsonl"))
		if err == nil && slices.ContainsFunc(records, func(r report.Record) bool {
			return r.Type == string(schemas.EventStepDone) && r.Step >= step
		}) {
			return nil
		}
		select {
		case <-m.ended:
			said, err := os.ReadFile(b.logFile())
			return errors.Join(fmt.Errorf("%s ended: %s", strings.Join(m.Args[2:], " "), said[max(0, len(said)-1000):]), err)
		default:
		}
		if err := harness.Wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// readBehind returns how many steps the shadows are behind, at most.
func (b *shadowsBench) readBehind() (behind float64, err error) {
	all, err := runfolder.Shadows(b.folder)
	behind = -1
	for _, s := range all {
		if s.Step >= 0 {
			behind = max(behind, metrics.ShadowBehind.In(s.Metrics))
		}
	}
	return behind, err
}

// Print writes a table for people.
func (r *shadowsReport) Print(out io.Writer) {
	text, _ := os.ReadFile("/proc/loadavg") // a system without it prints none
	fmt.Fprintf(out, "windows of %s; a ratio is with the shadows at work over without; load %s\n", r.Window, strings.TrimSpace(string(text)))
	w := harness.NewTable(
		out, "shadows", "pairs", "step, mean", "step, median", "run's processor time a step", "shadows take", "machine uses", "behind",
	)
	for _, a := range r.Arms {
		w.AppendRow(table.Row{
			a.Shadows, a.Pairs, fmt.Sprintf("%.3f ± %.3f", a.Mean, a.Error), fmt.Sprintf("%.3f", a.Median), fmt.Sprintf("%.3f", a.Processor),
			fmt.Sprintf("%.2f processors", a.Taken), fmt.Sprintf("%.2f processors", a.Busy), a.Behind,
		})
	}
	w.Render()
}
