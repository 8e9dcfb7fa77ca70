package schemas

// The fields of every struct, in wire order. The last argument of a call, where there is one, says whether a
// zero value is left out; every other key must be there.

func (t *Ticket) fields(c *coder) {
	text(c, "run", &t.Run, false)
	text(c, "id", &t.ID, false)
	text(c, "group", &t.Group, false)
	c.uint64("cursor", &t.Cursor)
	integer(c, "attempt", &t.Attempt, false)
	integer(c, "sample", &t.Sample, false)
	integer(c, "group_size", &t.GroupSize, false)
	text(c, "task", &t.Task, false)
	c.structure("prompt", &t.Prompt)
	c.uint64("seed", &t.Seed)
	c.structure("sampling", &t.Sampling)
	c.structure("limits", &t.Limits)
	integer(c, "policy_version", &t.PolicyVersion, false)
	integer(c, "min_version", &t.MinVersion, true)
	c.time("issued_at", &t.IssuedAt)
}

func (p *Prompt) fields(c *coder) {
	text(c, "id", &p.ID, false)
	text(c, "text", &p.Text, false)
	c.texts("answers", &p.Answers, false)
	text(c, "source", &p.Source, false)
	mapped(c, "meta", &p.Meta, true)
}

func (s *Sampling) fields(c *coder) {
	c.float32("temperature", &s.Temperature)
	integer(c, "max_tokens", &s.MaxTokens, false)
}

func (l *Limits) fields(c *coder) {
	integer(c, "max_turns", &l.MaxTurns, false)
	integer(c, "max_tokens", &l.MaxTokens, false)
	integer(c, "timeout", &l.Timeout, false)
}

func (g *GroupClosed) fields(c *coder) {
	text(c, "run", &g.Run, false)
	text(c, "group", &g.Group, false)
	c.ints("cancelled", &g.Cancelled)
	integer(c, "delivered", &g.Delivered, false)
	text(c, "why", &g.Why, false)
	text(c, "producer", &g.Producer, false)
	c.time("closed_at", &g.ClosedAt)
}

func (t *Trajectory) fields(c *coder) {
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
	structures(c, "segments", &t.Segments)
	structures(c, "turns", &t.Turns)
	c.float64("reward", &t.Reward, false)
	mapped(c, "rewards", &t.Rewards, false)
	text(c, "answer", &t.Answer, false)
	text(c, "stop", &t.Stop, false)
	text(c, "error", &t.Error, true)
	c.time("started_at", &t.StartedAt)
	c.time("finished_at", &t.FinishedAt)
}

func (s *Segment) fields(c *coder) {
	words(c, "tokens", &s.Tokens)
	octets(c, "action_mask", &s.ActionMask)
	words(c, "logprobs", &s.Logprobs)
	c.runLengths("versions", &s.Versions, len(s.Tokens))
	c.float32("temperature", &s.Temperature)
}

func (t *Turn) fields(c *coder) {
	integer(c, "segment", &t.Segment, false)
	integer(c, "start", &t.Start, false)
	integer(c, "end", &t.End, false)
	text(c, "tool", &t.Tool, true)
	text(c, "arguments", &t.Arguments, true)
	integer(c, "duration", &t.Duration, true)
	text(c, "error", &t.Error, true)
	c.float64("process_reward", &t.ProcessReward, true)
}

func (m *Manifest) fields(c *coder) {
	text(c, "run", &m.Run, false)
	integer(c, "version", &m.Version, false)
	integer(c, "base", &m.Base, false)
	structures(c, "shards", &m.Shards)
	octets(c, "config", &m.Config)
	text(c, "config_hash", &m.ConfigHash, false)
	text(c, "tokenizer_hash", &m.TokenizerHash, false)
	text(c, "dtype", &m.DType, false)
	c.time("published_at", &m.PublishedAt)
}

func (s *Shard) fields(c *coder) {
	text(c, "hash", &s.Hash, false)
	integer(c, "size", &s.Size, false)
	text(c, "encoding", &s.Encoding, false)
	text(c, "full_hash", &s.FullHash, false)
}

func (k *Control) fields(c *coder) {
	text(c, "run", &k.Run, false)
	c.boolean("paused", &k.Paused, false)
	c.boolean("draining", &k.Draining, false)
	integer(c, "policy_version", &k.PolicyVersion, false)
	integer(c, "min_version", &k.MinVersion, false)
	integer(c, "eta", &k.Eta, false)
	integer(c, "depth", &k.Depth, false)
	c.texts("cancelled", &k.Cancelled, true)
	c.time("at", &k.At)
}

func (e *Event) fields(c *coder) {
	text(c, "run", &e.Run, false)
	text(c, "type", &e.Type, false)
	c.time("at", &e.At)
	text(c, "role", &e.Role, false)
	text(c, "worker", &e.Worker, false)
	integer(c, "step", &e.Step, true)
	integer(c, "policy_version", &e.PolicyVersion, true)
	mapped(c, "metrics", &e.Metrics, true)
	text(c, "message", &e.Message, true)
}

func (r *GenerateRequest) fields(c *coder) {
	text(c, "run", &r.Run, false)
	text(c, "episode", &r.Episode, false)
	words(c, "tokens", &r.Tokens)
	integer(c, "max_tokens", &r.MaxTokens, false)
	c.float32("temperature", &r.Temperature)
	c.uint64("seed", &r.Seed)
	words(c, "stop_tokens", &r.StopTokens)
	c.boolean("last", &r.Last, false)
	integer(c, "min_version", &r.MinVersion, true)
}

func (g *GenerateChunk) fields(c *coder) {
	text(c, "episode", &g.Episode, false)
	text(c, "engine", &g.Engine, false)
	integer(c, "index", &g.Index, false)
	words(c, "tokens", &g.Tokens)
	words(c, "logprobs", &g.Logprobs)
	c.runLengths("versions", &g.Versions, len(g.Tokens))
	c.boolean("done", &g.Done, false)
	text(c, "stop", &g.Stop, true)
	text(c, "error", &g.Error, true)
	c.boolean("retry", &g.Retry, true)
	c.boolean("busy", &g.Busy, true)
}
