package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/streams"
)

func newStreamsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "streams", Short: "Show what a run's streams hold: depth, bytes, bounds, tickets", Args: cobra.NoArgs,
		Long: `Streams shows each stream of a run, of its broker or, where that has ended, of its store in the run's folder: messages
and bytes beside their bounds, how old the oldest message is, and where the tickets are that are not done: redelivered are those that a producer had before and that came back. With --every
it goes on, and says how many messages a second were stored since the table before.`,
		Example: "  weir streams\n  weir streams --every 2s\n  weir streams --run.name mine --broker.url nats://broker:4222 -o json",
	}
	cmd.AddCommand(newStreamsMessageCommand(a))
	format := outputFlag(cmd)
	every := everyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var before *streamsAnswer
		return a.lookAtRun(cmd, *every, func(ctx context.Context, s *assembly.Run, run *streams.Run, up bool) error {
			seen, err := runfolder.ReadStreams(ctx, run, time.Now())
			if err != nil {
				return err
			}
			now := newStreamsAnswer(run.Name(), up, seen, before)
			before = now
			if format.isJSON() {
				return a.printJSON(now)
			}
			return now.printStreams(a.out)
		})
	}
	return cmd
}

// streamsAnswer is the contents of a run's streams.
type streamsAnswer struct {
	Run string `json:"run"`
	// Up says that a broker serves the streams; else they were read where they lie.
	Up      bool                  `json:"up"`
	At      time.Time             `json:"at"`
	Streams []streamRow           `json:"streams"`
	Tickets *runfolder.TicketsNow `json:"tickets,omitempty"`
	Control *runfolder.ControlNow `json:"control,omitempty"`
	// NewestVersion is nil where no weights are published.
	NewestVersion *int64 `json:"newest_version,omitempty"`
}

// streamRow is a stream.
type streamRow struct {
	runfolder.StreamNow
	// Rate is how many messages a second were stored since the look before; nil at the first.
	Rate *float64 `json:"stored_per_second,omitempty"`
}

// newStreamsAnswer compares the streams with the previous look, nil at the first.
func newStreamsAnswer(run string, up bool, seen *runfolder.Streams, before *streamsAnswer) *streamsAnswer {
	out := &streamsAnswer{Run: run, Up: up, At: seen.At, Streams: []streamRow{}, Tickets: seen.Tickets, Control: seen.Control, NewestVersion: seen.Newest}
	for _, s := range seen.Streams {
		row := streamRow{StreamNow: s}
		if before != nil {
			for _, b := range before.Streams {
				// A stream that was made anew begins its sequences anew.
				if passed := seen.At.Sub(before.At).Seconds(); b.Name == s.Name && passed > 0 && s.Last >= b.Last {
					rate := float64(s.Last-b.Last) / passed
					row.Rate = &rate
				}
			}
		}
		out.Streams = append(out.Streams, row)
	}
	return out
}

func (o *streamsAnswer) printStreams(w io.Writer) error {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"stream", "messages", "at most", "bytes", "at most", "oldest", "stored/s"})
	for _, s := range o.Streams {
		oldest, rate := "-", "-"
		if s.Messages > 0 {
			oldest = time.Duration(s.Age * float64(time.Second)).Round(time.Second).String()
		}
		if s.Rate != nil {
			rate = strconv.FormatFloat(*s.Rate, 'f', 1, 64)
		}
		t.AppendRow(table.Row{s.Name, s.Messages, boundText(s.MaxMessages, func(n int64) string { return strconv.FormatInt(n, 10) }), byteSize(int64(s.Bytes)), boundText(s.MaxBytes, byteSize), oldest, rate})
	}
	t.Render()
	if o.Tickets != nil {
		fmt.Fprintf(w, "tickets: %d wait for a producer, %d are leased, %d of them redelivered; %d requests for a ticket are open\n",
			o.Tickets.Waiting, o.Tickets.Leased, o.Tickets.Redelivered, o.Tickets.Takers)
	}
	_, err := fmt.Fprintln(w, o.describeState())
	return err
}

// describeState is a line on the run.
func (o *streamsAnswer) describeState() string {
	text := "run " + report.Plain(o.Run)
	if !o.Up {
		text += ", not up"
	}
	if o.Control != nil {
		text += fmt.Sprintf(", policy version %d, oldest usable %d", o.Control.Version, o.Control.MinVersion)
		if o.Control.Paused {
			text += ", paused"
		}
		if o.Control.Draining {
			text += ", draining"
		}
	}
	return text
}

// boundText is a stream's bound; 0 is none.
func boundText(n int64, text func(int64) string) string {
	if n == 0 {
		return "-"
	}
	return text(n)
}

// byteSize is a number of bytes for people.
func byteSize(n int64) string {
	for _, unit := range []struct {
		bytes float64
		name  string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if float64(n) >= unit.bytes {
			return fmt.Sprintf("%.1f %s", float64(n)/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// everyFlag gives a command the flag that makes it go on.
func everyFlag(cmd *cobra.Command) *time.Duration {
	return cmd.Flags().Duration("every", 0, "look again after so long, until Ctrl-C: 2s; 0 looks once")
}

// lookPatience bounds a look at a broker.
const lookPatience = 10 * time.Second

// lookAtRun visits a run and has it looked at, once or every so often. A run that is not up is looked at once: nothing changes there.
func (a *app) lookAtRun(cmd *cobra.Command, every time.Duration, fn func(ctx context.Context, s *assembly.Run, run *streams.Run, up bool) error) error {
	if every < 0 {
		return fault.Usagef("--every %v: must not be negative", every)
	}
	s, err := a.openProcess(cmd)
	if err != nil {
		return err
	}
	run, up, leave, err := s.Connector().Visit(cmd.Context(), streams.RoleViewer)
	if err != nil {
		return err
	}
	defer leave()
	once := func() error {
		ctx, cancel := context.WithTimeout(cmd.Context(), lookPatience)
		defer cancel()
		return fn(ctx, s, run, up)
	}
	if err := once(); err != nil || every == 0 {
		return err
	}
	if !up {
		fmt.Fprintln(a.err, "nothing changes: the run is not up")
		return nil
	}
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		select {
		case <-cmd.Context().Done():
			return interruptedError(cmd.Context(), nil)
		case <-again.C:
			if err := once(); err != nil {
				return err
			}
		}
	}
}
