package schemas

// The fields of every struct, in wire order. An optional last argument of a call says whether a zero value is left out; every other key
// must be there.

func (t *Ticket) codeFields(c *coder) {
	text(c, "run", &t.Run, false)
	text(c, "id", &t.ID, false)
	text(c, "group", &t.Group, false)
	c.uint64("cursor", &t.Cursor)
	integer(c, "attempt", &t.Attempt, false)
	integer(c, "sample", &t.Sample, false)
	integer(c, "group_size", &t.GroupSize, false)
	text(c, "task", &t.Task, false)
	c.codeStructure("prompt", &t.Prompt)
	c.uint64("seed", &t.Seed)
	c.codeStructure("sampling", &t.Sampling)
	c.codeStructure("limits", &t.Limits)
	integer(c, "policy_version", &t.PolicyVersion, false)
	integer(c, "min_version", &t.MinVersion, true)
	c.codeTime("issued_at", &t.IssuedAt)
	optional(c, "fork", &t.Fork)
}

func (f *Fork) codeFields(c *coder) {
	text(c, "parent", &f.Parent, false)
	c.uint64("seed", &f.Seed)
	structures(c, "segments", &f.Segments, false)
	structures(c, "turns", &f.Turns, false)
}

func (p *Prompt) codeFields(c *coder) {
	text(c, "id", &p.ID, false)
	text(c, "text", &p.Text, false)
	c.codeTexts("answers", &p.Answers, false)
	text(c, "source", &p.Source, false)
	mapped(c, "meta", &p.Meta, true)
	octets(c, "world", &p.World, true)
	octets(c, "hidden", &p.Hidden, true)
}

func (s *Sampling) codeFields(c *coder) {
	c.float32("temperature", &s.Temperature)
	integer(c, "max_tokens", &s.MaxTokens, false)
}

func (l *Limits) codeFields(c *coder) {
	integer(c, "max_turns", &l.MaxTurns, false)
	integer(c, "max_tokens", &l.MaxTokens, false)
	integer(c, "timeout", &l.Timeout, false)
	integer(c, "max_total_tokens", &l.MaxTotalTokens, true)
	integer(c, "max_segments", &l.MaxSegments, true)
}

func (g *GroupClosed) codeFields(c *coder) {
	text(c, "run", &g.Run, false)
	text(c, "group", &g.Group, false)
	c.codeInts("cancelled", &g.Cancelled)
	integer(c, "delivered", &g.Delivered, false)
	text(c, "why", &g.Why, false)
	text(c, "producer", &g.Producer, false)
	c.codeTime("closed_at", &g.ClosedAt)
}

func (t *Trajectory) codeFields(c *coder) {
	text(c, "run", &t.Run, false)
	text(c, "id", &t.ID, false)
	text(c, "group", &t.Group, false)
	c.uint64("cursor", &t.Cursor)
	integer(c, "attempt", &t.Attempt, false)
	integer(c, "sample", &t.Sample, false)
	integer(c, "group_size", &t.GroupSize, false)
	text(c, "task", &t.Task, false)
	text(c, "prompt_id", &t.PromptID, false)
	text(c, "source", &t.Source, false)
	text(c, "producer", &t.Producer, false)
	structures(c, "segments", &t.Segments, false)
	structures(c, "turns", &t.Turns, false)
	c.float64("reward", &t.Reward, false)
	mapped(c, "rewards", &t.Rewards, false)
	mapped(c, "agent_rewards", &t.AgentRewards, true)
	text(c, "answer", &t.Answer, false)
	text(c, "stop", &t.Stop, false)
	text(c, "error", &t.Error, true)
	c.codeTime("started_at", &t.StartedAt)
	c.codeTime("finished_at", &t.FinishedAt)
	optional(c, "forked", &t.Forked)
}

func (f *Forked) codeFields(c *coder) {
	text(c, "parent", &f.Parent, false)
	integer(c, "turns", &f.Turns, false)
	text(c, "diverged", &f.Diverged, true)
}

