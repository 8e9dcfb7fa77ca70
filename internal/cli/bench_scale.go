package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/weightsbench"
)

// measureScale measures the parts of the way of a version at one size.
func (b *weightsBench) measureScale(ctx context.Context, format *outputFormat) error {
	engines, err := b.base.Backend()
	if err != nil {
		return err
	}
	cfg := weightsbench.ScaleConfig{
		Shape: b.scale, For: b.scaleFor, Backend: engines, Dir: b.home, ShardBytes: b.base.Trainer.Publish.ShardBytes,
		Log:  slog.New(slog.DiscardHandler),
		Tell: func(s weightsbench.Stage) { fmt.Fprintf(b.err, "%s: %.3g s\n", s.Name, s.Seconds) },
	}
	if err := cfg.Validate(); err != nil {
		return fault.Usage(err)
	}
	s, err := weightsbench.MeasureScale(ctx, cfg)
	if err != nil {
		return err
	}
	if format.json() {
		return b.printJSON(s)
	}
	s.Print(b.out)
	return nil
}
