package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

func newInspectCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "inspect", Short: "Look at what the broker holds"}
	rejected := &cobra.Command{
		Use: "rejected", Short: "List the messages that were refused, with the reason", Args: cobra.NoArgs,
		Long: `Rejected lists what the run refused: what it was, why, and when. With --replay the named messages are published
again and judged anew; a trajectory that was trained on before is refused as a duplicate.`,
		Example: "  weir inspect rejected\n  weir inspect rejected --reason stale\n  weir inspect rejected --replay 12 --replay 13",
	}
	format := outputFlag(rejected)
	reason := rejected.Flags().String("reason", "", "only those with this reason")
	replay := rejected.Flags().UintSlice("replay", nil, "publish the message of this number again; may be given again")
	rejected.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := a.openProcess(cmd)
		if err != nil {
			return err
		}
		role := streams.RoleViewer
		if len(*replay) > 0 {
			role = streams.RoleAdmin
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
		defer cancel()
		run, _, leave, err := s.Connector().Visit(ctx, role)
		if err != nil {
			return err
		}
		defer leave()
		if len(*replay) > 0 {
			return a.replayRejected(ctx, run, *replay, format.isJSON())
		}
		return a.listRejected(ctx, run, schemas.Reason(*reason), format.isJSON())
	}
	cmd.AddCommand(rejected)
	return cmd
}

// rejectedAnswer is a refused message as JSON.
type rejectedAnswer struct {
	Number   uint64         `json:"number"`
	At       time.Time      `json:"at"`
	Reason   schemas.Reason `json:"reason"`
	Detail   string         `json:"detail"`
	Subject  string         `json:"subject"`
	Stream   string         `json:"stream"`
	Sequence uint64         `json:"sequence"`
	Bytes    int            `json:"bytes"`
}

func (w *console) listRejected(ctx context.Context, run *streams.Run, reason schemas.Reason, asJSON bool) error {
	rows := table.NewWriter()
	rows.SetOutputMirror(w.out)
	rows.SetStyle(table.StyleLight)
	rows.AppendHeader(table.Row{"number", "at", "reason", "was in", "bytes", "detail"})
	n := 0
	for m, err := range run.Rejected(ctx) {
		if err != nil {
			return err
		}
		if reason != "" && m.Reason != reason {
			continue
		}
		n++
		if asJSON {
			err := w.printJSON(rejectedAnswer{m.Sequence, m.At.UTC(), m.Reason, m.Detail, m.Subject, m.Stream, m.Original, len(m.Data)})
			if err != nil {
				return err
			}
			continue
		}
		// A stranger wrote these.
		rows.AppendRow(table.Row{
			m.Sequence, m.At.Local().Format(time.DateTime), report.Plain(string(m.Reason)), report.Plain(m.Subject), len(m.Data), report.Plain(m.Detail),
		})
	}
	if asJSON {
		return nil
	}
	if n == 0 {
		with := ""
		if reason != "" {
			with = fmt.Sprintf(" as %q", reason)
		}
		fmt.Fprintf(w.out, "nothing was refused%s; weir audit counts what was dropped with its group\n", with)
		return nil
	}
	rows.Render()
	return nil
}

func (w *console) replayRejected(ctx context.Context, run *streams.Run, numbers []uint, asJSON bool) error {
	left := slices.Clone(numbers)
	for m, err := range run.Rejected(ctx) {
		if err != nil {
			return err
		}
		at := slices.Index(left, uint(m.Sequence))
		if at < 0 {
			continue
		}
		if err := run.Replay(ctx, m); err != nil {
			return err
		}
		if asJSON {
			err = w.printJSON(map[string]uint64{"published": m.Sequence})
		} else {
			_, err = fmt.Fprintf(w.out, "published number %d again\n", m.Sequence)
		}
		if err != nil {
			return err
		}
		left = slices.Delete(left, at, at+1)
	}
	if len(left) > 0 {
		return fault.Usagef("--replay %v: no such rejected message; weir inspect rejected lists them", left)
	}
	return nil
}
