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

// console is where a command reads its environment and prints.
type console struct {
	out, err io.Writer
	environ  []string
	// plain asks for lines where a terminal would get the live view.
	plain bool
}

// newProgress shows a run as it goes on a stream, live where that is a terminal.
func (w *console) newProgress(cfg *config.Config, stream io.Writer) *report.Progress {
	view := report.NewProgress(stream, w.showsLive(stream), cfg.Trainer.Steps, cfg.Trainer.Eta, time.Now)
	view.Width = func() int { return terminalColumns(stream) }
	view.Colour = showsColour(stream, w.environ)
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

// showsLive reports whether a stream shows a view that is drawn over: a terminal that can, unless plain lines are asked for.
func (w *console) showsLive(stream any) bool {
	return isTerminal(stream) && !w.plain && environVariable(w.environ, "TERM") != "dumb" && environVariable(w.environ, "NO_COLOR") == ""
}

// showsColour reports whether a stream shows colours: a terminal, unless NO_COLOR has a value (no-color.org) or the terminal has none.
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
