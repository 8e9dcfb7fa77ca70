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

func (f *faults) add(field, format string, args ...any) {
	f.errs = append(f.errs, fmt.Errorf("%w: %s.%s: %s", ErrInvalid, f.where(), field, fmt.Sprintf(format, args...)))
}

// where is the path of the part, with its place in the list.
func (f *faults) where() string {
	if f.list == "" {
		return f.path
	}
	return fmt.Sprintf("%s.%s[%d]", f.path, f.list, f.index)
}

func (f *faults) err() error { return errors.Join(f.errs...) }

// within gathers the faults of a part; done adds them to those of the whole.
func (f *faults) within(path string) *faults {
	return &faults{path: f.where() + "." + path, errs: f.errs}
}

// item is within for an item of a list. The path of the item is written only when it has a fault: most items have none.
func (f *faults) item(list string, i int) faults {
	return faults{path: f.where(), list: list, index: i, errs: f.errs}
}

func (f *faults) done(part *faults) { f.errs = part.errs }

// name checks an identifier: not empty, UTF-8.
func (f *faults) name(field, v string) {
	switch {
	case v == "":
		f.add(field, "must not be empty")
	case !utf8.ValidString(v):
		f.add(field, "%q: must be UTF-8", v)
	}
}

func (f *faults) atLeast(field string, v, least int64) {
	if v < least {
		f.add(field, "%d: must be at least %d", v, least)
	}
}

// json checks that a text that is there is JSON.
func (f *faults) json(field string, v []byte) {
	if len(v) > 0 && !json.Valid(v) {
		f.add(field, "%.40q: must be JSON", v)
	}
}

func (f *faults) temperature(v float32) {
	if !(v >= 0) || math.IsInf(float64(v), 0) {
		f.add("temperature", "%v: must be finite and not negative (0 is greedy)", v)
	}
}

func (f *faults) finite(field string, v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		f.add(field, "%v: must be finite", v)
	}
}

// notNewer checks the oldest usable version against the newest.
func (f *faults) notNewer(minVersion, policyVersion int64) {
	f.atLeast("min_version", minVersion, 0)
	if minVersion > policyVersion && policyVersion >= 0 {
		f.add("min_version", "%d: newer than policy_version %d", minVersion, policyVersion)
	}
}

// sampleOf checks the place of a sample within its group.
func (f *faults) sampleOf(attempt, sample, size int) {
	f.atLeast("attempt", int64(attempt), 0)
	f.atLeast("group_size", int64(size), 1)
	if sample < 0 || sample >= max(size, 1) {
		f.add("sample", "%d: must be in [0, %d)", sample, size)
	}
}

// sha256 checks a hex SHA-256.
func (f *faults) sha256(field, v string) {
	ok := len(v) == 64
	for i := 0; ok && i < len(v); i++ {
		ok = v[i] >= '0' && v[i] <= '9' || v[i] >= 'a' && v[i] <= 'f'
	}
	if !ok {
		f.add(field, "%.80q: must be 64 lower-case hex digits", v)
	}
}

// Validate names every broken invariant of the ticket; nil if there is none. Errors wrap [ErrInvalid].
func (t *Ticket) Validate() error {
	f := &faults{path: "ticket"}
	f.name("run", t.Run)
	f.name("id", t.ID)
	f.name("group", t.Group)
	f.name("task", t.Task)
	f.sampleOf(t.Attempt, t.Sample, t.GroupSize)
	f.atLeast("policy_version", t.PolicyVersion, 0)
	f.notNewer(t.MinVersion, t.PolicyVersion)

	p := f.within("prompt")
	p.name("id", t.Prompt.ID)
	p.json("world", t.Prompt.World)
	p.json("hidden", t.Prompt.Hidden)
	f.done(p)
	s := f.within("sampling")
	s.temperature(t.Sampling.Temperature)
	s.atLeast("max_tokens", int64(t.Sampling.MaxTokens), 0)
	f.done(s)
	l := f.within("limits")
	l.atLeast("max_turns", int64(t.Limits.MaxTurns), 0)
	l.atLeast("max_tokens", int64(t.Limits.MaxTokens), 1)
	l.atLeast("timeout", int64(t.Limits.Timeout), 0)
	l.atLeast("max_total_tokens", int64(t.Limits.MaxTotalTokens), 0)
	l.atLeast("max_segments", int64(t.Limits.MaxSegments), 0)
	f.done(l)
	if t.Fork != nil {
		k := f.within("fork")
		t.Fork.validate(k)
		f.done(k)
	}
	return f.err()
}

