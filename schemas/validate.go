package schemas

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// logprobSlack is how far above 0 a log-probability may lie: float32 softmax sums are not exactly 1.
const logprobSlack = 1e-3

// faults gathers the faults of a message, each with the path of its field.
type faults struct {
	path  string
	list  string // the list of which the part is an item, "" where the part is no item
	index int
	errs  []error
}

func (f *faults) addFault(field, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%w: %s.%s: %s", ErrInvalid, f.writtenPath(), field, fmt.Sprintf(format, args...)))
}

// writtenPath is the path of the part, with its place in the list.
func (f *faults) writtenPath() string {
	if f.list == "" {
		return f.path
	}
	return fmt.Sprintf("%s.%s[%d]", f.path, f.list, f.index)
}

func (f *faults) joinFaults() error { return errors.Join(f.errs...) }

// checkWithin gathers the faults of a part; done adds them to the faults of the whole.
func (f *faults) checkWithin(path string) *faults {
	return &faults{path: f.writtenPath() + "." + path, errs: f.errs}
}

// enterItem is within for an item of a list. The path of the item is written only when it has a fault: most items have none.
func (f *faults) enterItem(list string, i int) faults {
	return faults{path: f.writtenPath(), list: list, index: i, errs: f.errs}
}

func (f *faults) leaveItem(part *faults) { f.errs = part.errs }

// checkName checks an identifier: not empty, UTF-8.
func (f *faults) checkName(field, v string) {
	switch {
	case v == "":
		f.addFault(field, "must not be empty")
	case !utf8.ValidString(v):
		f.addFault(field, "%q: must be UTF-8", v)
	}
}

func (f *faults) checkAtLeast(field string, v, least int64) {
	if v < least {
		f.addFault(field, "%d: must be at least %d", v, least)
	}
}

// checkJSON checks that a text that is there is JSON.
func (f *faults) checkJSON(field string, v []byte) {
	if len(v) > 0 && !json.Valid(v) {
		f.addFault(field, "%.40q: must be JSON", v)
	}
}

func (f *faults) checkTemperature(v float32) {
	if !(v >= 0) || math.IsInf(float64(v), 0) {
		f.addFault("temperature", "%v: must be finite and not negative (0 is greedy)", v)
	}
}

func (f *faults) checkFinite(field string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		f.addFault(field, "%v: must be finite", v)
	}
}

// checkNotNewer checks the oldest usable version against the newest.
func (f *faults) checkNotNewer(minVersion, policyVersion int64) {
	f.checkAtLeast("min_version", minVersion, 0)
	if minVersion > policyVersion && policyVersion >= 0 {
		f.addFault("min_version", "%d: newer than policy_version %d", minVersion, policyVersion)
	}
}

// checkSampleIndex checks the place of a sample within its group.
func (f *faults) checkSampleIndex(attempt, sample, size int) {
	f.checkAtLeast("attempt", int64(attempt), 0)
	f.checkAtLeast("group_size", int64(size), 1)
	if sample < 0 || sample >= max(size, 1) {
		f.addFault("sample", "%d: must be in [0, %d)", sample, size)
	}
}

// checkSHA256 checks a hex SHA-256.
func (f *faults) checkSHA256(field, v string) {
	ok := len(v) == 64
	for i := 0; ok && i < len(v); i++ {
		ok = v[i] >= '0' && v[i] <= '9' || v[i] >= 'a' && v[i] <= 'f'
	}
	if !ok {
		f.addFault(field, "%.80q: must be 64 lower-case hex digits", v)
	}
}

// Validate names every broken invariant of the ticket; nil if there is none. Errors wrap [ErrInvalid].
func (t *Ticket) Validate() error {
	f := &faults{path: "ticket"}
	f.checkName("run", t.Run)
	f.checkName("id", t.ID)
	f.checkName("group", t.Group)
	f.checkName("task", t.Task)
	f.checkSampleIndex(t.Attempt, t.Sample, t.GroupSize)
	f.checkAtLeast("policy_version", t.PolicyVersion, 0)
	f.checkNotNewer(t.MinVersion, t.PolicyVersion)

	p := f.checkWithin("prompt")
	p.checkName("id", t.Prompt.ID)
	p.checkJSON("world", t.Prompt.World)
	p.checkJSON("hidden", t.Prompt.Hidden)
	f.leaveItem(p)
	s := f.checkWithin("sampling")
	s.checkTemperature(t.Sampling.Temperature)
	s.checkAtLeast("max_tokens", int64(t.Sampling.MaxTokens), 0)
	f.leaveItem(s)
	l := f.checkWithin("limits")
	l.checkAtLeast("max_turns", int64(t.Limits.MaxTurns), 0)
	l.checkAtLeast("max_tokens", int64(t.Limits.MaxTokens), 1)
	l.checkAtLeast("timeout", int64(t.Limits.Timeout), 0)
	l.checkAtLeast("max_total_tokens", int64(t.Limits.MaxTotalTokens), 0)
	l.checkAtLeast("max_segments", int64(t.Limits.MaxSegments), 0)
	f.leaveItem(l)
	if t.Fork != nil {
		k := f.checkWithin("fork")
		t.Fork.validateFork(k)
		f.leaveItem(k)
	}
	return f.joinFaults()
}

