package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu"
)

func newLogprobsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "logprobs folder", Short: "Tell the log-probability of each token of a text under a model", Args: cobra.ExactArgs(1),
		Long: `Logprobs reads a JSON array of token ids a line from standard input and writes a JSON array of as many numbers a line: 0
for the first, then the natural logarithm of each token's probability given those before it, at temperature 1, computed
in float32 by the engine that model.engine names. A line that is no array of ids ends the command and is named by its
number; what stands before it is written.`,
		Example: "  echo '\"What is 2 + 2?\"' | weir tokenize Qwen2.5-0.5B | weir logprobs Qwen2.5-0.5B",
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := a.openProcess(cmd)
		if err != nil {
			return err
		}
		e, err := s.Models().OpenEvaluator(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		defer func() { _ = e.Close() }() // nothing is written by it
		return writeLogprobs(cmd.Context(), e, cmd.InOrStdin(), a.out)
	}
	return cmd
}

// writeLogprobs evaluates each line of ids.
func writeLogprobs(ctx context.Context, e gpu.Engine, in io.Reader, out io.Writer) error {
	size, most := e.Config().VocabSize, e.Config().MaxPositions
	return eachLine(in, out, func(line []byte) ([]byte, error) {
		ids, err := tokenIDs(line, size)
		if err != nil {
			return nil, err
		}
		if len(ids) > most {
			return nil, fmt.Errorf("%d tokens, the model takes %d", len(ids), most)
		}
		return logprobsOf(ctx, e, ids)
	})
}

// logprobsOf is the JSON array of a text.
func logprobsOf(ctx context.Context, e gpu.Engine, ids []int32) ([]byte, error) {
	b := []byte{'['}
	if len(ids) > 0 {
		part := &gpu.Batch{Tokens: ids, Offsets: []int{0, len(ids)}, Mask: make([]uint8, len(ids))}
		for i := range part.Mask {
			part.Mask[i] = 1
		}
		err := e.Evaluate(ctx, []*gpu.Batch{part}, func(_ int, o *gpu.Outputs) error {
			for i, x := range o.Logprobs {
				if i == 0 {
					b = append(b, '0')
					continue
				}
				b = append(b, ',')
				b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}
