package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/scale"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/trainer/metrics"
)

// readSignal reads which tickets and trajectories wait, as far as the broker knows.
func readSignal(ctx context.Context, run *streams.Run, lastStep *schemas.Event) (scale.Signal, error) {
	s := scale.Signal{TrainerWaits: 1}
	if lastStep != nil {
		s.TrainerWaits = lastStep.Metrics[metrics.TimeIdleRatio.Name]
	}
	tickets, err := run.TicketCounts(ctx)
	if err != nil {
		return s, err
	}
	s.TicketsWaiting, s.TicketsLeased = tickets.Waiting, tickets.Leased
	at, err := run.OldestTicket(ctx)
	if err == nil && !at.IsZero() {
		s.OldestTicketSeconds = max(0, time.Since(at).Seconds())
	}
	return s, err
}

// scaler keeps as many workers as a run can use.
type scaler struct {
	*app
	*assembly.Run
	bounds scale.Bounds
	every  time.Duration
	// command is run by a shell when the numbers change; "" keeps processes of this machine.
	command string
	// status is run by a shell to tell how the run stands; "" asks the broker.
	status string
	// engines are pages of metrics of inference consumers, beside the pages of the pool's processes.
	engines []string
	now     scale.Workers
	pool    *pool
}

func newScaleCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "scale", Short: "Keep as many producers and inference consumers as a run can use", Args: cobra.NoArgs,
		Long: `Scale looks every few seconds at what waits for whom (weir status -o json shows it as "scale", docs/scaling.md has the rule)
and adds or ends workers. By itself it starts weir producer and weir inference on this machine, with the configuration
that it was given, and starts those that die again; their logs are in the run's folder, under workers. With --exec it runs a
command whenever the numbers change, with PRODUCERS and INFERENCE in its environment. It ends when the run is
finished, or by a signal: its workers then finish or give back what they hold.

Where the broker cannot be reached from here, as that of the stack of services, --status is a command that prints what
weir status -o json prints there. Inference consumers are added and ended by the calls that wait for them, which their
own metrics tell: --engines names these pages, here or as a flag of the command that is run there.`,
		Example: `  weir scale --producers 1:16 --inference 1:2
  weir scale --status 'docker compose exec -T broker /weir status -o json \
      --engines http://inference:9090/metrics' \
    --exec 'docker compose up -d --no-build --no-deps --no-recreate \
      --scale producer=$PRODUCERS --scale inference=$INFERENCE producer inference'
  weir scale --exec 'kubectl scale deploy/producer --replicas=$PRODUCERS' --engines http://10.0.0.7:9090/metrics`,
	}
	f := newScaleFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		bounds, err := f.readBounds()
		if err != nil {
			return err
		}
		s, err := a.openProcess(cmd)
		if err != nil {
			return err
		}
		k := &scaler{app: a, Run: s, bounds: bounds, every: *f.every, command: *f.command, status: *f.status, engines: *f.engines}
		if k.command == "" {
			if k.pool, err = a.newPool(s.Config, a.roleArgs(cmd)); err != nil {
				return err
			}
		}
		return k.keepScaling(cmd.Context())
	}
	return cmd
}

// scaleFlags are the flags of weir scale.
type scaleFlags struct {
	producers, inference *string // fewest and most
	every                *time.Duration
	command, status      *string
	engines              *[]string
}

// newScaleFlags adds the flags to a command.
func newScaleFlags(cmd *cobra.Command) scaleFlags {
	flags := cmd.Flags()
	return scaleFlags{
		producers: flags.String("producers", "1:8", "fewest and most producers"),
		inference: flags.String("inference", "1:4", "fewest and most inference consumers"),
		every:     flags.Duration("every", 5*time.Second, "how often to look"),
		command:   flags.String("exec", "", "run this by a shell when the numbers change, in the place of local processes"),
		status:    flags.String("status", "", "run this by a shell to learn how the run stands, in the place of its broker"),
		engines:   enginesFlag(cmd),
	}
}

// readBounds returns how many workers there may be. The error has every fault of the flags.
func (f *scaleFlags) readBounds() (scale.Bounds, error) {
	var faults []error
	bounds := scale.DefaultBounds()
	read := func(flag, text string, low, high *int) {
		a, b, two := strings.Cut(text, ":")
		var err error
		if *low, err = strconv.Atoi(a); err == nil && two {
			*high, err = strconv.Atoi(b)
		}
		if !two || err != nil {
			faults = append(faults, fmt.Errorf("--%s %q: want two numbers, such as 1:8", flag, text))
		}
	}
	read("producers", *f.producers, &bounds.Min.Producers, &bounds.Max.Producers)
	read("inference", *f.inference, &bounds.Min.Inference, &bounds.Max.Inference)
	if *f.every < 100*time.Millisecond {
		faults = append(faults, fmt.Errorf("--every %s: must be at least 100ms", *f.every))
	}
	if *f.status != "" && *f.command == "" {
		faults = append(faults, errors.New("--status: without --exec, workers are processes of this machine, which reach the broker themselves: leave it out"))
	}
	if *f.status != "" && len(*f.engines) > 0 {
		faults = append(faults, errors.New("--engines: with --status, give it to the weir status of that command"))
	}
	if err := errors.Join(append(faults, bounds.Validate())...); err != nil {
		return bounds, fault.Usage(err)
	}
	return bounds, nil
}