func (k *Fork) validateFork(f *faults) {
	f.checkName("parent", k.Parent)
	if len(k.Turns) == 0 {
		f.addFault("turns", "must not be empty")
	}
	for i := range k.Segments {
		part := f.enterItem("segments", i)
		k.Segments[i].validateSegment(&part)
		f.leaveItem(&part)
	}
	for i := range k.Turns {
		part := f.enterItem("turns", i)
		validateTurn(&part, k.Segments, &k.Turns[i])
		f.leaveItem(&part)
	}
}

// Validate names every broken invariant of the trajectory; nil if there is none. Errors wrap [ErrInvalid].
func (t *Trajectory) Validate() error {
	f := &faults{path: "trajectory"}
	f.checkName("run", t.Run)
	f.checkName("id", t.ID)
	f.checkName("group", t.Group)
	f.checkName("task", t.Task)
	f.checkName("prompt_id", t.PromptID)
	f.checkName("producer", t.Producer)
	f.checkSampleIndex(t.Attempt, t.Sample, t.GroupSize)
	for i := range t.Segments {
		part := f.enterItem("segments", i)
		t.Segments[i].validateSegment(&part)
		f.leaveItem(&part)
	}
	for i := range t.Turns {
		part := f.enterItem("turns", i)
		validateTurn(&part, t.Segments, &t.Turns[i])
		f.leaveItem(&part)
	}
	f.checkFinite("reward", t.Reward)
	for name, v := range t.Rewards {
		f.checkFinite("rewards["+name+"]", v)
	}
	for name, v := range t.AgentRewards {
		f.checkFinite("agent_rewards["+name+"]", v)
	}
	if !t.Stop.Known() {
		f.addFault("stop", "%.40q: not a stop reason", string(t.Stop))
	}
	if t.Forked != nil {
		k := f.checkWithin("forked")
		k.checkName("parent", t.Forked.Parent)
		if n := t.Forked.Turns; n < 0 || n > len(t.Turns) {
			k.addFault("turns", "%d: must be in [0, %d], the turns of the trajectory", n, len(t.Turns))
		}
		f.leaveItem(k)
	}
	if r := t.Recorded; r != nil {
		k := f.checkWithin("recorded")
		k.checkName("run", r.Run)
		k.checkName("id", r.ID)
		if r.Oldest < 0 || r.Newest < r.Oldest {
			k.addFault("newest", "%d: must not be below oldest, %d, nor oldest below 0", r.Newest, r.Oldest)
		}
		f.leaveItem(k)
	}
	t.validateValues(f)
	return f.joinFaults()
}

func (t *Trajectory) validateValues(f *faults) {
	if len(t.Values) != 0 && len(t.Values) != len(t.Turns) {
		f.addFault("values", "%d entries for %d turns", len(t.Values), len(t.Turns))
	}
	for i := range t.Values {
		part := f.enterItem("values", i)
		part.checkFinite("mean", t.Values[i].Mean)
		part.checkAtLeast("samples", int64(t.Values[i].Samples), 0)
		part.checkAtLeast("tokens", int64(t.Values[i].Tokens), 0)
		f.leaveItem(&part)
	}
}

func validateTurn(f *faults, segments []Segment, turn *Turn) {
	f.checkFinite("process_reward", turn.ProcessReward)
	f.checkFinite("reward", turn.Reward)
	for i := range turn.Calls {
		part := f.enterItem("calls", i)
		turn.Calls[i].validateCall(&part)
		f.leaveItem(&part)
	}
	if turn.Segment < 0 || turn.Segment >= len(segments) {
		f.addFault("segment", "%d: there are %d segments", turn.Segment, len(segments))
		return
	}
	s := &segments[turn.Segment]
	if turn.Start < 0 || turn.Start >= turn.End || turn.End > len(s.Tokens) {
		f.addFault("end", "[%d, %d): not a span of the segment's %d tokens", turn.Start, turn.End, len(s.Tokens))
		return
	}
	if turn.End > len(s.ActionMask) {
		return
	}
	mask := s.ActionMask[turn.Start:turn.End]
	if bytes.Count(mask, []byte{1}) != len(mask) {
		i := slices.IndexFunc(mask, func(m byte) bool { return m != 1 })
		f.addFault("end", "[%d, %d): token %d was not sampled", turn.Start, turn.End, turn.Start+i)
	}
}

