package command

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/lab/weightsbench"
)

// measureScale measures the parts of a version's way at a size.
func (b *weightsBench) measureScale(ctx context.Context, format *output) error {
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
	return b.printReport(format, s, func(w io.Writer) { s.Print(w) })
}
