package cli

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/consumers/openai"
	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
)

// serveDrain is how long requests that run may go on when the process is asked to end.
const serveDrain = 5 * time.Second

func newServeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "serve [run or folder]", Short: "Serve a checkpoint or a model folder over the OpenAI API", Args: cobra.MaximumNArgs(1),
		Long: `Serve answers requests as the OpenAI API does, with the newest checkpoint of a run, or one that --step or --checkpoint
names. It needs no broker and the run may be over. The weights stay those that it began with; weir inference follows
the versions of a run that trains. A folder with a config.json is a model folder: its own chat template writes the
chats, and no task is needed. It listens where --inference.openai.listen says, 127.0.0.1:8000 by default.`,
		Example: "  weir serve\n  weir serve mine --step 20\n  weir serve Qwen2.5-0.5B-Instruct\n  weir serve --checkpoint folder --inference.openai.listen 127.0.0.1:9000",
	}
	model := a.addModelFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && isModelFolder(args[0]) {
			return a.serveFolder(cmd, args[0])
		}
		if len(args) > 0 {
			if err := cmd.Flags().Set("run.name", args[0]); err != nil {
				return fault.Usage(err)
			}
		}
		ctx := cmd.Context()
		cmd.SetContext(context.WithoutCancel(ctx)) // the engine outlives the requests that run when ctx ends
		m, err := model(cmd)
		if err != nil {
			return err
		}
		defer m.Close()
		cfg := assembly.OpenAIConfig(m.Config, m.Course)
		cfg.Listen = cmp.Or(cfg.Listen, "127.0.0.1:8000")
		api := openai.New(cfg, m.Sampler.Engine, m.Course.Tokenizer, m.Course.ChatContext, m.Log).WithChat(m.Course.ChatTemplate())
		// An end that was asked for is the end of a server.
		return api.Serve(ctx, serveDrain, func(address string) {
			fmt.Fprintf(a.out, "serving run %s, version %d, as model %s on http://%s/v1\n", m.Config.Run.Name, m.Version, cfg.Model, address)
		})
	}
	return cmd
}