func (t *ToolCall) validateCall(f *faults) {
	f.checkName("tool", t.Tool)
	f.checkAtLeast("duration", int64(t.Duration), 0)
	for _, text := range []struct{ name, v string }{{"tool", t.Tool}, {"arguments", t.Arguments}, {"error", t.Error}} {
		if len(text.v) > MaxCallText {
			f.addFault(text.name, "%d bytes: at most %d", len(text.v), MaxCallText)
		}
	}
}

// Known reports whether r is a stop reason.
func (r StopReason) Known() bool {
	switch r {
	case StopAnswer, StopTurns, StopTokens, StopTimeout, StopFormat, StopError, StopCancelled, StopSegments, StopTool:
		return true
	}
	return false
}

// Validate names every broken invariant of the marker; nil if there is none. Errors wrap [ErrInvalid].
func (g *GroupClosed) Validate() error {
	f := &faults{path: "group_closed"}
	f.checkName("run", g.Run)
	f.checkName("group", g.Group)
	f.checkAtLeast("delivered", int64(g.Delivered), 0)
	seen := make(map[int]bool, len(g.Cancelled))
	for i, sample := range g.Cancelled {
		f.checkAtLeast(fmt.Sprintf("cancelled[%d]", i), int64(sample), 0)
		if seen[sample] {
			f.addFault(fmt.Sprintf("cancelled[%d]", i), "%d: named twice", sample)
		}
		seen[sample] = true
	}
	return f.joinFaults()
}

// Validate names every broken invariant of the manifest; nil if there is none. Errors wrap [ErrInvalid].
func (m *Manifest) Validate() error {
	f := &faults{path: "manifest"}
	f.checkName("run", m.Run)
	f.checkAtLeast("version", m.Version, 0)
	if m.Base != NoBase && (m.Base < 0 || m.Base >= m.Version) {
		f.addFault("base", "%d: must be %d or an older version than %d", m.Base, NoBase, m.Version)
	}
	if len(m.Shards) == 0 {
		f.addFault("shards", "must not be empty")
	}
	for i := range m.Shards {
		part := f.enterItem("shards", i)
		m.Shards[i].validateShard(&part, m.Base)
		f.leaveItem(&part)
	}
	f.checkSHA256("config_hash", m.ConfigHash)
	f.checkSHA256("tokenizer_hash", m.TokenizerHash)
	if m.DType != "float32" && m.DType != "bfloat16" {
		f.addFault("dtype", `%.40q: must be "float32" or "bfloat16"`, m.DType)
	}
	if m.Adapter != nil {
		part := f.checkWithin("adapter")
		m.Adapter.validateAdapter(part)
		f.leaveItem(part)
	}
	return f.joinFaults()
}

func (a *Adapter) validateAdapter(f *faults) {
	f.checkAtLeast("rank", int64(a.Rank), 1)
	if !(a.Alpha > 0) || math.IsInf(a.Alpha, 1) {
		f.addFault("alpha", "%g: must be positive", a.Alpha)
	}
	if len(a.Frozen) == 0 {
		f.addFault("frozen", "must not be empty")
	}
	for i := range a.Frozen {
		part := f.enterItem("frozen", i)
		a.Frozen[i].validateShard(&part, NoBase)
		f.leaveItem(&part)
	}
}

func (s *Shard) validateShard(f *faults, base int64) {
	f.checkSHA256("hash", s.Hash)
	f.checkSHA256("full_hash", s.FullHash)
	f.checkAtLeast("size", s.Size, 1)
	switch s.Encoding {
	case EncodingSafetensors:
		if s.FullHash != s.Hash {
			f.addFault("full_hash", "must equal hash of a whole shard")
		}
	case EncodingDelta:
		if base == NoBase {
			f.addFault("encoding", "a delta without a base")
		}
	default:
		f.addFault("encoding", `%.40q: must be %q or %q`, s.Encoding, EncodingSafetensors, EncodingDelta)
	}
}

