package export

import (
	"time"

	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
)

// trajectoryRow is a row of trajectories.parquet. id and sequence together name a trajectory in all three tables.
type trajectoryRow struct {
	ID       string `parquet:"id"`
	Sequence int64  `parquet:"sequence"`
	Group    string `parquet:"group"`
	Cursor   int64  `parquet:"cursor"`
	Attempt  int32  `parquet:"attempt"`
	Sample   int32  `parquet:"sample"`
	Task     string `parquet:"task,dict"`
	Source   string `parquet:"source,dict"`
	PromptID string `parquet:"prompt_id"`
	Producer string `parquet:"producer,dict"`
	// Fate is trained, baseline, passed_over, dropped, refused, lost or, where no record has its end yet, underway; Step used it or noted
	// its end, null while it is underway.
	Fate   string             `parquet:"fate,dict"`
	Reason string             `parquet:"reason,dict"`
	Step   *int64             `parquet:"step,optional"`
	Reward float64            `parquet:"reward"`
	Parts  map[string]float64 `parquet:"rewards"`
	Answer string             `parquet:"answer"`
	Stop   string             `parquet:"stop,dict"`
	Error  string             `parquet:"error"`
	// Tokens counts all tokens, Sampled those of the policy.
	Segments  int32      `parquet:"segments"`
	Turns     int32      `parquet:"turns"`
	Tokens    int32      `parquet:"tokens"`
	Sampled   int32      `parquet:"sampled"`
	Oldest    int64      `parquet:"oldest_version"`
	Newest    int64      `parquet:"newest_version"`
	Started   *time.Time `parquet:"started_at,optional,timestamp(microsecond)"`
	Finished  *time.Time `parquet:"finished_at,optional,timestamp(microsecond)"`
	Published *time.Time `parquet:"published_at,optional,timestamp(microsecond)"`
}

// turnRow is a row of turns.parquet.
type turnRow struct {
	ID       string `parquet:"id"`
	Sequence int64  `parquet:"sequence"`
	Turn     int32  `parquet:"turn"`
	// The sampled tokens are those of tokens.parquet with the segment and start <= position < end.
	Segment       int32     `parquet:"segment"`
	Start         int32     `parquet:"start"`
	End           int32     `parquet:"end"`
	Agent         string    `parquet:"agent,dict"`
	Reward        float64   `parquet:"reward"`
	ProcessReward float64   `parquet:"process_reward"`
	Calls         []callRow `parquet:"calls,list"`
}

// callRow is a call of a tool within a turn.
type callRow struct {
	Tool      string  `parquet:"tool"`
	Arguments string  `parquet:"arguments"`
	Seconds   float64 `parquet:"seconds"`
	Failed    bool    `parquet:"failed"`
	Error     string  `parquet:"error"`
}

// tokenRow is a row of tokens.parquet.
type tokenRow struct {
	ID       string `parquet:"id,dict"`
	Sequence int64  `parquet:"sequence"`
	Segment  int32  `parquet:"segment"`
	Position int32  `parquet:"position"`
	Token    int32  `parquet:"token"`
	// Mask is true where the policy sampled the token; Logprob and Version are null elsewhere.
	Mask    bool     `parquet:"action_mask"`
	Logprob *float32 `parquet:"logprob,optional"`
	Version *int32   `parquet:"version,optional"`
	// Advantage is the loss's input, Start and Last are log-probabilities under the policy at the step's start and the policy that last
	// trained on the token; null where the archive has no numbers of the trajectory.
	Advantage *float32 `parquet:"advantage,optional"`
	Start     *float32 `parquet:"start_logprob,optional"`
	Last      *float32 `parquet:"last_logprob,optional"`
}

func newTrajectoryRow(k *runfolder.Kept, v runfolder.Verdict, known bool) trajectoryRow {
	row := trajectoryRow{
		ID: k.ID, Sequence: int64(k.Sequence), Group: k.Group, Cursor: int64(k.Cursor), Attempt: int32(k.Attempt), Sample: int32(k.Sample),
		Task: k.Task, Source: k.Source, PromptID: k.PromptID, Producer: k.Producer, Fate: v.Fate.String(), Reason: string(v.Reason),
		Reward: k.Reward, Parts: k.Rewards, Answer: k.Answer, Stop: string(k.Stop), Error: k.Error,
		Segments: int32(len(k.Segments)), Turns: int32(len(k.Turns)), Tokens: int32(k.Tokens()), Sampled: int32(k.ActionTokens()),
		Oldest: k.OldestVersion(), Newest: k.NewestVersion(),
		Started: timeOrNull(k.StartedAt), Finished: timeOrNull(k.FinishedAt), Published: timeOrNull(k.Published),
	}
	if known {
		row.Step = &v.Step
	}
	return row
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func turnRows(k *runfolder.Kept) []turnRow {
	rows := make([]turnRow, len(k.Turns))
	for i := range k.Turns {
		u := &k.Turns[i]
		rows[i] = turnRow{
			ID: k.ID, Sequence: int64(k.Sequence), Turn: int32(i), Segment: int32(u.Segment), Start: int32(u.Start), End: int32(u.End),
			Reward: u.Reward, ProcessReward: u.ProcessReward,
		}
		if u.Segment >= 0 && u.Segment < len(k.Segments) {
			rows[i].Agent = k.Segments[u.Segment].Agent
		}
		for _, c := range u.Calls {
			rows[i].Calls = append(rows[i].Calls, callRow{c.Tool, c.Arguments, c.Duration.Seconds(), c.Failed, c.Error})
		}
	}
	return rows
}

// tokenRows returns the rows of a segment; numbers may be nil.
func tokenRows(k *runfolder.Kept, number int, s *schemas.Segment, numbers *archive.Numbers) []tokenRow {
	rows := make([]tokenRow, len(s.Tokens))
	for i := range s.Tokens {
		row := tokenRow{ID: k.ID, Sequence: int64(k.Sequence), Segment: int32(number), Position: int32(i), Token: s.Tokens[i]}
		if i < min(len(s.ActionMask), len(s.Logprobs), len(s.Versions)) && s.ActionMask[i] == 1 {
			row.Mask, row.Logprob, row.Version = true, &s.Logprobs[i], &s.Versions[i]
			if numbers != nil && i < min(len(numbers.Advantages), len(numbers.Start), len(numbers.Last)) {
				row.Advantage, row.Start, row.Last = &numbers.Advantages[i], &numbers.Start[i], &numbers.Last[i]
			}
		}
		rows[i] = row
	}
	return rows
}
