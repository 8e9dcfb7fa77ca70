package view

import (
	"github.com/weir-rl/weir/internal/operate"
	"github.com/weir-rl/weir/internal/runfolder"
)

// Run is a run to be shown. Its Dir is "" where the folder is not on this machine: then the page shows what the broker has.
type Run struct {
	runfolder.Run
	// Noted returns the address of the broker that the process with the run's broker noted in the folder, and has not taken back; "" where
	// there is none. Nil is no note.
	Noted func() string
	// Chat asks versions of the run; nil where the page cannot.
	Chat Chat
	// Known returns what the run's configuration says that acts are held against; nil, and nil as the answer, where nothing is known.
	Known func() *operate.Known
	// Flags are what a command line needs to name the run, such as "--run.name mine".
	Flags string
}

// shownRun is a Run that is open.
type shownRun struct {
	Run
	folder *runfolder.Folder
	// chatting has room for one question at a time, so that chats cost a run one sequence at most.
	chatting chan struct{}
}

func openRun(r Run) *shownRun {
	folder := runfolder.Open(r.Run)
	r.Run = folder.Run // with what was left to it
	return &shownRun{Run: r, folder: folder, chatting: make(chan struct{}, 1)}
}

// knownSettings returns what is known of the run; nil where nothing is.
func (r *shownRun) knownSettings() *operate.Known {
	if r.Known == nil {
		return nil
	}
	return r.Known()
}

// notedBroker returns where the run's folder says that its broker is; "" where it says nothing.
func (r *shownRun) notedBroker() string {
	if r.Noted == nil {
		return ""
	}
	return r.Noted()
}