// Validate names every broken invariant of the control; nil if there is none. Errors wrap [ErrInvalid].
func (k *Control) Validate() error {
	f := &faults{path: "control"}
	f.checkName("run", k.Run)
	f.checkAtLeast("policy_version", k.PolicyVersion, 0)
	f.checkNotNewer(k.MinVersion, k.PolicyVersion)
	f.checkAtLeast("eta", int64(k.Eta), 0)
	if k.Depth < 0 || k.Depth > max(k.Eta, 0) {
		f.addFault("depth", "%d: must be in [0, eta = %d]", k.Depth, k.Eta)
	}
	for i, group := range k.Cancelled {
		f.checkName(fmt.Sprintf("cancelled[%d]", i), group)
	}
	for i := range k.Limits {
		l, part := &k.Limits[i], f.enterItem("limits", i)
		least := int64(0)
		if l.Key == LimitMaxTokens {
			least = 1
		}
		part.checkAtLeast("value", l.Value, least)
		if !new(Limits).Set(l.Key, l.Value) {
			part.addFault("key", "%.40q: must be max_turns, max_tokens, timeout, max_total_tokens or max_segments", l.Key)
		}
		if !utf8.ValidString(l.Task) {
			part.addFault("task", "%q: must be UTF-8", l.Task)
		}
		if i > 0 && k.Limits[i-1].Compare(*l) >= 0 {
			part.addFault("key", "%.40q: must be sorted by task and key, each pair once", l.Name())
		}
		f.leaveItem(&part)
	}
	return f.joinFaults()
}

// Validate names every broken invariant of the event; nil if there is none. A metric may be any number: a loss that became NaN must be
// reported. Errors wrap [ErrInvalid].
func (e *Event) Validate() error {
	f := &faults{path: "event"}
	f.checkName("run", e.Run)
	f.checkName("type", string(e.Type))
	f.checkName("role", e.Role)
	f.checkAtLeast("step", e.Step, 0)
	f.checkAtLeast("policy_version", e.PolicyVersion, 0)
	return f.joinFaults()
}

// Validate names every broken invariant of the request; nil if there is none. Errors wrap [ErrInvalid].
func (r *GenerateRequest) Validate() error {
	f := &faults{path: "generate_request"}
	f.checkName("run", r.Run)
	f.checkName("episode", r.Episode)
	if len(r.Tokens) == 0 {
		f.addFault("tokens", "must not be empty")
	}
	if i := slices.IndexFunc(r.Tokens, func(v int32) bool { return v < 0 }); i >= 0 {
		f.addFault("tokens", "[%d] = %d: must not be negative", i, r.Tokens[i])
	}
	f.checkAtLeast("max_tokens", int64(r.MaxTokens), 1)
	f.checkTemperature(r.Temperature)
	f.checkAtLeast("min_version", r.MinVersion, 0)
	return f.joinFaults()
}

// Validate names every broken invariant of the chunk; nil if there is none. Errors wrap [ErrInvalid].
func (g *GenerateChunk) Validate() error {
	f := &faults{path: "generate_chunk"}
	f.checkName("episode", g.Episode)
	f.checkName("engine", g.Engine)
	f.checkAtLeast("index", int64(g.Index), 0)
	n := len(g.Tokens)
	if len(g.Logprobs) != n {
		f.addFault("logprobs", "%d entries for %d tokens", len(g.Logprobs), n)
	}
	if len(g.Versions) != n {
		f.addFault("versions", "%d entries for %d tokens", len(g.Versions), n)
	}
	if i := slices.IndexFunc(g.Tokens, func(v int32) bool { return v < 0 }); i >= 0 {
		f.addFault("tokens", "[%d] = %d: must not be negative", i, g.Tokens[i])
	}
	for i, lp := range g.Logprobs {
		if !(lp <= logprobSlack && lp >= -math.MaxFloat32) {
			f.addFault("logprobs", "[%d] = %v: must be finite and at most 0", i, lp)
			break
		}
	}
	if i := slices.IndexFunc(g.Versions, func(v int32) bool { return v < 0 }); i >= 0 {
		f.addFault("versions", "[%d] = %d: must not be negative", i, g.Versions[i])
	}
	switch {
	case !g.Done && g.Stop != "":
		f.addFault("stop", "%.40q before the call is done", string(g.Stop))
	case g.Done && g.Stop != GenerateStopToken && g.Stop != GenerateLength && g.Stop != GenerateError:
		f.addFault("stop", "%.40q: not a reason to stop", string(g.Stop))
	}
	if g.Error != "" && g.Stop != GenerateError {
		f.addFault("error", "set, but stop is %.40q", string(g.Stop))
	}
	if g.Busy && !g.Retry {
		f.addFault("busy", "set, but retry is not")
	}
	return f.joinFaults()
}
