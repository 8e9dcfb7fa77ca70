package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lab/weightsbench"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/weights"
)

// weightsBench measures how versions are sent and put to use.
type weightsBench struct {
	bench
	base *config.Config

	steps, swaps, consumers, callers int
	rates                            []float64
	largeHidden, largeLayers         int
	scale, scaleFor                  string
}

func (l *lab) weightsCommand() *cobra.Command {
	b := &weightsBench{bench: bench{lab: l}}
	cmd := &cobra.Command{
		Use: "weights", Short: "Measure weight deltas, and the time to a version in use", Args: cobra.NoArgs,
		Long: `Weights trains the configured model for a few versions by the whole pipeline, once for each learning rate and from the
same cold start, and says how large each version was as its difference from the one before, in bfloat16. Then it
publishes those versions, and made-up ones of a larger model, over a broker on loopback to consumers that generate,
and says how long each part takes until a caller has the first token of the version.

With --scale it measures, of a model of a published shape with random weights, every part of the way of a version alone:
seconds, bytes a second and memory, and computes the seconds of a larger model (docs/scaling.md).`,
		Example: "  weir-lab bench weights\n  weir-lab bench weights --rates 1e-6 --steps 30 -o json\n  weir-lab bench weights --scale qwen2.5-0.5b",
	}
	flags := cmd.Flags()
	flags.IntVar(&b.steps, "steps", 12, "versions of each run, at most 31")
	rates := flags.StringSlice("rates", []string{"1e-6", "1e-4"}, "learning rates, a run for each; \"\" measures made-up versions alone")
	flags.IntVar(&b.swaps, "swaps", 100, "versions whose way is measured, of the larger model a tenth")
	flags.IntVar(&b.consumers, "consumers", 4, "consumers that follow where several do")
	flags.IntVar(&b.callers, "callers", 16, "calls that generate all the while")
	flags.IntVar(&b.largeHidden, "large-hidden", 512, "width of the larger model, a multiple of 64; 0 has none")
	flags.IntVar(&b.largeLayers, "large-layers", 8, "blocks of the larger model")
	flags.StringVar(&b.scale, "scale", "", "measure the parts of this shape's way instead")
	flags.StringVar(&b.scaleFor, "scale-for", "qwen2.5-7b", "the shape for which --scale computes seconds")
	l.addConfigFlags(cmd)
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := b.validateFlags(*rates); err != nil {
			return fault.Usage(err)
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
			c.Run.Dir, c.Eval.Every, c.Trainer.Publish.DType = b.home, 0, "bfloat16"
		}
		if b.base, err = l.resolveConfig(from); err != nil {
			return err
		}
		if b.scale != "" {
			return b.measureScale(cmd.Context(), format)
		}
		r, err := b.measureAll(cmd.Context())
		if err != nil {
			return err
		}
		return l.printReport(format, r, func(w io.Writer) { r.Print(w) })
	}
	return cmd
}

// mostDeltas is the longest chain of deltas.
const mostDeltas = 31

func (b *weightsBench) validateFlags(rates []string) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if b.steps < 1 || b.steps > mostDeltas {
		bad("--steps %d: must be in [1, %d]", b.steps, mostDeltas)
	}
	for _, text := range rates {
		rate, err := strconv.ParseFloat(text, 64)
		if err != nil || !(rate > 0) {
			bad("--rates %q: want positive numbers", text)
		}
		b.rates = append(b.rates, rate)
	}
	if b.swaps < 1 {
		bad("--swaps %d: must be positive", b.swaps)
	}
	if b.consumers < 1 {
		bad("--consumers %d: must be positive", b.consumers)
	}
	if b.callers < 1 {
		bad("--callers %d: must be positive", b.callers)
	}
	if b.largeHidden < 0 || b.largeHidden%64 != 0 || b.largeHidden > 0 && b.largeLayers < 1 {
		bad("--large-hidden %d --large-layers %d: want a multiple of 64 and at least one block, or 0", b.largeHidden, b.largeLayers)
	}
	return errors.Join(errs...)
}

func (b *weightsBench) measureAll(ctx context.Context) (*weightsbench.Report, error) {
	start := filepath.Join(b.home, "start")
	model, err := b.startModel(ctx, start)
	if err != nil {
		return nil, err
	}
	r := &weightsbench.Report{}
	var versions []weightsbench.Version
	for _, rate := range b.rates {
		deltas, trained, err := b.trainAtRate(ctx, start, rate)
		if err != nil {
			return nil, err
		}
		r.Runs = append(r.Runs, deltas)
		if versions == nil {
			versions = trained
		}
	}
	if versions == nil {
		if versions, err = weightsbench.MadeUp(ctx, model, madeUp, madeUpRate); err != nil {
			return nil, err
		}
	}
	if err := b.measureWays(ctx, r, "the run's", model, versions, b.swaps); err != nil {
		return nil, err
	}
	if b.largeHidden == 0 {
		return r, nil
	}
	large := model
	large.HiddenSize, large.IntermediateSize, large.NumLayers = b.largeHidden, 3*b.largeHidden, b.largeLayers
	large.NumHeads, large.NumKVHeads = b.largeHidden/64, b.largeHidden/64
	if versions, err = weightsbench.MadeUp(ctx, large, madeUp, madeUpRate); err != nil {
		return nil, err
	}
	return r, b.measureWays(ctx, r, fmt.Sprintf("%d x %d, made up", b.largeHidden, b.largeLayers), large, versions, max(b.swaps/10, 1))
}

