package chat

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Finding A12 of the second attack: who offers no tools, or has to see why a call is none, needs the turn with all that is like a call.
func TestATurnAsItWasSaid(t *testing.T) {
	t.Parallel()
	harmony := harmonyOf(t, harmonyTemplates(t)["channel first"])
	for _, test := range []struct {
		c          *Chat
		text, want string
	}{
		{chatOf(t, "Qwen/Qwen2.5-7B-Instruct"), " I look. <tool_call>{}</tool_call> ", "I look. <tool_call>{}</tool_call>"},
		{chatOf(t, "Qwen/Qwen3-0.6B"), "<think>Hm.</think>I look. <tool_call>no</tool_call>", "I look. <tool_call>no</tool_call>"},
		{harmony, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>", "Hello."},
		{
			harmony, "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.a<|channel|>commentary<|message|>{}<|call|>",
			"<|start|>assistant to=functions.a<|channel|>commentary<|message|>{}<|call|>",
		},
		{harmony, "<|channel|>analysis<|message|>Hm.<|end|>Hello<|return|>", "Hello"},
	} {
		require.Equal(t, test.want, test.c.Parse(test.text).Said, test.text)
	}
}
