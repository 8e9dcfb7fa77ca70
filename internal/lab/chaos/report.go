package chaos

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/audit"
)

// Report is how a run came through.
type Report struct {
	Seed  uint64 `json:"seed"`
	Steps int64  `json:"steps"`
	// Kills counts SIGKILLs by role, and a trainer's own by "trainer after <stage>"; Faults counts the other faults.
	Kills  map[string]int `json:"kills"`
	Faults map[string]int `json:"faults"`
	// Hostile counts the strangers' messages by kind. HostileStored is how many of them the trajectory stream took,
	// HostileTrained lists the messages that were trained on. BrokerRefused is how many the broker refused, BrokerKnew how many it
	// knew by their id.
	Hostile        map[string]int `json:"hostile"`
	HostileStored  int            `json:"hostile_stored"`
	HostileTrained []string       `json:"hostile_trained"`
	BrokerRefused  int            `json:"broker_refused"`
	BrokerKnew     int            `json:"broker_knew"`
	// RejectedBy counts the rejected stream's messages by reason.
	RejectedBy map[string]int `json:"refused"`
	Audit      *audit.Report  `json:"audit"`
	// Archive is nil where the run keeps no messages.
	Archive *ArchiveReport `json:"archive,omitempty"`
	Tools   *ToolsReport   `json:"tools,omitempty"`
	// Effective is nil where no faults came, or too few steps were done without.
	Effective *EffectiveReport `json:"effective_time,omitempty"`
	// Trouble lists everything else that went wrong: roles that ended unasked, a run that did not go on.
	Trouble []string `json:"trouble"`
}

// Err is nil when the run came through with every promise kept.
func (r *Report) Err() error {
	var errs []error
	if r.Audit != nil {
		errs = append(errs, r.Audit.Err())
	}
	errs = append(errs, r.Archive.Err(), r.Tools.Err())
	if n := len(r.HostileTrained); n > 0 {
		errs = append(errs, fmt.Errorf("%d strangers' messages were trained on", n))
	}
	if n := len(r.Trouble); n > 0 {
		errs = append(errs, fmt.Errorf("%d times trouble", n))
	}
	return errors.Join(errs...)
}

// Total is the sum of a count.
func Total(m map[string]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

// Print writes the report; the last line is the summary.
func (r *Report) Print(out io.Writer) {
	line := func(title, text string) { fmt.Fprintf(out, "%-13s %s\n", title, text) }
	line("seed", fmt.Sprint(r.Seed))
	line("kills", listCounts(r.Kills))
	line("faults", listCounts(r.Faults))
	line("hostile", listCounts(r.Hostile))
	line("", fmt.Sprintf("stored %d, refused by the broker %d, known to it by their id %d, trained on %d",
		r.HostileStored, r.BrokerRefused, r.BrokerKnew, len(r.HostileTrained)))
	line("rejected", listCounts(r.RejectedBy))
	a := r.Audit
	if a == nil {
		a = &audit.Report{}
	}
	reasons := map[string]int{}
	for reason, n := range a.Rejected {
		reasons[string(reason)] = n
	}
	line("trajectories", fmt.Sprintf("trained on %d, not trained on: %s", a.Trained, listCounts(reasons)))
	line("witness", fmt.Sprintf("saw %d messages, %d of them pending, %d gone with a store; trained on unseen %d; most versions behind %d",
		a.Witnessed, a.Pending, a.Gone, a.Unwitnessed, a.MaxStaleness))
	kept := r.Archive
	if kept == nil {
		kept = &ArchiveReport{}
	} else {
		line("archive", fmt.Sprintf("%d messages kept, %d faults, trained on unkept %d", kept.Messages, len(kept.Damage), len(kept.Unkept)))
	}
	called := r.Tools
	if called == nil {
		called = &ToolsReport{}
	}
	line("tools", fmt.Sprintf(
		"%d calls made, %d of them twice; again after their journals had gone with the store %d",
		called.Calls, len(called.Twice), called.WithStore))
	effective := "n/a"
	if e := r.Effective; e != nil {
		effective = fmt.Sprintf("%.0f%%", 100*e.Share)
		line("effective", fmt.Sprintf("%s of %.0f seconds with faults: %d steps, at %.2f seconds each of %d steps without faults",
			effective, e.FaultSeconds, e.FaultSteps, e.CalmSeconds, e.CalmSteps))
	}
	for _, list := range []struct {
		title string
		lines []string
	}{
		{"LOST", a.Lost.Text("lost")},
		{"TWICE", a.Twice.Text("used twice")},
		{"STALE", a.Stale.Text("over the bound")},
		{"CONTRADICTED", a.Contradicted.Text("contradicted")},
		{"SKIPPED", a.Skipped.Text("prompts skipped")},
		{"MISSING", a.Gaps.Text("steps missing")},
		{"CHANGED", a.Lines.Text("lines that changed")},
		{"HOSTILE", cutLines(r.HostileTrained)},
		{"ARCHIVE", cutLines(kept.Damage)},
		{"UNKEPT", cutLines(kept.Unkept)},
		{"CALLED TWICE", cutLines(called.Twice)},
		{"TROUBLE", cutLines(r.Trouble)},
	} {
		for _, text := range list.lines {
			line(list.title, text)
		}
	}
	fmt.Fprintf(out, "chaos: kills=%d lost=%d twice=%d stale_over_bound=%d prompts_skipped=%d steps_missing=%d contradicted=%d "+
		"hostile_trained=%d tools_twice=%d trouble=%d steps=%d effective=%s\n",
		Total(r.Kills), a.Lost.Count, a.Twice.Count, a.Stale.Count, a.Skipped.Count, a.Gaps.Count, a.Contradicted.Count,
		len(r.HostileTrained), len(called.Twice), len(r.Trouble), r.Steps, effective)
}

// linesShown bounds the printed lines of a list of faults.
const linesShown = 20

// cutLines cuts a list to the lines that are printed.
func cutLines(lines []string) []string {
	if len(lines) <= linesShown {
		return lines
	}
	return append(lines[:linesShown:linesShown], fmt.Sprintf("and %d more", len(lines)-linesShown))
}

func listCounts(m map[string]int) string {
	if len(m) == 0 {
		return "none"
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s=%d", strings.ReplaceAll(k, " ", "_"), m[k]))
	}
	return strings.Join(parts, " ")
}
