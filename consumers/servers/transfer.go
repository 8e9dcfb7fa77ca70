package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weir-rl/weir/consumers"
)

// Transferrer is a [Speaker] of a server whose workers may take a version's weights from shared memory, where Weir's plugin runs in them.
type Transferrer interface {
	// BeginTransfers forgets a staged version. It fails, with the reason, where the server takes no weights from shared memory.
	BeginTransfers(ctx context.Context) error
	// Stage has the server look at a version's files while it samples. It is false as long as the server is not done, and fails where the
	// server cannot take them: nothing was touched then.
	Stage(ctx context.Context, label, dir string, files []StagedFile) (done bool, err error)
	// LoadStaged replaces the weights by the staged version's, of the folder dir, which are called label from then on, as [Speaker.Load]
	// does. Where it fails the weights may be of two versions, and the label is as it was.
	LoadStaged(ctx context.Context, dir, label string, m Mode) error
}

// LateNamer is a kind whose servers, where Weir's plugin does not run in them, name by the next weights a token that the weights before
// sampled, when calls go on after a pause.
type LateNamer interface {
	// NamesLate has no effect.
	NamesLate()
}

// StagedFile is a file of weights as its writer saw it, so that a server on another machine does not take another file of that name.
type StagedFile struct {
	Name string
	// Size is in bytes, Modified in nanoseconds since 1970.
	Size, Modified int64
	Inode          uint64
}

// Plugged is a kind whose started servers can have Weir's plugin.
type Plugged interface {
	// Plugin is the plugin's files, the module that the server imports first.
	Plugin() []PluginFile
}

// The places that a version is loaded from, and the reasons why it is not shared memory: the labels of
// weir_inference_server_loads_total.
const (
	fromMemory = "memory"
	fromFolder = "folder"

	reasonNone   = ""
	reasonOff    = "off"    // inference.server.transfer
	reasonPlugin = "plugin" // the server has no plugin, or takes nothing
	reasonPlace  = "place"  // the version does not lie in shared memory
	reasonStage  = "stage"  // the server cannot take this version
	reasonLoad   = "load"   // the load from shared memory failed
)

// transferState has the facts of a keeper about a server's transfers.
type transferState struct {
	// takes is whether the server takes weights from shared memory, asked whether it has answered that; told is the last reason that was
	// logged.
	takes, asked bool
	told         string
	// staged is whether the version that is to be loaded is staged at the server, reason why not.
	staged bool
	reason string
	// from is where the version of now was loaded from; "" where the process was started with it.
	from string
}

// The waits between two questions whether a version is staged; each question takes the place of a step of sampling.
const (
	firstStage = 2 * time.Millisecond
	lastStage  = 100 * time.Millisecond
)

// beginTransfers finds out whether the server takes weights from shared memory. It is asked some times where it does not answer that, as
// where it is to resume, and then before each version.
func (s *server) beginTransfers(ctx context.Context) {
	s.keeper.transfer = transferState{}
	t, is := s.speaker.(Transferrer)
	if !is || s.pool.cfg.Server.Transfer == consumers.TransferOff {
		return
	}
	for i := 0; !s.askTransfers(ctx, t) && i < maxResumes-1 && ctx.Err() == nil && (s.own == nil || s.own.isRunning()); i++ {
		s.waitForWork(ctx, nil, firstTry<<i)
	}
}

// namesLate reports whether the server names a token that is on its way in a pause by the next weights: its calls are cut at a swap.
func (s *server) namesLate() bool {
	_, late := s.pool.kind.(LateNamer)
	return late && !s.keeper.transfer.takes
}

// askTransfers asks the server whether it takes weights from shared memory, and reports whether it has answered that.
func (s *server) askTransfers(ctx context.Context, t Transferrer) bool {
	state := &s.keeper.transfer
	err := s.controlRequest(ctx, t.BeginTransfers)
	state.takes, state.asked = err == nil, err == nil || errors.Is(err, errNoTransfer)
	if err != nil {
		s.tellFolder("its versions are loaded from folders", err)
	}
	return state.asked
}

// stageVersion has the server look at a version's files while it samples, so that the pause has to copy them alone.
func (s *server) stageVersion(ctx context.Context, want *consumers.Snapshot) {
	state := &s.keeper.transfer
	state.staged, state.reason = false, reasonNone
	t, is := s.speaker.(Transferrer)
	switch {
	case s.pool.cfg.Server.Transfer == consumers.TransferOff:
		state.reason = reasonOff
		return
	case !is, !state.asked && !s.askTransfers(ctx, t), !state.takes:
		state.reason = reasonPlugin
		return
	}
	files, err := listStaged(want.Dir)
	if err != nil {
		state.reason = reasonPlace
		s.tellFolder("a version is loaded from its folder", err)
		return
	}
	if err := s.awaitStaged(ctx, t, want, files); err != nil {
		state.reason = reasonStage
		s.tellFolder("a version is loaded from its folder", err)
		return
	}
	state.staged, state.told = true, ""
}

