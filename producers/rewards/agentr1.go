package rewards

import "strings"

// AgentR1 scores a transcript of chat blocks as Agent-R1 does: F for its shape, S for its answer.
//
//	F - 1 + S if min(F, 1) >= 0.5, else F - 1
type AgentR1 struct{}

// Reward is in [-1, 1].
func (a AgentR1) Reward(transcript string, golds []string) float64 {
	format := min(a.Format(transcript), 1)
	if format >= 0.5 {
		return -1 + format + a.Answer(transcript, golds)
	}
	return -1 + format
}

// Format is 0.5 for each assistant block but the last that is a thought and a tool call, and 0.5 if the last begins with a thought and ends
// with an answer. Blocks that are not closed do not count.
func (AgentR1) Format(transcript string) float64 {
	blocks := assistantBlocks(transcript)
	if len(blocks) == 0 {
		return 0
	}
	score := 0.0
	last := len(blocks) - 1
	for _, block := range blocks[:last] {
		if isCallBlock(block) {
			score += 0.5
		}
	}
	if isAnswerBlock(blocks[last]) {
		score += 0.5
	}
	return score
}

// Answer is 1 if a gold answer stands within the first answer of the last block, 0.2 if it stands anywhere in that
// block, else 0.
func (AgentR1) Answer(transcript string, golds []string) float64 {
	blocks := assistantBlocks(transcript)
	if len(blocks) == 0 {
		return 0
	}
	block := blocks[len(blocks)-1]
	if answer, ok := FirstAnswer(block); ok && SubstringMatch(SQuAD, answer, golds) == 1 {
		return 1
	}
	return 0.2 * SubstringMatch(SQuAD, block, golds)
}

// assistantBlocks are the assistant's closed turns.
func assistantBlocks(transcript string) []string {
	return textsBetween(transcript, assistant+"\n", "<|im_end|>")
}

// isCallBlock reports whether a block is a thought, white space, and a tool call.
func isCallBlock(block string) bool {
	for _, tag := range []string{"<think>", "</think>", "<tool_call>", "</tool_call>"} {
		if strings.Count(block, tag) != 1 {
			return false
		}
	}
	rest, ok := strings.CutPrefix(block, "<think>")
	_, rest, found := strings.Cut(rest, "</think>")
	return ok && found && strings.HasPrefix(strings.TrimLeftFunc(rest, isSpace), "<tool_call>") && endsWith(rest, "</tool_call>")
}

// isAnswerBlock reports whether a block begins with a thought and ends with an answer.
func isAnswerBlock(block string) bool {
	rest, ok := strings.CutPrefix(block, "<think>")
	_, rest, found := strings.Cut(rest, "</think>")
	_, rest, answered := strings.Cut(rest, "<answer>")
	return ok && found && answered && endsWith(rest, "</answer>")
}

// endsWith allows a line break after the end.
func endsWith(s, end string) bool { return strings.HasSuffix(strings.TrimSuffix(s, "\n"), end) }
