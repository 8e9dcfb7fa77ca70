package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/endpoint"
)

// asked is a model behind an endpoint that an evaluation asks.
type asked struct{ cfg endpoint.Config }

// endpointFlags adds the flags that name an endpoint to a command.
func endpointFlags(cmd *cobra.Command) *asked {
	e := &asked{endpoint.DefaultConfig()}
	cmd.Flags().StringVar(&e.cfg.URL, "endpoint", "", "ask an OpenAI-compatible endpoint: its address up to /v1")
	cmd.Flags().StringVar(&e.cfg.Model, "model-name", "", "the model that the endpoint serves")
	cmd.Flags().StringVar(&e.cfg.TokenEnv, "api-key-env", "", "the environment variable with the endpoint's key")
	cmd.Flags().StringVar(&e.cfg.System, "system", "", "a system message for the endpoint")
	cmd.Flags().StringVar(&e.cfg.AnswerTag, "answer-tag", "", "the tag that the endpoint's answer stands in")
	cmd.Flags().IntVar(&e.cfg.MaxTokens, "answer-tokens", e.cfg.MaxTokens, "bounds one message of the endpoint's")
	return e
}

// openEndpoint opens the questions of the configuration and has them asked of the endpoint, with the tools of their tasks.
func (e *asked) openEndpoint(cmd *cobra.Command, s *assembly.Run, q *assembly.Question) (*assembly.LoadedPolicy, error) {
	for _, flag := range []string{"checkpoint", "step", "initial"} {
		if cmd.Flags().Changed(flag) {
			return nil, fault.Usagef("--%s and --endpoint: want either", flag)
		}
	}
	client, err := endpoint.New(e.cfg)
	if err != nil {
		return nil, fault.Usagef("--endpoint: %w", err)
	}
	c, err := s.OpenQuestions(cmd.Context())
	if err != nil {
		client.Close()
		return nil, err
	}
	q.Roll = func(env producers.Environment, _ *assembly.Task) producers.Roll { return client.Roll(env) }
	end := func() {
		client.Close()
		_ = c.Close() // sandboxes that do not close end with this process
	}
	return &assembly.LoadedPolicy{Config: s.Config, Log: s.Log, Course: c, Sampler: &assembly.Sampler{}, Close: end}, nil
}

// nameModel names the model that is asked, for people.
func (e *asked) nameModel(m *assembly.LoadedPolicy) string {
	if e.cfg.URL != "" {
		return fmt.Sprintf("%s at %s", e.cfg.Model, e.cfg.URL)
	}
	return fmt.Sprintf("version %d", m.Version)
}