// How many versions are made up, and how far each is from the last.
const (
	madeUp     = 3
	madeUpRate = 1e-6
)

// startModel makes the policy that every run starts from, in a folder, and returns its shape. Where nothing is trained the policy is
// not taught anything.
func (b *weightsBench) startModel(ctx context.Context, dir string) (model gpu.Config, err error) {
	cfg := *b.base
	if len(b.rates) == 0 {
		cfg.Trainer.ColdStart.Steps = 0
	}
	if err := b.coldStart(ctx, &cfg, dir); err != nil {
		return model, err
	}
	folder, err := hf.Open(dir)
	if err != nil {
		return model, err
	}
	return folder.Config, folder.Close()
}

// trainAtRate trains from the start at a learning rate and reads its versions back.
func (b *weightsBench) trainAtRate(ctx context.Context, start string, rate float64) (deltas *weightsbench.Deltas, versions []weightsbench.Version, err error) {
	cfg := *b.base
	cfg.Run.Name = "rate-" + strings.ReplaceAll(strconv.FormatFloat(rate, 'f', -1, 64), ".", "-")
	cfg.Model.Folder, cfg.Trainer.ColdStart.Steps = start, 0
	cfg.Trainer.Steps, cfg.Trainer.Optimizer.LearningRate = int64(b.steps), rate
	cfg.Trainer.Checkpoint.Dir, cfg.Broker.StoreDir = "", ""
	cfg.Weights = weights.Config{BaseEvery: mostDeltas + 1}
	cfg.Streams.WeightsKeep = mostDeltas + 1
	if err := cfg.Finish(); err != nil {
		return nil, nil, config.Invalid(fmt.Errorf("configuration:\n%w", err))
	}
	if err := b.trainRun(ctx, &cfg, fmt.Sprintf("%d versions at learning rate %g", b.steps, rate)); err != nil {
		return nil, nil, err
	}
	if deltas, versions, err = readVersions(ctx, &cfg); err != nil {
		return nil, nil, err
	}
	deltas.LearningRate, deltas.StepsPerVersion = rate, cfg.Trainer.Epochs*cfg.Trainer.Minibatches
	return deltas, versions, nil
}

// readVersions reads the versions of a finished run back from its broker's store.
func readVersions(ctx context.Context, cfg *config.Config) (deltas *weightsbench.Deltas, versions []weightsbench.Version, err error) {
	log := slog.New(slog.DiscardHandler)
	own := cfg.Broker.Config
	own.Listen = "127.0.0.1:0"
	server, err := broker.Start(ctx, own, log)
	if err != nil {
		return nil, nil, err
	}
	defer server.Shutdown()
	conn, err := streams.Connect(ctx, streams.ConnectConfig{Name: "weir-lab", Role: streams.RoleAdmin, Broker: server}, log)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close()
	run, err := conn.Attach(ctx, cfg.Run.Name)
	if err != nil {
		return nil, nil, err
	}
	return weightsbench.ReadRun(ctx, run, cfg.Trainer.Steps)
}

// measureWays sends versions whole and as deltas, to a consumer that generates and to several that do not.
func (b *weightsBench) measureWays(ctx context.Context, r *weightsbench.Report, name string, model gpu.Config, versions []weightsbench.Version, swaps int) error {
	engines, err := b.base.Backend()
	if err != nil {
		return err
	}
	for _, to := range []struct{ consumers, callers int }{{1, b.callers}, {b.consumers, 0}} {
		fmt.Fprintf(b.err, "%s weights to %d consumers, %d callers: %d versions whole, and as deltas\n", name, to.consumers, to.callers, swaps)
		var ways []weightsbench.SwapConfig
		for _, every := range []int{1, mostDeltas + 1} {
			dir, err := os.MkdirTemp(b.home, "broker-")
			if err != nil {
				return fmt.Errorf("make a folder for the broker: %w", err)
			}
			ways = append(ways, weightsbench.SwapConfig{
				Name: name, Model: model, Versions: versions, BaseEvery: every, Swaps: swaps, Consumers: to.consumers, Callers: to.callers,
				NewDecoder: engines.NewDecoder, Dir: dir, Log: slog.New(slog.DiscardHandler),
			})
		}
		measured, err := weightsbench.MeasureSwaps(ctx, rounds, ways...)
		if err != nil {
			return err
		}
		r.Ways = append(r.Ways, measured...)
		for _, w := range ways {
			if err := os.RemoveAll(w.Dir); err != nil {
				return fmt.Errorf("remove the broker's folder: %w", err)
			}
		}
	}
	return nil
}

// rounds is how often whole versions and deltas take turns.
const rounds = 4
