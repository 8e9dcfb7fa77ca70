package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu/hf/chat"
	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
)

func newGenerateCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "generate folder [prompt]", Short: "Go on with a text, or answer a chat, with a model folder", Args: cobra.MinimumNArgs(1),
		Long: `Generate goes on with the prompt, or with what standard input has where there is none, and writes the text as it is
sampled. With --chat the prompt is a user's message, or a JSON array of messages with role and content, and the folder's
chat template writes it. The same seed gives the same text. An answer ends with the tokens that weir model lists, or
after --max-tokens; the exit status is 0 either way, and -o json says which it was.`,
		Example: "  weir generate Qwen2.5-0.5B 'The capital of France is' --max-tokens 20\n" +
			"  weir generate Qwen2.5-0.5B-Instruct --chat 'Name three rivers.' --temperature 0\n" +
			`  echo '[{"role": "user", "content": "Hello"}]' | weir generate Qwen3-0.6B --chat -o json`,
	}
	format := outputFlag(cmd)
	ask := askFor{}
	cmd.Flags().BoolVar(&ask.chat, "chat", false, "the prompt is a chat")
	cmd.Flags().StringVar(&ask.system, "system", "", "what the chat's system message says; only with --chat")
	cmd.Flags().IntVar(&ask.tokens, "max-tokens", 256, "how many tokens are sampled at most")
	cmd.Flags().Float32Var(&ask.temperature, "temperature", 1, "0 is greedy")
	cmd.Flags().Uint64Var(&ask.seed, "seed", 1, "of the random numbers")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(checkTemperature(ask.temperature), ask.checkFlags()); err != nil {
			return err
		}
		prompt := strings.Join(args[1:], " ")
		if len(args) == 1 {
			b, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), maxLine))
			if err != nil {
				return err
			}
			prompt = string(b)
		}
		s, err := a.openProcess(cmd)
		if err != nil {
			return err
		}
		m, err := s.Models().OpenFolder(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer m.Close()
		tokens, err := promptTokens(m, &ask, prompt)
		if err != nil {
			return err
		}
		return a.generateText(cmd.Context(), m, &ask, tokens, format.isJSON())
	}
	return cmd
}

// askFor says how much is to be generated, and how.
type askFor struct {
	chat        bool
	system      string
	tokens      int
	temperature float32
	seed        uint64
}

func (f *askFor) checkFlags() error {
	switch {
	case f.tokens < 1:
		return fault.Usagef("--max-tokens %d: must be positive", f.tokens)
	case f.system != "" && !f.chat:
		return fault.Usage(errors.New("--system is a chat's: give --chat too"))
	}
	return nil
}

// promptTokens are the tokens of the prompt.
func promptTokens(m *assembly.OpenModel, f *askFor, text string) ([]int32, error) {
	if !f.chat {
		tokens := m.Codec.Wrap(m.Codec.Encode(text))
		if len(tokens) == 0 {
			return nil, fault.Usage(errors.New("the prompt is empty"))
		}
		return tokens, nil
	}
	if m.Chat == nil {
		return nil, errors.New("the folder has no chat template: leave --chat out, and write the prompt as the model was trained on it")
	}
	messages, err := readMessages(text)
	if err != nil {
		return nil, err
	}
	if f.system != "" {
		messages = slices.Insert(messages, 0, chat.Message{Role: chat.System, Content: f.system})
	}
	return m.Chat.Prompt(messages, nil)
}

// readMessages reads a JSON array of messages; any other text is a user's.
func readMessages(text string) ([]chat.Message, error) {
	var list []struct{ Role, Content *string }
	if !strings.HasPrefix(strings.TrimSpace(text), "[{") {
		return []chat.Message{{Role: chat.User, Content: strings.TrimSuffix(text, "\n")}}, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fault.Usagef("the prompt begins like a JSON array of messages and is none: %w", err)
	}
	var out []chat.Message
	for i, m := range list {
		if m.Role == nil || m.Content == nil {
			return nil, fault.Usagef("message %d: want role and content, both texts", i)
		}
		out = append(out, chat.Message{Role: *m.Role, Content: *m.Content})
	}
	return out, nil
}

// generated is an answer in JSON.
type generated struct {
	Text         string    `json:"text"`
	Stop         string    `json:"stop"`
	PromptTokens int       `json:"prompt_tokens"`
	Tokens       []int32   `json:"tokens"`
	Logprobs     []float32 `json:"logprobs"`
}

// generateText samples and prints: the text as it comes, or all of it in JSON.
func (w *console) generateText(ctx context.Context, m *assembly.OpenModel, f *askFor, tokens []int32, inJSON bool) error {
	out := generated{PromptTokens: len(tokens), Tokens: []int32{}, Logprobs: []float32{}}
	stream := tokenizer.NewStream(m.Codec)
	say := func(text string) {
		out.Text += text
		if isTerminal(w.out) {
			text = report.Plain(text)
		}
		if !inJSON {
			fmt.Fprint(w.out, text)
		}
	}
	req := &schemas.GenerateRequest{
		Episode: "generate", Tokens: tokens, MaxTokens: f.tokens, Temperature: f.temperature, Seed: f.seed, StopTokens: m.Stops, Last: true,
	}
	err := m.Batcher.Stream(ctx, req, func(c *schemas.GenerateChunk) error {
		if c.Done && c.Stop == schemas.GenerateError {
			return errors.New(c.Error)
		}
		out.Tokens, out.Logprobs = append(out.Tokens, c.Tokens...), append(out.Logprobs, c.Logprobs...)
		for i, id := range c.Tokens {
			if !c.Done || c.Stop != schemas.GenerateStopToken || i < len(c.Tokens)-1 { // the stop token is no part of the answer
				say(stream.Next(id))
			}
		}
		if c.Done {
			say(stream.Rest())
			out.Stop = map[schemas.GenerateStop]string{schemas.GenerateStopToken: "stop", schemas.GenerateLength: "length"}[c.Stop]
		}
		return nil
	})
	switch {
	case err != nil:
		if !inJSON && len(out.Tokens) > 0 {
			fmt.Fprintln(w.out)
		}
		return err
	case inJSON:
		return w.printJSON(out)
	}
	fmt.Fprintln(w.out)
	return nil
}
