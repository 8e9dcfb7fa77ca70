package producers

import (
	"context"
	"fmt"

	"github.com/weir-rl/weir/schemas"
)

// EpisodeReader is a Reward that may read more of an episode than a stored trajectory has, by which it would score a stored trajectory
// otherwise than the episode.
type EpisodeReader interface {
	Reward
	// ReadsOfEpisode names what it reads beyond the trajectory, such as "the reward that the agent posted"; "" is nothing.
	ReadsOfEpisode() string
}

// Rescore scores a trajectory that was stored. The prompt is that of its ticket, answers included; the tokenizer is the run's. The error is
// the reward's. A trajectory that is not well formed is an error too.
//
// The transcript is read back from the tokens. It lacks what an [EpisodeReader] reads; an observation is the text that follows the turn in
// its context, with the words that the agent put around it, and belongs to the turn's first call.
func Rescore(ctx context.Context, reward Reward, prompt schemas.Prompt, t *schemas.Trajectory, tok Tokenizer) (score Score, err error) {
	if err := t.Validate(); err != nil {
		return score, fmt.Errorf("trajectory %s: %w", t.ID, err)
	}
	ticket := &schemas.Ticket{
		Run: t.Run, ID: t.ID, Group: t.Group, Cursor: t.Cursor, Attempt: t.Attempt, Sample: t.Sample, GroupSize: t.GroupSize, Task: t.Task,
		Prompt: prompt,
	}
	transcript := readTranscript(t, prompt, tok)
	err = guardPart(fmt.Sprintf("reward %T", reward), func() (err error) {
		score, err = reward.Score(ctx, ticket, transcript)
		return err
	})
	if err == nil && score.Turns != nil && len(score.Turns) != len(t.Turns) {
		err = fmt.Errorf("%d rewards of turns for %d turns", len(score.Turns), len(t.Turns))
	}
	return score, err
}

// readTranscript reads the transcript of a stored trajectory back from its tokens.
func readTranscript(t *schemas.Trajectory, prompt schemas.Prompt, tok Tokenizer) *Transcript {
	out := &Transcript{
		Prompt: prompt.Text, Answer: t.Answer, Stop: t.Stop,
		pieces: func() []Piece { return listPieces(tok, t.Segments, t.Turns) },
	}
	out.addContexts(t.Segments, tok)
	for i := range t.Turns {
		turn := &t.Turns[i]
		segment := t.Segments[turn.Segment].Tokens
		sampled := segment[turn.Start:turn.End]
		out.Sampled += len(sampled)
		end := len(segment)
		if i+1 < len(t.Turns) && t.Turns[i+1].Segment == turn.Segment {
			end = t.Turns[i+1].Start
		}
		read := TranscriptTurn{Context: turn.Segment, Text: tok.Decode(sampled), Reward: turn.ProcessReward}
		observation := tok.Decode(segment[turn.End:end])
		for _, call := range turn.Calls {
			read.addCall(TranscriptCall{call.Tool, call.Arguments, observation, call.Error, call.Failed})
			observation = ""
		}
		out.Turns = append(out.Turns, read)
	}
	return out
}
