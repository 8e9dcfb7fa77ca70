package schemas

// The fields of every struct, in wire order. An optional last argument of a call says whether a zero value is left out; every other key
// must be there.

func (t *Ticket) codeFields(c *coder) {
	codeTextValue(c, "run", &t.Run, false)
	codeTextValue(c, "id", &t.ID, false)
	codeTextValue(c, "group", &t.Group, false)
	c.codeUint64("cursor", &t.Cursor)
	codeIntegerValue(c, "attempt", &t.Attempt, false)
	codeIntegerValue(c, "sample", &t.Sample, false)
	codeIntegerValue(c, "group_size", &t.GroupSize, false)
	codeTextValue(c, "task", &t.Task, false)
	c.codeStructure("prompt", &t.Prompt)
	c.codeUint64("seed", &t.Seed)
	c.codeStructure("sampling", &t.Sampling)
	c.codeStructure("limits", &t.Limits)
	codeIntegerValue(c, "policy_version", &t.PolicyVersion, false)
	codeIntegerValue(c, "min_version", &t.MinVersion, true)
	c.codeTime("issued_at", &t.IssuedAt)
	optional(c, "fork", &t.Fork)
}

func (f *Fork) codeFields(c *coder) {
	codeTextValue(c, "parent", &f.Parent, false)
	c.codeUint64("seed", &f.Seed)
	structures(c, "segments", &f.Segments, false)
	structures(c, "turns", &f.Turns, false)
}

func (p *Prompt) codeFields(c *coder) {
	codeTextValue(c, "id", &p.ID, false)
	codeTextValue(c, "text", &p.Text, false)
	c.codeTexts("answers", &p.Answers, false)
	codeTextValue(c, "source", &p.Source, false)
	codeTextMap(c, "meta", &p.Meta, true)
	codeOctets(c, "world", &p.World, true)
	codeOctets(c, "hidden", &p.Hidden, true)
}

func (s *Sampling) codeFields(c *coder) {
	c.codeFloat32("temperature", &s.Temperature)
	codeIntegerValue(c, "max_tokens", &s.MaxTokens, false)
}

func (l *Limits) codeFields(c *coder) {
	codeIntegerValue(c, "max_turns", &l.MaxTurns, false)
	codeIntegerValue(c, "max_tokens", &l.MaxTokens, false)
	codeIntegerValue(c, "timeout", &l.Timeout, false)
	codeIntegerValue(c, "max_total_tokens", &l.MaxTotalTokens, true)
	codeIntegerValue(c, "max_segments", &l.MaxSegments, true)
}

func (g *GroupClosed) codeFields(c *coder) {
	codeTextValue(c, "run", &g.Run, false)
	codeTextValue(c, "group", &g.Group, false)
	c.codeInts("cancelled", &g.Cancelled)
	codeIntegerValue(c, "delivered", &g.Delivered, false)
	codeTextValue(c, "why", &g.Why, false)
	codeTextValue(c, "producer", &g.Producer, false)
	c.codeTime("closed_at", &g.ClosedAt)
}

func (t *Trajectory) codeFields(c *coder) {
	codeTextValue(c, "run", &t.Run, false)
	codeTextValue(c, "id", &t.ID, false)
	codeTextValue(c, "group", &t.Group, false)
	c.codeUint64("cursor", &t.Cursor)
	codeIntegerValue(c, "attempt", &t.Attempt, false)
	codeIntegerValue(c, "sample", &t.Sample, false)
	codeIntegerValue(c, "group_size", &t.GroupSize, false)
	codeTextValue(c, "task", &t.Task, false)
	codeTextValue(c, "prompt_id", &t.PromptID, false)
	codeTextValue(c, "source", &t.Source, false)
	codeTextValue(c, "producer", &t.Producer, false)
	structures(c, "segments", &t.Segments, false)
	structures(c, "turns", &t.Turns, false)
	c.codeFloat64("reward", &t.Reward, false)
	codeTextMap(c, "rewards", &t.Rewards, false)
	codeTextMap(c, "agent_rewards", &t.AgentRewards, true)
	codeTextValue(c, "answer", &t.Answer, false)
	codeTextValue(c, "stop", &t.Stop, false)
	codeTextValue(c, "error", &t.Error, true)
	c.codeTime("started_at", &t.StartedAt)
	c.codeTime("finished_at", &t.FinishedAt)
	optional(c, "forked", &t.Forked)
	optional(c, "recorded", &t.Recorded)
	structures(c, "values", &t.Values, true)
}

func (r *Recorded) codeFields(c *coder) {
	codeTextValue(c, "run", &r.Run, false)
	codeTextValue(c, "id", &r.ID, false)
	codeIntegerValue(c, "oldest", &r.Oldest, false)
	codeIntegerValue(c, "newest", &r.Newest, false)
}