func (s *Segment) codeFields(c *coder) {
	words(c, "tokens", &s.Tokens)
	octets(c, "action_mask", &s.ActionMask, false)
	words(c, "logprobs", &s.Logprobs)
	c.runLengths("versions", &s.Versions, len(s.Tokens))
	c.float32("temperature", &s.Temperature)
	text(c, "agent", &s.Agent, true)
}

func (t *Turn) codeFields(c *coder) {
	integer(c, "segment", &t.Segment, false)
	integer(c, "start", &t.Start, false)
	integer(c, "end", &t.End, false)
	structures(c, "calls", &t.Calls, true)
	c.float64("process_reward", &t.ProcessReward, true)
	c.float64("reward", &t.Reward, true)
}

func (t *ToolCall) codeFields(c *coder) {
	text(c, "tool", &t.Tool, false)
	text(c, "arguments", &t.Arguments, true)
	integer(c, "duration", &t.Duration, true)
	text(c, "error", &t.Error, true)
	c.codeBool("failed", &t.Failed, true)
}

func (m *Manifest) codeFields(c *coder) {
	text(c, "run", &m.Run, false)
	integer(c, "version", &m.Version, false)
	integer(c, "base", &m.Base, false)
	structures(c, "shards", &m.Shards, false)
	octets(c, "config", &m.Config, false)
	text(c, "config_hash", &m.ConfigHash, false)
	text(c, "tokenizer_hash", &m.TokenizerHash, false)
	text(c, "dtype", &m.DType, false)
	c.codeTime("published_at", &m.PublishedAt)
	optional(c, "adapter", &m.Adapter)
}

func (a *Adapter) codeFields(c *coder) {
	integer(c, "rank", &a.Rank, false)
	c.float64("alpha", &a.Alpha, false)
	structures(c, "frozen", &a.Frozen, false)
}

func (s *Shard) codeFields(c *coder) {
	text(c, "hash", &s.Hash, false)
	integer(c, "size", &s.Size, false)
	text(c, "encoding", &s.Encoding, false)
	text(c, "full_hash", &s.FullHash, false)
}

func (k *Control) codeFields(c *coder) {
	text(c, "run", &k.Run, false)
	c.codeBool("paused", &k.Paused, false)
	c.codeBool("draining", &k.Draining, false)
	integer(c, "policy_version", &k.PolicyVersion, false)
	integer(c, "min_version", &k.MinVersion, false)
	integer(c, "eta", &k.Eta, false)
	integer(c, "depth", &k.Depth, false)
	c.codeTexts("cancelled", &k.Cancelled, true)
	c.codeTime("at", &k.At)
	structures(c, "limits", &k.Limits, true)
}

func (l *Limit) codeFields(c *coder) {
	text(c, "task", &l.Task, true)
	text(c, "key", &l.Key, false)
	integer(c, "value", &l.Value, false)
}

func (e *Event) codeFields(c *coder) {
	text(c, "run", &e.Run, false)
	text(c, "type", &e.Type, false)
	c.codeTime("at", &e.At)
	text(c, "role", &e.Role, false)
	text(c, "worker", &e.Worker, false)
	integer(c, "step", &e.Step, true)
	integer(c, "policy_version", &e.PolicyVersion, true)
	mapped(c, "metrics", &e.Metrics, true)
	text(c, "message", &e.Message, true)
}

func (r *GenerateRequest) codeFields(c *coder) {
	text(c, "run", &r.Run, false)
	text(c, "episode", &r.Episode, false)
	words(c, "tokens", &r.Tokens)
	integer(c, "max_tokens", &r.MaxTokens, false)
	c.float32("temperature", &r.Temperature)
	c.uint64("seed", &r.Seed)
	words(c, "stop_tokens", &r.StopTokens)
	c.codeBool("last", &r.Last, false)
	integer(c, "min_version", &r.MinVersion, true)
	text(c, "context", &r.Context, true)
	c.codeBool("pinned", &r.Pinned, true)
}

