package schemas

import (
	"fmt"
	"time"
)

// JournalRecord is a part of the journal of a ticket: what its episode did since the record before. Where the ticket comes to another
// producer, the records give the episode back as it was.
type JournalRecord struct {
	Run string `msgpack:"run"`
	// Ticket is the id of the ticket, Basis the hash of what the ticket asks for: [JournalBasis].
	Ticket string `msgpack:"ticket"`
	Basis  Bytes  `msgpack:"basis"`
	// Producer wrote the record, and Delivery counts the deliveries of the ticket until it came to that producer, from 1.
	Producer string `msgpack:"producer"`
	Delivery int    `msgpack:"delivery"`
	// Number counts the records of the journal from 0, so that a record that is missing is noticed.
	Number int `msgpack:"number"`
	// Elapsed is how long producers have worked on the episode, the time before a take-up included.
	Elapsed time.Duration `msgpack:"elapsed"`
	// Ended is whether nothing is left to take up: the trajectory is stored, or the sample is closed. The ticket is not played again.
	Ended    bool             `msgpack:"ended,omitempty"`
	Contexts []JournalContext `msgpack:"contexts,omitempty"`
	Samples  []JournalSample  `msgpack:"samples,omitempty"`
	Calls    []JournalCall    `msgpack:"calls,omitempty"`
	// Notes are the notes of the episode's agent, in order: see [JournalNote]. They came to version 3 later.
	Notes []JournalNote `msgpack:"notes,omitempty"`
}

// JournalNote has words of an agent for the producer that goes on with its episode.
type JournalNote struct {
	Text Bytes `msgpack:"text"`
}

// JournalContext is a context that an episode opened.
type JournalContext struct {
	// Number counts the episode's contexts from 0.
	Number int `msgpack:"number"`
	// Key is the hash of the agent's name and of the tokens that the context begins with.
	Key Bytes `msgpack:"key"`
}

// JournalSample are tokens that the policy sampled.
type JournalSample struct {
	// Key is the hash of the request that the tokens answer: the context before them, the seed, the temperature and the stop tokens.
	Key      Bytes    `msgpack:"key"`
	Tokens   Int32s   `msgpack:"tokens"`
	Logprobs Float32s `msgpack:"logprobs"`
	// Versions has an entry for each token.
	Versions Runs `msgpack:"versions"`
	// Stop says why generation ended; "" where it went on, or was cut off.
	Stop GenerateStop `msgpack:"stop,omitempty"`
}

// JournalCall is a call of a tool. A later entry with the same Context and Place takes the place of an earlier one.
type JournalCall struct {
	// Context is the number of the context, Place counts the calls in the context from 0, Index the calls of the episode.
	Context int `msgpack:"context"`
	Place   int `msgpack:"place"`
	Index   int `msgpack:"index"`
	// Key is the hash of the tool's name and the arguments.
	Key   Bytes        `msgpack:"key"`
	State JournalState `msgpack:"state"`
	// Duration, Error and Failed are as in [ToolCall].
	Duration time.Duration `msgpack:"duration,omitempty"`
	Error    string        `msgpack:"error,omitempty"`
	Failed   bool          `msgpack:"failed,omitempty"`
	// Observation is what the agent was given; nil unless the call was answered.
	Observation *ToolObservation `msgpack:"observation,omitempty"`
}

// JournalState says how far a call has come.
type JournalState string

// The states of a call.
const (
	JournalStarted   JournalState = "started"   // it goes out, and may have had its effect
	JournalAnswered  JournalState = "answered"  // the agent has the observation
	JournalWithdrawn JournalState = "withdrawn" // the tool was unavailable: the call may be made again
)

// JournalKeyBytes is the length of a key, in bytes.
const JournalKeyBytes = 16

func (r *JournalRecord) codeFields(c *coder) {
	codeTextValue(c, "run", &r.Run, false)
	codeTextValue(c, "ticket", &r.Ticket, false)
	codeOctets(c, "basis", &r.Basis, false)
	codeTextValue(c, "producer", &r.Producer, false)
	codeIntegerValue(c, "delivery", &r.Delivery, false)
	codeIntegerValue(c, "number", &r.Number, false)
	codeIntegerValue(c, "elapsed", &r.Elapsed, false)
	c.codeBool("ended", &r.Ended, true)
	structures(c, "contexts", &r.Contexts, true)
	structures(c, "samples", &r.Samples, true)
	structures(c, "calls", &r.Calls, true)
	structures(c, "notes", &r.Notes, true)
}

func (j *JournalNote) codeFields(c *coder) { codeOctets(c, "text", &j.Text, false) }

func (j *JournalContext) codeFields(c *coder) {
	codeIntegerValue(c, "number", &j.Number, false)
	codeOctets(c, "key", &j.Key, false)
}

func (j *JournalSample) codeFields(c *coder) {
	codeOctets(c, "key", &j.Key, false)
	codeWordArray(c, "tokens", &j.Tokens)
	codeWordArray(c, "logprobs", &j.Logprobs)
	c.runLengths("versions", &j.Versions, len(j.Tokens))
	codeTextValue(c, "stop", &j.Stop, true)
}

