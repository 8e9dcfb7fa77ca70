// Two agents that know nothing of Weir: each asks a model by a public SDK, as its makers document it, and finds its server by the variables
// that the SDK reads (OPENAI_BASE_URL, ANTHROPIC_BASE_URL and their keys). The first agent is written for OpenAI's chat completions and responses, the other for
// Anthropic's messages.
//
//	go build . && ./sdk-agents chat "box 1 2 3 ?"
//
// A box holds a digit that no rule leads to. The agent asks the model about a box. When the model says "look", the agent opens the
// box and shows the digit, and the model's next words are the answer. Without having looked the agent answers nothing.
package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"strconv"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
)

// A talk asks the model a further question and returns its answer.
type talk func(ctx context.Context, said string) (string, error)

// talks are the ways to ask a model.
func talks() map[string]func() talk {
	return map[string]func() talk{"chat": chatCompletions, "responses": openaiResponses, "messages": anthropicMessages}
}

// chatCompletions streams OpenAI's chat completions.
func chatCompletions() talk {
	client := openai.NewClient()
	var messages []openai.ChatCompletionMessageParamUnion
	return func(ctx context.Context, said string) (string, error) {
		messages = append(messages, openai.UserMessage(said))
		stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{Model: "policy", Messages: messages, MaxCompletionTokens: openai.Int(1)})
		defer stream.Close()
		var whole openai.ChatCompletionAccumulator
		for stream.Next() {
			if !whole.AddChunk(stream.Current()) {
				return "", fmt.Errorf("read the stream: a chunk of another completion")
			}
		}
		if err := stream.Err(); err != nil {
			return "", err
		}
		message := whole.Choices[0].Message
		messages = append(messages, message.ToParam())
		return message.Content, nil
	}
}

// openaiResponses asks by OpenAI's responses, each of which goes on from the last.
func openaiResponses() talk {
	client := openai.NewClient()
	var last string
	return func(ctx context.Context, said string) (string, error) {
		params := responses.ResponseNewParams{
			Model: "policy", MaxOutputTokens: openai.Int(1),
			Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(said)},
		}
		if last != "" {
			params.PreviousResponseID = openai.String(last)
		}
		r, err := client.Responses.New(ctx, params)
		if err != nil {
			return "", err
		}
		last = r.ID
		return r.OutputText(), nil
	}
}

// anthropicMessages streams Anthropic's messages.
func anthropicMessages() talk {
	client := anthropic.NewClient()
	var messages []anthropic.MessageParam
	return func(ctx context.Context, said string) (string, error) {
		messages = append(messages, anthropic.NewUserMessage(anthropic.NewTextBlock(said)))
		stream := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{Model: "policy", MaxTokens: 1, Messages: messages})
		defer stream.Close()
		var whole anthropic.Message
		for stream.Next() {
			if err := whole.Accumulate(stream.Current()); err != nil {
				return "", fmt.Errorf("read the stream: %w", err)
			}
		}
		if err := stream.Err(); err != nil {
			return "", err
		}
		messages = append(messages, whole.ToParam())
		var text strings.Builder
		for _, block := range whole.Content {
			text.WriteString(block.Text)
		}
		return text.String(), nil
	}
}

// inside is the digit in a box.
func inside(box string) string {
	return strconv.Itoa(int(crc32.ChecksumIEEE([]byte(box)) / 7 % 10))
}

// play is the model's last word on a box.
func play(ctx context.Context, say talk, box string) (string, error) {
	said, err := say(ctx, box)
	if err != nil || strings.TrimSpace(said) != "look" {
		return "", err
	}
	return say(ctx, inside(box))
}

func main() {
	if len(os.Args) != 3 || talks()[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, `usage: sdk-agents chat|responses|messages "box 1 2 3 ?"`)
		os.Exit(2)
	}
	answer, err := play(context.Background(), talks()[os.Args[1]](), os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(strings.TrimSpace(answer))
}