func (v *StateValue) codeFields(c *coder) {
	c.codeFloat64("mean", &v.Mean, false)
	codeIntegerValue(c, "samples", &v.Samples, false)
	codeIntegerValue(c, "tokens", &v.Tokens, false)
}

func (f *Forked) codeFields(c *coder) {
	codeTextValue(c, "parent", &f.Parent, false)
	codeIntegerValue(c, "turns", &f.Turns, false)
	codeTextValue(c, "diverged", &f.Diverged, true)
}

func (s *Segment) codeFields(c *coder) {
	codeWordArray(c, "tokens", &s.Tokens)
	codeOctets(c, "action_mask", &s.ActionMask, false)
	codeWordArray(c, "logprobs", &s.Logprobs)
	c.runLengths("versions", &s.Versions, len(s.Tokens))
	c.codeFloat32("temperature", &s.Temperature)
	codeTextValue(c, "agent", &s.Agent, true)
}

func (t *Turn) codeFields(c *coder) {
	codeIntegerValue(c, "segment", &t.Segment, false)
	codeIntegerValue(c, "start", &t.Start, false)
	codeIntegerValue(c, "end", &t.End, false)
	structures(c, "calls", &t.Calls, true)
	c.codeFloat64("process_reward", &t.ProcessReward, true)
	c.codeFloat64("reward", &t.Reward, true)
}

func (t *ToolCall) codeFields(c *coder) {
	codeTextValue(c, "tool", &t.Tool, false)
	codeTextValue(c, "arguments", &t.Arguments, true)
	codeIntegerValue(c, "duration", &t.Duration, true)
	codeTextValue(c, "error", &t.Error, true)
	c.codeBool("failed", &t.Failed, true)
}

func (m *Manifest) codeFields(c *coder) {
	codeTextValue(c, "run", &m.Run, false)
	codeIntegerValue(c, "version", &m.Version, false)
	codeIntegerValue(c, "base", &m.Base, false)
	structures(c, "shards", &m.Shards, false)
	codeOctets(c, "config", &m.Config, false)
	codeTextValue(c, "config_hash", &m.ConfigHash, false)
	codeTextValue(c, "tokenizer_hash", &m.TokenizerHash, false)
	codeTextValue(c, "dtype", &m.DType, false)
	c.codeTime("published_at", &m.PublishedAt)
	optional(c, "adapter", &m.Adapter)
}

func (a *Adapter) codeFields(c *coder) {
	codeIntegerValue(c, "rank", &a.Rank, false)
	c.codeFloat64("alpha", &a.Alpha, false)
	structures(c, "frozen", &a.Frozen, false)
}

func (s *Shard) codeFields(c *coder) {
	codeTextValue(c, "hash", &s.Hash, false)
	codeIntegerValue(c, "size", &s.Size, false)
	codeTextValue(c, "encoding", &s.Encoding, false)
	codeTextValue(c, "full_hash", &s.FullHash, false)
}

func (k *Control) codeFields(c *coder) {
	codeTextValue(c, "run", &k.Run, false)
	c.codeBool("paused", &k.Paused, false)
	c.codeBool("draining", &k.Draining, false)
	codeIntegerValue(c, "policy_version", &k.PolicyVersion, false)
	codeIntegerValue(c, "min_version", &k.MinVersion, false)
	codeIntegerValue(c, "eta", &k.Eta, false)
	codeIntegerValue(c, "depth", &k.Depth, false)
	c.codeTexts("cancelled", &k.Cancelled, true)
	c.codeTime("at", &k.At)
	structures(c, "limits", &k.Limits, true)
}

func (l *Limit) codeFields(c *coder) {
	codeTextValue(c, "task", &l.Task, true)
	codeTextValue(c, "key", &l.Key, false)
	codeIntegerValue(c, "value", &l.Value, false)
}

func (e *Event) codeFields(c *coder) {
	codeTextValue(c, "run", &e.Run, false)
	codeTextValue(c, "type", &e.Type, false)
	c.codeTime("at", &e.At)
	codeTextValue(c, "role", &e.Role, false)
	codeTextValue(c, "worker", &e.Worker, false)
	codeIntegerValue(c, "step", &e.Step, true)
	codeIntegerValue(c, "policy_version", &e.PolicyVersion, true)
	codeTextMap(c, "metrics", &e.Metrics, true)
	codeTextValue(c, "message", &e.Message, true)
}

func (r *GenerateRequest) codeFields(c *coder) {
	codeTextValue(c, "run", &r.Run, false)
	codeTextValue(c, "episode", &r.Episode, false)
	codeWordArray(c, "tokens", &r.Tokens)
	codeIntegerValue(c, "max_tokens", &r.MaxTokens, false)
	c.codeFloat32("temperature", &r.Temperature)
	c.codeUint64("seed", &r.Seed)
	codeWordArray(c, "stop_tokens", &r.StopTokens)
	c.codeBool("last", &r.Last, false)
	codeIntegerValue(c, "min_version", &r.MinVersion, true)
	codeTextValue(c, "context", &r.Context, true)
	c.codeBool("pinned", &r.Pinned, true)
}

