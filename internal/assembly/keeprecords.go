package assembly

import (
	"context"
	"log/slog"
	"path/filepath"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/records"
)

// MetricsFile is the file of a run's numbers, in its folder.
const MetricsFile = "metrics.jsonl"

// keepRecords writes the numbers of this process's own run for other tools as they come, where the configuration asks for that. The
// function that it returns writes the last of them and waits for that. The run waits for nothing before, and goes on where they
// cannot be written.
func keepRecords(ctx context.Context, cfg *config.Config, log *slog.Logger) (stop func()) {
	if !cfg.Records.TensorBoard {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := records.KeepEvents(ctx, filepath.Join(cfg.Folder(), MetricsFile), EventFile(cfg))
		if err != nil {
			log.Warn("TensorBoard's event file is not written any more, and the run goes on; weir records tensorboard writes it later", "err", err)
		}
	}()
	return func() { cancel(); <-ended }
}

// EventFile is TensorBoard's in the run's folder.
func EventFile(cfg *config.Config) string {
	return filepath.Join(cfg.Folder(), "tensorboard", "events.out.tfevents."+cfg.Run.Name)
}