func (k *Fork) validate(f *faults) {
	f.name("parent", k.Parent)
	if len(k.Turns) == 0 {
		f.add("turns", "must not be empty")
	}
	for i := range k.Segments {
		part := f.item("segments", i)
		k.Segments[i].validate(&part)
		f.done(&part)
	}
	for i := range k.Turns {
		part := f.item("turns", i)
		validateTurn(&part, k.Segments, &k.Turns[i])
		f.done(&part)
	}
}

// Validate names every broken invariant of the trajectory; nil if there is none. Errors wrap [ErrInvalid].
func (t *Trajectory) Validate() error {
	f := &faults{path: "trajectory"}
	f.name("run", t.Run)
	f.name("id", t.ID)
	f.name("group", t.Group)
	f.name("task", t.Task)
	f.name("prompt_id", t.PromptID)
	f.name("producer", t.Producer)
	f.sampleOf(t.Attempt, t.Sample, t.GroupSize)
	for i := range t.Segments {
		part := f.item("segments", i)
		t.Segments[i].validate(&part)
		f.done(&part)
	}
	for i := range t.Turns {
		part := f.item("turns", i)
		validateTurn(&part, t.Segments, &t.Turns[i])
		f.done(&part)
	}
	f.finite("reward", t.Reward)
	for name, v := range t.Rewards {
		f.finite("rewards["+name+"]", v)
	}
	for name, v := range t.AgentRewards {
		f.finite("agent_rewards["+name+"]", v)
	}
	if !t.Stop.Known() {
		f.add("stop", "%.40q: not a stop reason", string(t.Stop))
	}
	if t.Forked != nil {
		k := f.within("forked")
		k.name("parent", t.Forked.Parent)
		if n := t.Forked.Turns; n < 0 || n > len(t.Turns) {
			k.add("turns", "%d: must be in [0, %d], the turns of the trajectory", n, len(t.Turns))
		}
		f.done(k)
	}
	return f.err()
}

// validate names the first token of each kind of fault: all faults of a broken array would fill the log.
func (s *Segment) validate(f *faults) {
	n := len(s.Tokens)
	if n == 0 {
		f.add("tokens", "must not be empty")
	}
	for _, array := range []struct {
		name string
		got  int
	}{{"action_mask", len(s.ActionMask)}, {"logprobs", len(s.Logprobs)}, {"versions", len(s.Versions)}} {
		if array.got != n {
			f.add(array.name, "%d entries for %d tokens", array.got, n)
		}
	}
	f.temperature(s.Temperature)
	if negative(s.Tokens) {
		i := slices.IndexFunc(s.Tokens, func(v int32) bool { return v < 0 })
		f.add("tokens", "[%d] = %d: must not be negative", i, s.Tokens[i])
	}
	if len(s.ActionMask) != n || len(s.Logprobs) != n || len(s.Versions) != n {
		return
	}
	if n > 0 && s.ActionMask[0] == 1 {
		f.add("action_mask", "[0] = 1: the first token is never an action")
	}
	if s.consistent() {
		return
	}
	mask, logprob, version := -1, -1, -1
	for i, m := range s.ActionMask {
		lp, v := s.Logprobs[i], s.Versions[i]
		if m == 1 {
			// Written so that NaN fails too.
			if logprob < 0 && !(lp <= logprobSlack && lp >= -math.MaxFloat32) {
				logprob = i
			}
			if version < 0 && v < 0 {
				version = i
			}
			continue
		}
		if mask < 0 && m != 0 {
			mask = i
		}
		if logprob < 0 && lp != 0 {
			logprob = i
		}
		if version < 0 && v != NoVersion {
			version = i
		}
	}
	if mask >= 0 {
		f.add("action_mask", "[%d] = %d: must be 0 or 1", mask, s.ActionMask[mask])
	}
	if logprob >= 0 {
		f.add("logprobs", "[%d] = %v with action_mask %d: must be finite and at most 0, and 0 where no token was sampled",
			logprob, s.Logprobs[logprob], s.ActionMask[logprob])
	}
	if version >= 0 {
		f.add("versions", "[%d] = %d with action_mask %d: must be at least 0 where a token was sampled, %d elsewhere",
			version, s.Versions[version], s.ActionMask[version], NoVersion)
	}
}