func (g *GenerateChunk) codeFields(c *coder) {
	codeTextValue(c, "episode", &g.Episode, false)
	codeTextValue(c, "engine", &g.Engine, false)
	codeIntegerValue(c, "index", &g.Index, false)
	codeWordArray(c, "tokens", &g.Tokens)
	codeWordArray(c, "logprobs", &g.Logprobs)
	c.runLengths("versions", &g.Versions, len(g.Tokens))
	c.codeBool("done", &g.Done, false)
	codeTextValue(c, "stop", &g.Stop, true)
	codeTextValue(c, "error", &g.Error, true)
	c.codeBool("retry", &g.Retry, true)
	c.codeBool("busy", &g.Busy, true)
}

func (r *ToolRequest) codeFields(c *coder) {
	codeTextValue(c, "run", &r.Run, false)
	codeTextValue(c, "session", &r.Session, false)
	codeTextValue(c, "opening", &r.Opening, false)
	codeTextValue(c, "op", &r.Op, false)
	codeIntegerValue(c, "sequence", &r.Sequence, false)
	codeIntegerValue(c, "answered", &r.Answered, true)
	codeTextValue(c, "task", &r.Task, true)
	codeTextValue(c, "source", &r.Source, true)
	c.codeUint64("seed", &r.Seed)
	codeOctets(c, "world", &r.World, true)
	codeTextValue(c, "tool", &r.Tool, true)
	codeTextValue(c, "arguments", &r.Arguments, true)
	codeIntegerValue(c, "index", &r.Index, true)
	codeTextValue(c, "file", &r.File, true)
	codeIntegerValue(c, "limit", &r.Limit, true)
	optional(c, "command", &r.Command)
}

func (t *ToolCommand) codeFields(c *coder) {
	c.codeTexts("argv", &t.Argv, false)
	codeOctets(c, "stdin", &t.Stdin, true)
	structures(c, "files", &t.Files, true)
	c.codeTexts("env", &t.Env, true)
	codeIntegerValue(c, "timeout", &t.Timeout, true)
	codeIntegerValue(c, "output", &t.Output, true)
}

func (t *ToolFile) codeFields(c *coder) {
	codeTextValue(c, "name", &t.Name, false)
	codeOctets(c, "data", &t.Data, false)
}

func (r *ToolReply) codeFields(c *coder) {
	codeTextValue(c, "session", &r.Session, false)
	codeTextValue(c, "worker", &r.Worker, false)
	codeIntegerValue(c, "sequence", &r.Sequence, false)
	c.codeBool("done", &r.Done, false)
	codeTextValue(c, "outcome", &r.Outcome, true)
	codeTextValue(c, "error", &r.Error, true)
	codeIntegerValue(c, "retry_after", &r.RetryAfter, true)
	c.codeBool("workspace", &r.Workspace, true)
	optional(c, "observation", &r.Observation)
	optional(c, "result", &r.Result)
	codeOctets(c, "data", &r.Data, true)
}

func (e *Evaluation) codeFields(c *coder) {
	codeTextValue(c, "run", &e.Run, false)
	codeTextValue(c, "ticket", &e.Ticket, false)
	codeTextValue(c, "producer", &e.Producer, false)
	codeTextValue(c, "outcome", &e.Outcome, false)
	codeTextValue(c, "error", &e.Error, true)
	codeOctets(c, "trajectory", &e.Trajectory, true)
	structures(c, "turns", &e.Turns, true)
}

func (t *EvaluationTurn) codeFields(c *coder) {
	codeTextValue(c, "text", &t.Text, false)
	codeTextValue(c, "tool", &t.Tool, true)
	codeTextValue(c, "arguments", &t.Arguments, true)
	codeTextValue(c, "observation", &t.Observation, true)
	codeTextValue(c, "error", &t.Error, true)
}

func (o *ToolObservation) codeFields(c *coder) {
	codeTextValue(c, "text", &o.Text, false)
	c.codeFloat64("reward", &o.Reward, true)
	c.codeBool("rewarded", &o.Rewarded, true)
	c.codeBool("done", &o.Done, true)
	codeTextValue(c, "answer", &o.Answer, true)
	c.codeBool("answered", &o.Answered, true)
	codeIntegerValue(c, "outputs", &o.Outputs, true)
	codeIntegerValue(c, "errors", &o.Errors, true)
	codeTextValue(c, "notes", &o.Notes, true)
	codeTextMap(c, "metrics", &o.Metrics, true)
}

func (t *ToolResult) codeFields(c *coder) {
	codeIntegerValue(c, "exit", &t.Exit, false)
	codeOctets(c, "stdout", &t.Stdout, true)
	codeOctets(c, "stderr", &t.Stderr, true)
	c.codeBool("timed_out", &t.TimedOut, true)
	codeIntegerValue(c, "took", &t.Took, true)
}
