package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lab/chaos"
	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// checkpointsBench measures what full and light checkpoints cost a whole run.
type checkpointsBench struct {
	bench
	base   *config.Config
	rounds int
}

// checkpointsReport is the result of `weir-lab bench checkpoints`.
type checkpointsReport struct {
	Arms []*checkpointsArm `json:"arms"`
}

// checkpointsArm are the runs with one value of trainer.checkpoint.full_every.
type checkpointsArm struct {
	FullEvery int64 `json:"full_every"`
	// Steps counts the measured steps. Step, Save and Publish are their seconds, and Disk the share of Save in Step.
	Steps   int            `json:"steps"`
	Step    harness.Spread `json:"step_seconds"`
	Save    harness.Spread `json:"save_seconds"`
	Publish harness.Spread `json:"publish_seconds"`
	Disk    float64        `json:"disk_share"`
	// InUse are the seconds from the end of an update until the sampler has the version: its next token is of it.
	InUse harness.Spread `json:"in_use_seconds"`
	// Resume are the seconds from the start of a process, after a kill within the last step, until its trainer has issued tickets.
	Resume harness.Spread `json:"resume_seconds"`

	step, save, publish, inUse, resume []float64
}

func (l *lab) checkpointsCommand() *cobra.Command {
	b := &checkpointsBench{bench: bench{lab: l}}
	cmd := &cobra.Command{
		Use: "checkpoints", Short: "Measure what full and light checkpoints cost a whole run", Args: cobra.NoArgs,
		Long: `Checkpoints trains the configured model from random weights by the whole pipeline, in turn with a full checkpoint at each step
and with the configured trainer.checkpoint.full_every, light by default. Each run is killed within its last step and goes
on. It says how long steps, saving and publishing took, when the sampler had each version, and how long the start after
the kill took.`,
		Example: "  weir-lab bench checkpoints\n" +
			"  weir-lab bench checkpoints --rounds 2 --trainer.steps 5 --model.hidden 768 --model.layers 12 -o json",
	}
	cmd.Flags().IntVar(&b.rounds, "rounds", 3, "runs of each kind")
	l.addConfigFlags(cmd)
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if b.rounds < 1 {
			return fault.Usagef("--rounds %d: must be positive", b.rounds)
		}
		remove, err := b.openHome()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, remove()) }()
		from := l.configSources(cmd)
		from.Tasks = []string{l.doors.Quick}
		from.Change = func(c *config.Config) {
			makeQuiet(c)
			c.Run.Dir, c.Eval.Every, c.Trainer.Steps, c.Trainer.ColdStart.Steps = b.home, 0, 12, 0
			// Rewards are all 0 so early; the entropy alone has a gradient.
			c.Trainer.Selection.DropZeroVariance, c.Trainer.Loss.EntropyCoef = false, 0.1
		}
		if b.base, err = l.resolveConfig(from); err != nil {
			return err
		}
		if b.base.Trainer.Steps < 3 {
			return fault.Usagef("--trainer.steps %d: want at least 3, of which the first and the last are not measured", b.base.Trainer.Steps)
		}
		r, err := b.measureArms(cmd.Context())
		if err != nil {
			return err
		}
		return l.printReport(format, r, r.Print)
	}
	return cmd
}

// measureArms trains the runs in turn.
func (b *checkpointsBench) measureArms(ctx context.Context) (*checkpointsReport, error) {
	r := &checkpointsReport{Arms: []*checkpointsArm{{FullEvery: 1}, {FullEvery: b.base.Trainer.Checkpoint.FullEvery}}}
	for round := range b.rounds {
		for i := range r.Arms {
			arm := (i + round) % len(r.Arms)
			if err := b.measureRun(ctx, r.Arms[arm], fmt.Sprintf("round%d-arm%d", round, arm)); err != nil {
				return nil, err
			}
		}
	}
	for _, a := range r.Arms {
		a.sumUp()
	}
	return r, nil
}

func (a *checkpointsArm) sumUp() {
	a.Steps = len(a.step)
	save, step := 0.0, 0.0
	for i := range a.step {
		save, step = save+a.save[i], step+a.step[i]
	}
	a.Disk = save / step
	for spread, values := range map[*harness.Spread][]float64{
		&a.Step: a.step, &a.Save: a.save, &a.Publish: a.publish, &a.InUse: a.inUse, &a.Resume: a.resume,
	} {
		if len(values) > 0 {
			*spread = harness.SpreadOf(values)
		}
	}
}

