package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Format is how a model writes calls of tools.
type Format string

// The formats. Published models use all but the last three; they are known by the models' templates.
const (
	// FormatNone is no known format.
	FormatNone Format = ""
	// FormatHermes is Hermes', Qwen2.5's and Qwen3's: <tool_call>, a JSON object of name and arguments, </tool_call>, for each
	// call.
	FormatHermes Format = "hermes"
	// FormatLlama3 is Llama 3's: the turn is a JSON object of name and parameters.
	FormatLlama3 Format = "llama3"
	// FormatQwen3Coder is Qwen3-Coder's and Qwen3.5's: <tool_call>, <function=name>, <parameter=name> and a value for each
	// argument, closed in turn, for each call. It has no escapes: a value that spells the end of a parameter and the beginning
	// of the next cannot be written.
	FormatQwen3Coder Format = "qwen3_coder"
	// FormatHarmony is gpt-oss's: a turn is messages in the channels analysis, commentary and final, and ends with a call or
	// with the answer. A turn has at most a single call.
	FormatHarmony Format = "harmony"
	// FormatTag is Search-R1's and similar: <search>words</search>, with a tag for each tool, and the tool's result behind it
	// in the same turn. The template is shown no tools, so that it need not support any: the system message describes them.
	FormatTag Format = "tag"
	// FormatCode is ReTool's: a tool runs the text between <code> and </code>, in a fence or not, and its output stands behind
	// it in the same turn.
	FormatCode Format = "code"
	// FormatFence is FormatCode with a fence alone: ```python, code, ```.
	FormatFence Format = "fence"
)

// Formats are the formats that a configuration can name.
func Formats() []string {
	var out []string
	for _, f := range []Format{FormatHermes, FormatLlama3, FormatQwen3Coder, FormatHarmony, FormatTag, FormatCode, FormatFence} {
		out = append(out, string(f))
	}
	return out
}

// withinTurn reports whether a tool's result stands in the turn that called it, and the template has no part in calls.
func (f Format) withinTurn() bool { return f == FormatTag || f == FormatCode || f == FormatFence }

// Style is the way in which a model is to write calls, in place of the way that its template shows. The zero value is the
// template's own format.
type Style struct {
	// Format is how calls are written; FormatNone is as the template shows.
	Format Format
	// Tags are the tags of tools, by the name of the tool, in FormatTag; a tool that is not here has its name for a tag.
	Tags map[string]string
	// Result is the tag around a tool's result, in the formats tag, code and fence. "" is information in FormatTag, as
	// Search-R1 has it, and interpreter in the others, as ReTool has it.
	Result string
	// Tool is the tool that runs code, in FormatCode and FormatFence; "" is the first of the tools.
	Tool string
	// Untold leaves the list of tools and how to call them out of the system message, in the formats tag, code and fence: for a
	// model that has learnt it, or a system message of your own.
	Untold bool
}

// resultTag is the tag around a tool's result.
func (s Style) resultTag() string {
	switch {
	case s.Result != "":
		return s.Result
	case s.Format == FormatTag:
		return "information"
	}
	return "interpreter"
}

// checkReadable refuses a style whose calls cannot be read back.
func (s Style) checkReadable() error {
	faults := []error{}
	if s.Format != FormatNone && !slices.Contains(Formats(), string(s.Format)) {
		faults = append(faults, fmt.Errorf("format %q: want one of %s", s.Format, strings.Join(Formats(), ", ")))
	}
	seen := map[string]string{s.resultTag(): "what tools say"}
	check := func(tag, whose string) {
		if tag == "" || strings.ContainsAny(tag, "<>/ \t\n") {
			faults = append(faults, fmt.Errorf("the tag %q of %s: want a word without <, >, / and white space", tag, whose))
		}
	}
	check(s.resultTag(), "what tools say")
	for tool, tag := range s.Tags {
		check(tag, "tool "+tool)
		if other, twice := seen[tag]; twice {
			faults = append(faults, fmt.Errorf("the tag %q is that of tool %s and of %s: give each its own", tag, tool, other))
		}
		seen[tag] = "tool " + tool
	}
	return errors.Join(faults...)
}

const (
	openCall    = "<tool_call>"
	closeCall   = "</tool_call>"
	closeThink  = "</think>"
	pythonTag   = "<|python_tag|>"
	functionTag = "<function="
)

// formatOf is the format that a template shows to the model.
func formatOf(source string) Format {
	switch {
	case strings.Contains(source, channelToken) && strings.Contains(source, messageToken) && strings.Contains(source, startToken):
		return FormatHarmony
	case strings.Contains(source, functionTag) && strings.Contains(source, openCall) && strings.Contains(source, parameterTag):
		return FormatQwen3Coder
	case strings.Contains(source, functionTag), strings.Contains(source, "<arg_key>"): // GLM's has tags of its own within <tool_call>
		return FormatNone
	case strings.Contains(source, openCall) && strings.Contains(source, "arguments"):
		return FormatHermes
	case strings.Contains(source, `"parameters": `) && strings.Contains(source, "ipython"):
		return FormatLlama3
	}
	return FormatNone
}

// Write is the text of a turn that makes calls. The formats llama3, harmony, code and fence write the first alone. The tools tell which
// argument a tag holds as it is; without them each call stands as JSON.
func (c *Chat) Write(calls []Call, tools ...Tool) string {
	var parts []string
	for _, call := range calls {
		switch c.style.Format {
		case FormatHermes:
			parts = append(parts, fmt.Sprintf("%s\n{\"name\": %s, \"arguments\": %s}\n%s", openCall, textJSON(call.Name), call.Arguments, closeCall))
		case FormatQwen3Coder:
			parts = append(parts, writeXML(call))
		case FormatTag:
			parts = append(parts, c.style.writeTag(call, tools))
		case FormatLlama3:
			return fmt.Sprintf(`{"name": %s, "parameters": %s}`, textJSON(call.Name), call.Arguments)
		case FormatHarmony:
			return c.harmonyCall(call, string(call.Arguments))
		case FormatCode, FormatFence:
			return c.style.writeCode(call, tools)
		}
	}
	return strings.Join(parts, "\n")
}