// roleArgs are the files and keys of this command line, for a role's process.
func (a *app) roleArgs(cmd *cobra.Command) (args []string) {
	for _, f := range a.files {
		args = append(args, "--config", f)
	}
	for key, value := range a.keys().typedKeys(cmd) {
		args = append(args, "--"+key+"="+value)
	}
	return args
}

func (k *scaler) keepScaling(ctx context.Context) (err error) {
	look := k.askCommand
	if k.status == "" {
		var leave func()
		if look, leave, err = k.openVisitor(ctx); err != nil {
			return err
		}
		defer leave()
	} else if _, err := look(ctx); err != nil {
		return err
	}
	if k.pool != nil {
		k.pool.broker = k.Connector().URL()
		defer func() { err = errors.Join(err, k.pool.closePool()) }()
	}
	if err := k.setWorkers(ctx, k.bounds.Min, "the fewest"); err != nil {
		return err
	}
	decider := scale.NewDecider(k.bounds)
	tick := time.NewTicker(k.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return interruptedError(ctx, nil)
		case <-tick.C:
		}
		now, err := look(ctx)
		if err != nil {
			k.Log.Warn("look at the run", "err", err)
			continue
		}
		switch now.State {
		case runfolder.StateFinished:
			fmt.Fprintln(k.out, "the run is finished")
			return nil
		case runfolder.StatePaused, runfolder.StateDraining:
			continue
		}
		want, why := decider.Decide(k.now, now.Scale)
		if want != k.now {
			if err := k.setWorkers(ctx, want, why); err != nil {
				k.Log.Warn("change the number of workers", "err", err)
			}
		}
		if k.pool != nil {
			k.pool.restartEnded()
		}
	}
}

// openVisitor returns a function that reads the run's status at its broker, and a function that ends the connection.
func (k *scaler) openVisitor(ctx context.Context) (look func(context.Context) (*standing, error), leave func(), err error) {
	run, up, leave, err := k.Connector().Visit(ctx, streams.RoleViewer)
	if err != nil {
		return nil, nil, err
	}
	if !up {
		leave()
		return nil, nil, fmt.Errorf("run %s is not up: start weir broker or weir up first", k.Config.Run.Name)
	}
	return func(ctx context.Context) (*standing, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		now, err := readStatus(ctx, k.Run, run, true)
		if err != nil {
			return nil, err
		}
		pages := k.engines
		if k.pool != nil {
			pages = append(k.pool.metricsPages(), pages...)
		}
		readCalls(ctx, k.Log, &now.Scale, pages)
		return now, nil
	}, leave, nil
}

// askWithin bounds the command that tells how the run stands: a container engine may start a process for it.
const askWithin = time.Minute

// askCommand runs the command that tells how the run stands.
func (k *scaler) askCommand(ctx context.Context) (*standing, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", k.status)
	var problems bytes.Buffer
	cmd.Env, cmd.Stderr, cmd.WaitDelay = k.app.environ, &problems, time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("--status: %w: %s", err, strings.TrimSpace(problems.String()))
	}
	now := new(standing)
	err = json.Unmarshal(out, now)
	if err == nil && now.State == "" {
		err = errors.New("it has no state")
	}
	if err != nil {
		return nil, fmt.Errorf("--status: %.200q is not what weir status -o json prints: %w", out, err)
	}
	return now, nil
}

// setWorkers brings the workers to a number.
func (k *scaler) setWorkers(ctx context.Context, want scale.Workers, why string) error {
	fmt.Fprintf(k.out, "producers %d, inference %d: %s\n", want.Producers, want.Inference, why)
	if k.pool != nil {
		if err := k.pool.setWorkers(want); err != nil {
			return err
		}
		k.now = want
		return nil
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", k.command)
	cmd.Env = append(k.app.environ, fmt.Sprintf("PRODUCERS=%d", want.Producers), fmt.Sprintf("INFERENCE=%d", want.Inference))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("--exec: %w: %s", err, strings.TrimSpace(string(out)))
	}
	k.now = want
	return nil
}
