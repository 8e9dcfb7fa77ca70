package view

import (
	"github.com/weir-rl/weir/internal/operate"
	"github.com/weir-rl/weir/internal/runfolder"
)

// Run is a run to be shown. Its Dir is "" where the folder is not on this machine: then the page shows the broker's part alone.
type Run struct {
	runfolder.Run
	// Noted returns the address of the broker that the process with the run's broker noted in the folder, and has not taken back; "" where
	// there is none. Nil is no note.
	Noted func() string
	// Chat asks versions of the run; nil where the page cannot.
	Chat Chat
	// Known returns the settings that acts are checked against; a nil function, and a nil answer, are no settings.
	Known func() *operate.Known
	// Flags name the run on a command line, such as "--run.name mine".
	Flags string
}

// shownRun is a Run that is open.
type shownRun struct {
	Run
	folder *runfolder.Folder
	// chatting has room for a single question, so that chats cost a run a single sequence.
	chatting chan struct{}
	judged   judged
}

func openRun(r Run) *shownRun {
	folder := runfolder.Open(r.Run)
	r.Run = folder.Run // with its defaults
	return &shownRun{Run: r, folder: folder, chatting: make(chan struct{}, 1)}
}

// knownSettings returns the settings that acts are checked against; nil where none are known.
func (r *shownRun) knownSettings() *operate.Known {
	if r.Known == nil {
		return nil
	}
	return r.Known()
}

// notedBroker returns the address of the broker that the run's folder notes; "" where it notes none.
func (r *shownRun) notedBroker() string {
	if r.Noted == nil {
		return ""
	}
	return r.Noted()
}
