package cli

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

func newStreamsMessageCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "message STREAM SEQUENCE", Short: "Show one stored message of a stream", Args: cobra.ExactArgs(2),
		Long: `Message shows the message at a sequence of a run's stream: TICKETS, TRAJECTORIES, REJECTED, EVENTS, CONTROL or WEIGHTS. It
prints the message's subject, time, size and headers, and what the message says; of a message that cannot be read it
prints why, and the first bytes.`,
		Example: "  weir streams message REJECTED 17\n  weir streams message TRAJECTORIES 4711 --run.name mine --broker.url nats://broker:4222 -o json",
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sequence, err := strconv.ParseUint(args[1], 10, 64)
		if err != nil {
			return fault.Usagef("SEQUENCE: %q: want a number, as weir streams -o json has them", args[1])
		}
		return a.lookAtRun(cmd, 0, func(ctx context.Context, _ *assembly.Run, run *streams.Run, _ bool) error {
			m, err := run.StoredMessage(ctx, args[0], sequence)
			if err != nil {
				return err
			}
			answer := newMessageAnswer(m)
			if format.isJSON() {
				return a.printJSON(answer)
			}
			return answer.printMessage(a.out)
		})
	}
	return cmd
}

// messageAnswer is a stored message.
type messageAnswer struct {
	Stream   string              `json:"stream"`
	Sequence uint64              `json:"sequence"`
	Subject  string              `json:"subject"`
	At       time.Time           `json:"at"`
	Bytes    int                 `json:"bytes"`
	Headers  map[string][]string `json:"headers"`
	// Fields are the contents of the message. Fault is why it cannot be read, and Hex then begins its bytes.
	Fields []messageField `json:"fields,omitempty"`
	Fault  string         `json:"fault,omitempty"`
	Hex    string         `json:"hex,omitempty"`
}

// messageField is a line of a message.
type messageField struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// hexBytes bounds the bytes of an unreadable message that are shown.
const hexBytes = 256

func newMessageAnswer(m *streams.StoredMessage) *messageAnswer {
	out := &messageAnswer{Stream: m.Stream, Sequence: m.Sequence, Subject: m.Subject, At: m.At, Bytes: len(m.Data), Headers: m.Header}
	decoded, err := m.Decode()
	switch {
	case err != nil && json.Valid(m.Data): // the trainer's seat
		out.Fields = fieldsOf("json", string(m.Data))
		return out
	case err != nil:
		out.Fault, out.Hex = err.Error(), hex.EncodeToString(m.Data[:min(len(m.Data), hexBytes)])
		return out
	}
	out.Fields = messageFields(decoded)
	return out
}

// messageFields summarize the contents of a message.
func messageFields(message any) []messageField {
	switch m := message.(type) {
	case *schemas.Ticket:
		return fieldsOf("kind", schemas.KindTicket, "id", m.ID, "task", m.Task, "prompt", m.Prompt.ID, "sample", m.Sample, "of", m.GroupSize,
			"issued", m.IssuedAt.Format(time.RFC3339Nano), "text", m.Prompt.Text)
	case *schemas.Trajectory:
		tokens, newest := 0, int64(math.MinInt64)
		for i := range m.Segments {
			tokens += len(m.Segments[i].Tokens)
			for _, v := range m.Segments[i].Versions {
				newest = max(newest, int64(v))
			}
		}
		return fieldsOf("kind", schemas.KindTrajectory, "id", m.ID, "task", m.Task, "prompt", m.PromptID, "producer", m.Producer, "segments", len(m.Segments),
			"turns", len(m.Turns), "tokens", tokens, "oldest version", m.OldestVersion(), "newest version", newest, "reward", m.Reward, "stop", m.Stop,
			"error", m.Error, "answer", m.Answer)
	case *schemas.GroupClosed:
		return fieldsOf("kind", schemas.KindGroupClosed, "group", m.Group, "cancelled", m.Cancelled, "why", m.Why, "producer", m.Producer)
	case *schemas.Manifest:
		return fieldsOf("kind", schemas.KindManifest, "version", m.Version, "base", m.Base, "shards", len(m.AllShards()), "dtype", m.DType, "published", m.PublishedAt.Format(time.RFC3339Nano))
	case *schemas.Control:
		return fieldsOf("kind", schemas.KindControl, "version", m.PolicyVersion, "oldest usable", m.MinVersion, "paused", m.Paused, "draining", m.Draining)
	case *schemas.Event:
		return fieldsOf("kind", schemas.KindEvent, "event", fmt.Sprintf("%+v", *m))
	}
	return nil
}

// fieldsOf makes fields of names and values. A value that is empty is left out.
func fieldsOf(pairs ...any) (fields []messageField) {
	for pair := range slices.Chunk(pairs, 2) {
		if text := fmt.Sprint(pair[1]); text != "" {
			fields = append(fields, messageField{fmt.Sprint(pair[0]), text})
		}
	}
	return fields
}

func (m *messageAnswer) printMessage(w io.Writer) error {
	fmt.Fprintf(w, "%s %d: %s, %d bytes, stored %s\n", m.Stream, m.Sequence, report.Plain(m.Subject), m.Bytes, m.At.UTC().Format(time.RFC3339Nano))
	var names []string
	for name := range m.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(w, "  %s: %s\n", report.Plain(name), report.Plain(strings.Join(m.Headers[name], ", ")))
	}
	for _, f := range m.Fields {
		fmt.Fprintf(w, "%s: %s\n", f.Name, report.Plain(f.Value))
	}
	if m.Fault != "" {
		fmt.Fprintf(w, "cannot be read: %s\n%s\n", report.Plain(m.Fault), m.Hex)
	}
	return nil
}
