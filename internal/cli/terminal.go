package cli

import (
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/report"
)

// newProgress shows a run as it goes on w, live where that is a terminal.
func (a *app) newProgress(cfg *config.Config, w io.Writer) *report.Progress {
	view := report.NewProgress(w, a.showsLive(w), cfg.Trainer.Steps, cfg.Trainer.Eta, time.Now)
	view.Width = func() int { return terminalColumns(w) }
	view.Colour = showsColour(w, a.environ)
	return view
}

// terminalColumns is the width of a terminal, 0 if w is none.
func terminalColumns(w any) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// showsLive says whether a stream shows a view that is drawn over: a terminal that can, unless somebody asks for plain lines.
func (a *app) showsLive(w any) bool {
	return isTerminal(w) && !a.plain && environVariable(a.environ, "TERM") != "dumb" && environVariable(a.environ, "NO_COLOR") == ""
}

// showsColour says whether a stream shows colours: a terminal, unless NO_COLOR has a value (no-color.org) or the terminal has none.
func showsColour(w any, environ []string) bool {
	return isTerminal(w) && environVariable(environ, "TERM") != "dumb" && environVariable(environ, "NO_COLOR") == ""
}

// environVariable is the value of an environment's variable, "" where it has none. The last of several counts, as in a process.
func environVariable(environ []string, name string) (value string) {
	for _, v := range environ {
		if key, text, ok := strings.Cut(v, "="); ok && key == name {
			value = text
		}
	}
	return value
}
