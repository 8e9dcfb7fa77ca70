package cli

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/export"
	"github.com/weir-rl/weir/internal/report"
)

func newParquetCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "parquet", Short: "Write a run's trajectories as Parquet", Args: cobra.NoArgs,
		Long: `Parquet writes trajectories.parquet, turns.parquet and tokens.parquet, of every trajectory that the run keeps: with
trainer.archive.messages.bytes all that were published, else those of the kept batches and of the archive's samples.
A token has its log-probability, its mask, its version and, where trainer.archive.samples kept it, its advantage.
docs/records.md has recipes for pandas and DuckDB. A segment or batch that is damaged is named and passed over.`,
		Example: "  weir records parquet --run.name mine\n  weir records parquet --run.name mine --dir tables --tokens=false",
	}
	dir := cmd.Flags().String("dir", "", "the folder to write to; parquet in the run's folder by default")
	tokens := cmd.Flags().Bool("tokens", true, "write tokens.parquet too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r, err := a.openRecord(cmd)
		if err != nil {
			return err
		}
		to := cmp.Or(*dir, filepath.Join(r.Config.Folder(), "parquet"))
		n, err := export.Write(cmd.Context(), r.folder, r.record, export.Options{Dir: to, Tokens: *tokens, Damaged: func(err error) {
			fmt.Fprintln(a.err, "passed over: "+report.Plain(err.Error()))
		}})
		if err != nil {
			return cmp.Or(interruptedError(cmd.Context(), errSaid), err)
		}
		fmt.Fprintf(a.out, "%d trajectories, %d turns, %d tokens in %s\n", n.Trajectories, n.Turns, n.Tokens, to)
		if n.Damaged > 0 {
			return fmt.Errorf("%d segments or batches are damaged, and the tables lack what they held: weir audit --verify names them", n.Damaged)
		}
		return nil
	}
	return cmd
}
