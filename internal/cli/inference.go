package cli

import "github.com/spf13/cobra"

func newInferenceCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "inference", Short: "Follow the policy's weights and sample from them", Args: cobra.NoArgs,
		Example: "  weir inference --broker.url nats://broker:4222 --inference.openai.listen 127.0.0.1:8000",
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.openProcess(cmd, "weights")
			if err != nil {
				return err
			}
			return s.Inference(cmd.Context())
		},
	}
}
