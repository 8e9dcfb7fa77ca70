package cli

import "github.com/spf13/cobra"

func newArchiveCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "archive", Short: "Keep what the stream is purged of, beside the trainer", Args: cobra.NoArgs,
		Long: `Archive is the role that keeps every message of the trajectory stream before the trainer purges it, where
trainer.archive.messages.by is role. It writes the same segments as the trainer would, to the folder or bucket of
trainer.archive.messages.dir, which whoever reads the run must reach. A run has one: a new archive takes over at once.
With trainer.archive.required no step trains, and nothing is purged, before it has kept the messages.`,
		Example: "  weir archive --broker.url nats://broker:4222 --trainer.archive.messages.by role \\\n" +
			"    --trainer.archive.messages.bytes 100000000000 --trainer.archive.messages.dir s3://bucket/prefix",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.openProcess(cmd, "archive")
			if err != nil {
				return err
			}
			return s.Archive(cmd.Context())
		},
	}
}