// awaitStaged waits until the server has staged a version.
func (s *server) awaitStaged(ctx context.Context, t Transferrer, want *consumers.Snapshot, files []StagedFile) error {
	return limitTime(ctx, s.pool.cfg.Server.LoadTimeout, "load_timeout", func(ctx context.Context) error {
		timer := time.NewTimer(0)
		defer timer.Stop()
		for wait := firstStage; ; wait = min(2*wait, lastStage) {
			done, err := t.Stage(ctx, s.pool.labelOf(want.Version), want.Dir, files)
			if done || err != nil {
				return err
			}
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// loadWanted loads a version: from shared memory where it is staged, else, and where that fails, from its folder.
//
// Invariant: a transfer that fails ends in a whole version. The folder's load is of every tensor, and the label is set after it.
func (s *server) loadWanted(ctx context.Context, want *consumers.Snapshot, mode Mode) error {
	state := &s.keeper.transfer
	if t, is := s.speaker.(Transferrer); is && state.staged {
		state.staged = false
		label := s.pool.labelOf(want.Version)
		err := limitTime(ctx, s.pool.cfg.Server.LoadTimeout, "load_timeout", func(ctx context.Context) error {
			return t.LoadStaged(ctx, want.Dir, label, mode)
		})
		if err == nil {
			err = s.checkLabel(ctx, label)
		}
		if err == nil {
			state.from = fromMemory
			s.pool.metrics.Loads.WithLabelValues(fromMemory, reasonNone).Inc()
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		state.reason = reasonLoad
		s.keeper.proven = false // the next load is verified
		s.tellFolder("a version is loaded from its folder", fmt.Errorf("the load from shared memory failed: %w", err))
	}
	err := s.loadVersion(ctx, want, mode)
	if err == nil {
		state.from = fromFolder
		s.pool.metrics.Loads.WithLabelValues(fromFolder, state.reason).Inc()
	}
	return err
}

// dropStaged has the server forget a version that it did not load, so that the memory of its files can go.
func (s *server) dropStaged(ctx context.Context) {
	t, is := s.speaker.(Transferrer)
	if !is || !s.keeper.transfer.staged {
		return
	}
	s.keeper.transfer.staged = false
	if err := s.controlRequest(context.WithoutCancel(ctx), t.BeginTransfers); err != nil {
		s.pool.log.Debug("a staged version is not dropped", "server", s.name, "err", err)
	}
}

// mendFailedLoad has the plugin put away the remains of a failed load: without, a vLLM loads nothing more (0.32.0,
// model_executor/model_loader/reload/layerwise.py:96: layers that are still being loaded are passed over).
func (s *server) mendFailedLoad(ctx context.Context) {
	t, is := s.speaker.(Transferrer)
	if !is || !s.keeper.transfer.takes || ctx.Err() != nil {
		return
	}
	if err := s.controlRequest(ctx, t.BeginTransfers); err != nil {
		s.pool.log.Warn("a failed load is not mended", "server", s.name, "err", err)
	}
}

// tellFolder logs why shared memory is not used, once for each reason.
func (s *server) tellFolder(what string, err error) {
	if why := err.Error(); why != s.keeper.transfer.told {
		s.keeper.transfer.told = why
		s.pool.log.Warn("an inference server takes no weights from shared memory: "+what, "server", s.name, "err", err)
	}
}

// errDisk is a folder that does not lie in memory.
var errDisk = errors.New("it does not lie in shared memory")

// listStaged are the files of weights of a version's folder, which must lie in memory.
func listStaged(dir string) ([]StagedFile, error) {
	if !consumers.InMemory(dir) {
		return nil, fmt.Errorf("%s: %w", dir, errDisk)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []StagedFile
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".safetensors") {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		system, is := info.Sys().(*syscall.Stat_t)
		if !is {
			return nil, fmt.Errorf("%s: its inode is not known on this system", e.Name())
		}
		files = append(files, StagedFile{Name: e.Name(), Size: info.Size(), Modified: info.ModTime().UnixNano(), Inode: system.Ino})
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no weights", dir)
	}
	return files, nil
}