func (g *GenerateChunk) codeFields(c *coder) {
	text(c, "episode", &g.Episode, false)
	text(c, "engine", &g.Engine, false)
	integer(c, "index", &g.Index, false)
	words(c, "tokens", &g.Tokens)
	words(c, "logprobs", &g.Logprobs)
	c.runLengths("versions", &g.Versions, len(g.Tokens))
	c.codeBool("done", &g.Done, false)
	text(c, "stop", &g.Stop, true)
	text(c, "error", &g.Error, true)
	c.codeBool("retry", &g.Retry, true)
	c.codeBool("busy", &g.Busy, true)
}

func (r *ToolRequest) codeFields(c *coder) {
	text(c, "run", &r.Run, false)
	text(c, "session", &r.Session, false)
	text(c, "opening", &r.Opening, false)
	text(c, "op", &r.Op, false)
	integer(c, "sequence", &r.Sequence, false)
	integer(c, "answered", &r.Answered, true)
	text(c, "task", &r.Task, true)
	text(c, "source", &r.Source, true)
	c.uint64("seed", &r.Seed)
	octets(c, "world", &r.World, true)
	text(c, "tool", &r.Tool, true)
	text(c, "arguments", &r.Arguments, true)
	integer(c, "index", &r.Index, true)
	text(c, "file", &r.File, true)
	integer(c, "limit", &r.Limit, true)
	optional(c, "command", &r.Command)
}

func (t *ToolCommand) codeFields(c *coder) {
	c.codeTexts("argv", &t.Argv, false)
	octets(c, "stdin", &t.Stdin, true)
	structures(c, "files", &t.Files, true)
	c.codeTexts("env", &t.Env, true)
	integer(c, "timeout", &t.Timeout, true)
	integer(c, "output", &t.Output, true)
}

func (t *ToolFile) codeFields(c *coder) {
	text(c, "name", &t.Name, false)
	octets(c, "data", &t.Data, false)
}

func (r *ToolReply) codeFields(c *coder) {
	text(c, "session", &r.Session, false)
	text(c, "worker", &r.Worker, false)
	integer(c, "sequence", &r.Sequence, false)
	c.codeBool("done", &r.Done, false)
	text(c, "outcome", &r.Outcome, true)
	text(c, "error", &r.Error, true)
	integer(c, "retry_after", &r.RetryAfter, true)
	c.codeBool("workspace", &r.Workspace, true)
	optional(c, "observation", &r.Observation)
	optional(c, "result", &r.Result)
	octets(c, "data", &r.Data, true)
}

func (e *Evaluation) codeFields(c *coder) {
	text(c, "run", &e.Run, false)
	text(c, "ticket", &e.Ticket, false)
	text(c, "producer", &e.Producer, false)
	text(c, "outcome", &e.Outcome, false)
	text(c, "error", &e.Error, true)
	octets(c, "trajectory", &e.Trajectory, true)
	structures(c, "turns", &e.Turns, true)
}

func (t *EvaluationTurn) codeFields(c *coder) {
	text(c, "text", &t.Text, false)
	text(c, "tool", &t.Tool, true)
	text(c, "arguments", &t.Arguments, true)
	text(c, "observation", &t.Observation, true)
	text(c, "error", &t.Error, true)
}

func (o *ToolObservation) codeFields(c *coder) {
	text(c, "text", &o.Text, false)
	c.float64("reward", &o.Reward, true)
	c.codeBool("rewarded", &o.Rewarded, true)
	c.codeBool("done", &o.Done, true)
	text(c, "answer", &o.Answer, true)
	c.codeBool("answered", &o.Answered, true)
	integer(c, "outputs", &o.Outputs, true)
	integer(c, "errors", &o.Errors, true)
	text(c, "notes", &o.Notes, true)
	mapped(c, "metrics", &o.Metrics, true)
}

func (t *ToolResult) codeFields(c *coder) {
	integer(c, "exit", &t.Exit, false)
	octets(c, "stdout", &t.Stdout, true)
	octets(c, "stderr", &t.Stderr, true)
	c.codeBool("timed_out", &t.TimedOut, true)
	integer(c, "took", &t.Took, true)
}
