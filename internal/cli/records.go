package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/records"
	"github.com/weir-rl/weir/internal/report"
)

func newRecordsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "records", Short: "Put a run's numbers into the forms that other tools read",
		Long: `Records reads runs/<run>/metrics.jsonl, and for Parquet the trajectories in the run's folder, of a run that is up, has
ended or has crashed, and slows none. For Weights & Biases and trackio see examples/follow_wandb.py.`,
	}
	cmd.AddCommand(newTensorboardCommand(a), newCsvCommand(a), newParquetCommand(a))
	return cmd
}

func newTensorboardCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tensorboard", Short: "Write TensorBoard's event file of a run", Args: cobra.NoArgs,
		Long: `Tensorboard writes one event file with every number of the run under the keys of docs/metrics.md, in a folder that
tensorboard --logdir reads. It is written anew each time. With --follow it goes on until the run is done.`,
		Example: "  weir records tensorboard\n  weir records tensorboard --follow\n  tensorboard --logdir runs",
	}
	dir := cmd.Flags().String("dir", "", "the folder to write to; tensorboard in the run's folder by default")
	follow := cmd.Flags().Bool("follow", false, "go on with what comes until the run is done")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, _, err := a.loadConfig(cmd)
		if err != nil {
			return err
		}
		source := filepath.Join(cfg.Folder(), assembly.MetricsFile)
		if !*follow {
			if err := thereAre(source); err != nil {
				return err
			}
		}
		to := cmp.Or(*dir, filepath.Dir(assembly.EventFile(cfg)))
		if err := os.MkdirAll(to, 0o755); err != nil {
			return fmt.Errorf("make the folder of event files: %w; name another with --dir", err)
		}
		path := filepath.Join(to, filepath.Base(assembly.EventFile(cfg)))
		f, err := records.CreateEvents(path)
		if err != nil {
			return fmt.Errorf("%w; or name another folder with --dir", err)
		}
		n, err := writeEvents(cmd.Context(), f, source, *follow)
		if err = errors.Join(err, f.Close()); err != nil {
			return cmp.Or(interruptedError(cmd.Context(), errSaid), err)
		}
		_, err = fmt.Fprintf(a.out, "%d records in %s\n", n, path)
		return err
	}
	return cmd
}

// writeEvents writes the records of a metrics file, with follow also later records, and returns how many.
func writeEvents(ctx context.Context, f *os.File, source string, follow bool) (n int, err error) {
	events, err := records.NewEventWriter(f, time.Now())
	if err != nil {
		return 0, err
	}
	if follow {
		err = records.Follow(ctx, source, func(rec report.Record) error {
			n++
			return events.Add(rec)
		})
		return n, err
	}
	all, err := report.ReadMetrics(source)
	if err != nil {
		return 0, err
	}
	for _, rec := range all {
		if err := events.Add(rec); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func newCsvCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "csv", Short: "Print a run's numbers as a table in CSV", Args: cobra.NoArgs,
		Long:    "CSV prints a row for each record of the run and a column for each key that docs/metrics.md lists and the run has.",
		Example: "  weir records csv > demo.csv\n  weir records csv --run.name mine > mine.csv",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := a.loadConfig(cmd)
			if err != nil {
				return err
			}
			source := filepath.Join(cfg.Folder(), assembly.MetricsFile)
			if err := thereAre(source); err != nil {
				return err
			}
			all, err := report.ReadMetrics(source)
			if err != nil {
				return err
			}
			return records.WriteCSV(a.out, all)
		},
	}
}

// thereAre says that a run has numbers, or that there is no such run here.
func thereAre(metrics string) error {
	_, err := os.Stat(metrics)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: there is no such file: are --run.name and --run.dir right? The trainer's machine has it", metrics)
	}
	return err
}