func validateTurn(f *faults, segments []Segment, turn *Turn) {
	f.finite("process_reward", turn.ProcessReward)
	f.finite("reward", turn.Reward)
	for i := range turn.Calls {
		part := f.item("calls", i)
		turn.Calls[i].validate(&part)
		f.done(&part)
	}
	if turn.Segment < 0 || turn.Segment >= len(segments) {
		f.add("segment", "%d: there are %d segments", turn.Segment, len(segments))
		return
	}
	s := &segments[turn.Segment]
	if turn.Start < 0 || turn.Start >= turn.End || turn.End > len(s.Tokens) {
		f.add("end", "[%d, %d): not a span of the segment's %d tokens", turn.Start, turn.End, len(s.Tokens))
		return
	}
	if turn.End > len(s.ActionMask) {
		return
	}
	mask := s.ActionMask[turn.Start:turn.End]
	if bytes.Count(mask, []byte{1}) != len(mask) {
		i := slices.IndexFunc(mask, func(m byte) bool { return m != 1 })
		f.add("end", "[%d, %d): token %d was not sampled", turn.Start, turn.End, turn.Start+i)
	}
}

func (t *ToolCall) validate(f *faults) {
	f.name("tool", t.Tool)
	f.atLeast("duration", int64(t.Duration), 0)
	for _, text := range []struct{ name, v string }{{"tool", t.Tool}, {"arguments", t.Arguments}, {"error", t.Error}} {
		if len(text.v) > MaxCallText {
			f.add(text.name, "%d bytes: at most %d", len(text.v), MaxCallText)
		}
	}
}

// Known is whether r is one of the stop reasons.
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
	f.name("run", g.Run)
	f.name("group", g.Group)
	f.atLeast("delivered", int64(g.Delivered), 0)
	seen := make(map[int]bool, len(g.Cancelled))
	for i, sample := range g.Cancelled {
		f.atLeast(fmt.Sprintf("cancelled[%d]", i), int64(sample), 0)
		if seen[sample] {
			f.add(fmt.Sprintf("cancelled[%d]", i), "%d: named twice", sample)
		}
		seen[sample] = true
	}
	return f.err()
}

// Validate names every broken invariant of the manifest; nil if there is none. Errors wrap [ErrInvalid].
func (m *Manifest) Validate() error {
	f := &faults{path: "manifest"}
	f.name("run", m.Run)
	f.atLeast("version", m.Version, 0)
	if m.Base != NoBase && (m.Base < 0 || m.Base >= m.Version) {
		f.add("base", "%d: must be %d or an older version than %d", m.Base, NoBase, m.Version)
	}
	if len(m.Shards) == 0 {
		f.add("shards", "must not be empty")
	}
	for i := range m.Shards {
		part := f.item("shards", i)
		m.Shards[i].validate(&part, m.Base)
		f.done(&part)
	}
	f.sha256("config_hash", m.ConfigHash)
	f.sha256("tokenizer_hash", m.TokenizerHash)
	if m.DType != "float32" && m.DType != "bfloat16" {
		f.add("dtype", `%.40q: must be "float32" or "bfloat16"`, m.DType)
	}
	if m.Adapter != nil {
		part := f.within("adapter")
		m.Adapter.validate(part)
		f.done(part)
	}
	return f.err()
}

func (a *Adapter) validate(f *faults) {
	f.atLeast("rank", int64(a.Rank), 1)
	if !(a.Alpha > 0) || math.IsInf(a.Alpha, 1) {
		f.add("alpha", "%g: must be positive", a.Alpha)
	}
	if len(a.Frozen) == 0 {
		f.add("frozen", "must not be empty")
	}
	for i := range a.Frozen {
		part := f.item("frozen", i)
		a.Frozen[i].validate(&part, NoBase)
		f.done(&part)
	}
}

func (s *Shard) validate(f *faults, base int64) {
	f.sha256("hash", s.Hash)
	f.sha256("full_hash", s.FullHash)
	f.atLeast("size", s.Size, 1)
	switch s.Encoding {
	case EncodingSafetensors:
		if s.FullHash != s.Hash {
			f.add("full_hash", "must equal hash of a whole shard")
		}
	case EncodingDelta:
		if base == NoBase {
			f.add("encoding", "a delta without a base")
		}
	default:
		f.add("encoding", `%.40q: must be %q or %q`, s.Encoding, EncodingSafetensors, EncodingDelta)
	}
}