func (j *JournalCall) codeFields(c *coder) {
	codeIntegerValue(c, "context", &j.Context, false)
	codeIntegerValue(c, "place", &j.Place, false)
	codeIntegerValue(c, "index", &j.Index, false)
	codeOctets(c, "key", &j.Key, false)
	codeTextValue(c, "state", &j.State, false)
	codeIntegerValue(c, "duration", &j.Duration, true)
	codeTextValue(c, "error", &j.Error, true)
	c.codeBool("failed", &j.Failed, true)
	optional(c, "observation", &j.Observation)
}

func (r *JournalRecord) wireSize() int {
	n := 512 + 32*len(r.Contexts)
	for i := range r.Samples {
		n += r.Samples[i].Size()
	}
	for i := range r.Calls {
		n += r.Calls[i].Size()
	}
	for i := range r.Notes {
		n += r.Notes[i].Size()
	}
	return n
}

// Size is about how many bytes the note takes in a record.
func (j *JournalNote) Size() int { return 32 + len(j.Text) }

// Size is about how many bytes the sample takes in a record.
func (j *JournalSample) Size() int { return 128 + 9*len(j.Tokens) }

// Size is about how many bytes the call takes in a record.
func (j *JournalCall) Size() int {
	n := 256 + len(j.Error)
	if o := j.Observation; o != nil {
		n += 128 + len(o.Text) + len(o.Notes) + len(o.Answer) + 40*len(o.Metrics)
	}
	return n
}

// Validate names every broken invariant of the record; nil if there is none. Errors wrap [ErrInvalid].
func (r *JournalRecord) Validate() error {
	f := &faults{path: "journal_record"}
	f.checkName("run", r.Run)
	f.checkName("ticket", r.Ticket)
	f.checkName("producer", r.Producer)
	f.checkJournalKey("basis", r.Basis)
	f.checkAtLeast("delivery", int64(r.Delivery), 1)
	f.checkAtLeast("number", int64(r.Number), 0)
	f.checkAtLeast("elapsed", int64(r.Elapsed), 0)
	for i := range r.Contexts {
		at := fmt.Sprintf("contexts[%d].", i)
		f.checkAtLeast(at+"number", int64(r.Contexts[i].Number), 0)
		f.checkJournalKey(at+"key", r.Contexts[i].Key)
	}
	for i := range r.Samples {
		f.checkJournalSample(fmt.Sprintf("samples[%d].", i), &r.Samples[i])
	}
	for i := range r.Calls {
		f.checkJournalCall(fmt.Sprintf("calls[%d].", i), &r.Calls[i])
	}
	for i := range r.Notes {
		if len(r.Notes[i].Text) == 0 {
			f.addFault(fmt.Sprintf("notes[%d].text", i), "must not be empty")
		}
	}
	return f.joinFaults()
}

// checkJournalKey checks a hash of the journal.
func (f *faults) checkJournalKey(field string, key Bytes) {
	if len(key) != JournalKeyBytes {
		f.addFault(field, "%d bytes: must be %d", len(key), JournalKeyBytes)
	}
}

func (f *faults) checkJournalSample(at string, s *JournalSample) {
	f.checkJournalKey(at+"key", s.Key)
	if len(s.Tokens) == 0 {
		f.addFault(at+"tokens", "must not be empty")
	}
	if len(s.Logprobs) != len(s.Tokens) || len(s.Versions) != len(s.Tokens) {
		f.addFault(at+"logprobs", "%d, and %d versions, for %d tokens", len(s.Logprobs), len(s.Versions), len(s.Tokens))
	}
	for _, p := range s.Logprobs {
		if !(p <= logprobSlack) || p < -1e30 {
			f.addFault(at+"logprobs", "%v: must be finite and not positive", p)
			break
		}
	}
	for i := range s.Versions {
		if s.Tokens != nil && i < len(s.Tokens) && s.Tokens[i] < 0 || s.Versions[i] < 0 {
			f.addFault(at+"versions", "token %d of version %d: must not be negative", i, s.Versions[i])
			break
		}
	}
	if s.Stop != "" && s.Stop != GenerateStopToken && s.Stop != GenerateLength {
		f.addFault(at+"stop", "%.40q: no such reason", string(s.Stop))
	}
}

func (f *faults) checkJournalCall(at string, j *JournalCall) {
	f.checkJournalKey(at+"key", j.Key)
	f.checkAtLeast(at+"context", int64(j.Context), 0)
	f.checkAtLeast(at+"place", int64(j.Place), 0)
	f.checkAtLeast(at+"index", int64(j.Index), 0)
	f.checkAtLeast(at+"duration", int64(j.Duration), 0)
	switch j.State {
	case JournalStarted, JournalAnswered, JournalWithdrawn:
	default:
		f.addFault(at+"state", "%.40q: no such state", string(j.State))
	}
	if (j.Observation != nil) != (j.State == JournalAnswered) {
		f.addFault(at+"observation", "belongs to an answered call, and to no other")
	}
	if o := j.Observation; o != nil {
		f.checkFinite(at+"observation.reward", o.Reward)
		f.checkAtLeast(at+"observation.outputs", int64(o.Outputs), 0)
		f.checkAtLeast(at+"observation.errors", int64(o.Errors), 0)
	}
}