// measureRun trains a run, kills it within its last step and has it go on.
func (b *checkpointsBench) measureRun(ctx context.Context, a *checkpointsArm, name string) error {
	cfg := *b.base
	cfg.Run.Name, cfg.Trainer.Checkpoint.FullEvery, cfg.Trainer.Checkpoint.Dir, cfg.Broker.StoreDir = name, a.FullEvery, "", ""
	cfg.Log.Level = "debug" // which has when a version is in use
	if err := cfg.Finish(); err != nil {
		return config.Invalid(err)
	}
	file, err := writeConfig(&cfg)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.err, "%s: trainer.checkpoint.full_every %d\n", name, a.FullEvery)
	clock := filepath.Join(cfg.Run.Dir, name+".stages")
	last := cfg.Trainer.Steps
	err = b.runTimed(ctx, file, clock, fmt.Sprintf("%s=update:%d", chaos.KillAfterEnv, last))
	if err == nil || ctx.Err() != nil {
		return errors.Join(errors.New("the run ended before its last step was killed"), err)
	}
	before, readErr := readStages(clock)
	if readErr != nil { // it did not come to its first step
		return errors.Join(err, readErr)
	}
	if err := a.addSteps(&cfg, before); err != nil {
		return err
	}
	if err := os.Remove(clock); err != nil {
		return err
	}
	began := time.Now()
	if err := b.runTimed(ctx, file, clock); err != nil {
		return err
	}
	after, err := readStages(clock)
	if err != nil {
		return err
	}
	if len(after["issue"]) > 0 {
		a.resume = append(a.resume, after["issue"][0].Sub(began).Seconds())
	}
	return os.RemoveAll(cfg.Folder())
}

// mostSaid bounds what an error has of what weir up said, in bytes.
const mostSaid = 1000

// runTimed runs weir up, whose trainer writes down when it is done with each part of a step. The error has what weir up said at its end.
func (b *checkpointsBench) runTimed(ctx context.Context, file, clock string, environ ...string) error {
	program, err := selfProgram()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], "up", "--plain", "--config", file)...)
	cmd.Env = append(append(withoutKeys(b.environ), stageClockEnv+"="+clock), environ...)
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		text := bytes.TrimSpace(said.Bytes())
		return fmt.Errorf("weir up: %w: %s", errors.Join(err, context.Cause(ctx)), text[max(0, len(text)-mostSaid):])
	}
	return nil
}

// addSteps takes in the numbers of a run's steps without the first, which waits for the engines.
func (a *checkpointsArm) addSteps(cfg *config.Config, stages map[string][]time.Time) error {
	records, err := report.ReadMetrics(filepath.Join(cfg.Folder(), "metrics.jsonl"))
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Type == string(schemas.EventStepDone) && r.Step > 1 {
			a.step = append(a.step, metrics.TimeStep.In(r.Metrics))
			a.save = append(a.save, metrics.TimeSave.In(r.Metrics))
			a.publish = append(a.publish, metrics.TimePublish.In(r.Metrics))
		}
	}
	log, err := os.Open(filepath.Join(cfg.Folder(), "weir.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	for lines := bufio.NewScanner(log); lines.Scan(); {
		var line struct {
			Time    time.Time `json:"time"`
			Message string    `json:"msg"`
			Version int       `json:"policy_version"`
		}
		applied := json.Unmarshal(lines.Bytes(), &line) == nil && line.Message == "applied weights"
		if !applied || line.Version < 2 || line.Version > len(stages["update"]) {
			continue
		}
		a.inUse = append(a.inUse, line.Time.Sub(stages["update"][line.Version-1]).Seconds())
	}
	return nil
}

// Print writes a table for people.
func (r *checkpointsReport) Print(out io.Writer) {
	fmt.Fprintln(out, "seconds: median [least .. most]")
	w := harness.NewTable(
		out, "full_every", "steps", "step", "save", "disk's share", "publish", "update's end to in use", "start after a kill",
	)
	for _, a := range r.Arms {
		every := strconv.FormatInt(a.FullEvery, 10)
		if a.FullEvery == 0 {
			every = "0, by share"
		}
		w.AppendRow(table.Row{
			every, a.Steps, a.Step.Format(3), a.Save.Format(3), formatShare(a.Disk), a.Publish.Format(3), a.InUse.Format(3),
			a.Resume.Format(2),
		})
	}
	w.Render()
}

func formatShare(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

// stageClockEnv names a file to which the trainer of this program adds a line for each part of a step that is done: its name and the time.
const stageClockEnv = "WEIR_LAB_STAGES"

// stageClock is a hook that writes down the stages, before it calls next, which may be nil.
func stageClock(environ []string, next func(stage string)) func(stage string) {
	for _, v := range environ {
		file, found := strings.CutPrefix(v, stageClockEnv+"=")
		if !found {
			continue
		}
		return func(stage string) {
			line := fmt.Sprintf("%s %d\n", stage, time.Now().UnixNano())
			if f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
				_, _ = f.WriteString(line) // a stage that is missing is not measured
				_ = f.Close()
			}
			if next != nil {
				next(stage)
			}
		}
	}
	return next
}

// readStages reads when each stage was done, by its name.
func readStages(file string) (map[string][]time.Time, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[string][]time.Time{}
	for line := range strings.Lines(string(text)) {
		var stage string
		var at int64
		if n, _ := fmt.Sscan(line, &stage, &at); n == 2 {
			out[stage] = append(out[stage], time.Unix(0, at))
		}
	}
	return out, nil
}