// Validate names every broken invariant of the control; nil if there is none. Errors wrap [ErrInvalid].
func (k *Control) Validate() error {
	f := &faults{path: "control"}
	f.name("run", k.Run)
	f.atLeast("policy_version", k.PolicyVersion, 0)
	f.notNewer(k.MinVersion, k.PolicyVersion)
	f.atLeast("eta", int64(k.Eta), 0)
	if k.Depth < 0 || k.Depth > max(k.Eta, 0) {
		f.add("depth", "%d: must be in [0, eta = %d]", k.Depth, k.Eta)
	}
	for i, group := range k.Cancelled {
		f.name(fmt.Sprintf("cancelled[%d]", i), group)
	}
	for i := range k.Limits {
		l, part := &k.Limits[i], f.item("limits", i)
		least := int64(0)
		if l.Key == LimitMaxTokens {
			least = 1
		}
		part.atLeast("value", l.Value, least)
		if !new(Limits).Set(l.Key, l.Value) {
			part.add("key", "%.40q: must be max_turns, max_tokens, timeout, max_total_tokens or max_segments", l.Key)
		}
		if !utf8.ValidString(l.Task) {
			part.add("task", "%q: must be UTF-8", l.Task)
		}
		if i > 0 && k.Limits[i-1].Compare(*l) >= 0 {
			part.add("key", "%.40q: must be sorted by task and key, each pair once", l.Name())
		}
		f.done(&part)
	}
	return f.err()
}

// Validate names every broken invariant of the event; nil if there is none. A metric may be any number: a loss that became NaN must be
// reported. Errors wrap [ErrInvalid].
func (e *Event) Validate() error {
	f := &faults{path: "event"}
	f.name("run", e.Run)
	f.name("type", string(e.Type))
	f.name("role", e.Role)
	f.atLeast("step", e.Step, 0)
	f.atLeast("policy_version", e.PolicyVersion, 0)
	return f.err()
}

// Validate names every broken invariant of the request; nil if there is none. Errors wrap [ErrInvalid].
func (r *GenerateRequest) Validate() error {
	f := &faults{path: "generate_request"}
	f.name("run", r.Run)
	f.name("episode", r.Episode)
	if len(r.Tokens) == 0 {
		f.add("tokens", "must not be empty")
	}
	if i := slices.IndexFunc(r.Tokens, func(v int32) bool { return v < 0 }); i >= 0 {
		f.add("tokens", "[%d] = %d: must not be negative", i, r.Tokens[i])
	}
	f.atLeast("max_tokens", int64(r.MaxTokens), 1)
	f.temperature(r.Temperature)
	f.atLeast("min_version", r.MinVersion, 0)
	return f.err()
}

// Validate names every broken invariant of the chunk; nil if there is none. Errors wrap [ErrInvalid].
func (g *GenerateChunk) Validate() error {
	f := &faults{path: "generate_chunk"}
	f.name("episode", g.Episode)
	f.name("engine", g.Engine)
	f.atLeast("index", int64(g.Index), 0)
	n := len(g.Tokens)
	if len(g.Logprobs) != n {
		f.add("logprobs", "%d entries for %d tokens", len(g.Logprobs), n)
	}
	if len(g.Versions) != n {
		f.add("versions", "%d entries for %d tokens", len(g.Versions), n)
	}
	if i := slices.IndexFunc(g.Tokens, func(v int32) bool { return v < 0 }); i >= 0 {
		f.add("tokens", "[%d] = %d: must not be negative", i, g.Tokens[i])
	}
	for i, lp := range g.Logprobs {
		if !(lp <= logprobSlack && lp >= -math.MaxFloat32) {
			f.add("logprobs", "[%d] = %v: must be finite and at most 0", i, lp)
			break
		}
	}
	if i := slices.IndexFunc(g.Versions, func(v int32) bool { return v < 0 }); i >= 0 {
		f.add("versions", "[%d] = %d: must not be negative", i, g.Versions[i])
	}
	switch {
	case !g.Done && g.Stop != "":
		f.add("stop", "%.40q before the call is done", string(g.Stop))
	case g.Done && g.Stop != GenerateStopToken && g.Stop != GenerateLength && g.Stop != GenerateError:
		f.add("stop", "%.40q: not a reason to stop", string(g.Stop))
	}
	if g.Error != "" && g.Stop != GenerateError {
		f.add("error", "set, but stop is %.40q", string(g.Stop))
	}
	if g.Busy && !g.Retry {
		f.add("busy", "set, but retry is not")
	}
	return f.err()
}
