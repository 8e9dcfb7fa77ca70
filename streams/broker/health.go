package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// How often the broker's store is examined, and the pauses between two starts of a server whose store failed.
const (
	examineEvery  = time.Second
	restartPause  = time.Second
	restartPauses = time.Minute
)

// roomNeeded is how many bytes must fit on the store's disk before a server whose store failed is started again.
const roomNeeded = 4 << 20

// Health is why the broker does not store messages; nil while it does. It is at most a second old.
func (b *Broker) Health() error {
	if err := b.health.Load(); err != nil {
		return *err
	}
	return nil
}

// tendServer watches the server until it ends. A server whose disk was full refuses every later write, also when there is room again: tend
// starts it again on the same store and ports as soon as a file can be written to the disk. Clients reconnect.
func (b *Broker) tendServer() {
	defer close(b.done)
	defer b.log.lines.Close()
	defer b.lock.releaseLock()
	for pause := restartPause; ; {
		s, began := b.server.Load(), time.Now()
		ended := make(chan struct{})
		go func() {
			s.WaitForShutdown()
			close(ended)
		}()
		again := b.watchHealth(s, ended, pause)
		s.Shutdown()
		<-ended
		if !again {
			return
		}
		err := b.startAgain()
		select {
		case <-b.stopping: // which ended the start, if it failed
			if err == nil {
				b.server.Load().Shutdown()
				b.server.Load().WaitForShutdown()
			}
			return
		default:
		}
		if err != nil {
			b.log.log.Error("the broker's store has room again, and the broker could not be started on it", "err", err)
			b.log.keepFault(err)
			return
		}
		b.log.log.Info("the broker's store has room again: the broker was started again", "store", b.config.StoreDir)
		if pause = min(2*pause, restartPauses); time.Since(began) > 2*restartPauses {
			pause = restartPause
		}
	}
}

// startAgain starts the server as startServer does, unless Shutdown is called meanwhile.
func (b *Broker) startAgain() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan struct{})
	defer close(started)
	go func() {
		select {
		case <-b.stopping:
			cancel()
		case <-started:
		}
	}()
	return b.startServer(ctx)
}

// watchHealth returns true when the server must be started again, and false when it ends.
func (b *Broker) watchHealth(s *server.Server, ended <-chan struct{}, pause time.Duration) bool {
	tick := time.NewTicker(examineEvery)
	defer tick.Stop()
	var failedAt time.Time
	for {
		select {
		case <-b.stopping:
			return false
		case <-ended:
			return false
		case <-tick.C:
		}
		err := b.examineHealth(s)
		more := errors.Is(err, errMoreRoom)
		if more {
			b.noteHealth(nil) // meanwhile it stores
		} else {
			b.noteHealth(err)
		}
		if !more && !errors.Is(err, errStoreFailed) {
			failedAt = time.Time{}
			continue
		}
		if failedAt.IsZero() {
			failedAt = time.Now()
		}
		if time.Since(failedAt) >= pause && checkDiskRoom(b.config.StoreDir) == nil {
			return true
		}
	}
}

// noteHealth keeps the result of an examination, and logs it when it changes.
func (b *Broker) noteHealth(err error) {
	before := b.Health()
	b.health.Store(&err)
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		b.log.log.Error("the broker does not store what it is sent", "err", err)
	case err == nil && before != nil && !b.full:
		b.log.log.Info("the broker stores what it is sent again")
	}
}

var (
	// errStoreFailed is a store that refuses every write until the server is started again.
	errStoreFailed = errors.New("the store failed")
	// errMoreRoom is a store that stores, and has room for further streams once the server is started again.
	errMoreRoom = errors.New("the store may hold more")
)

// examineHealth reads the health of the server, and checks that the store is still on the disk.
func (b *Broker) examineHealth(s *server.Server) error {
	if err := b.lock.checkStore(); err != nil {
		return err
	}
	answer := &healthAnswer{header: http.Header{}}
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/healthz", http.NoBody)
	if err != nil {
		return err
	}
	s.HandleHealthz(answer, request)
	var status server.HealthStatus
	if err := json.Unmarshal(answer.body.Bytes(), &status); err != nil {
		return fmt.Errorf("ask the server for its health: %w", err)
	}
	switch {
	case status.Error == "":
		return b.examineBound(s)
	case isUnexamined(status.Error):
		return b.Health()
	case strings.Contains(status.Error, "write error"), !s.JetStreamEnabled():
		b.reserve = 0 // others filled the disk, and what they give back may be less than the reserve was
		return fmt.Errorf("%w: %s: free space on the disk of store_dir %q; the broker starts again by itself when there is room",
			errStoreFailed, status.Error, b.config.StoreDir)
	}
	return errors.New(status.Error)
}

// examineBound fails where another start has more room and the server's bound is in the way: the streams have used it up, which refuses
// every write, or a request was refused that may have been for a stream which sets more aside than is left. Where no start has more, it is
// told in the log alone: roles that free the streams must reach the broker.
func (b *Broker) examineBound(s *server.Server) error {
	j, err := s.Jsz(nil)
	if err != nil || j.Config.MaxStore <= 0 {
		b.full = false
		return nil //nolint:nilerr // a server that tells nothing has been examined
	}
	full, refused := j.Store >= uint64(j.Config.MaxStore), j.API.Errors != b.refusals //nolint:gosec // bytes of a disk
	tight := 2*j.ReservedStore > uint64(j.Config.MaxStore)                            //nolint:gosec // another such run finds no room
	if (full || tight && refused) && b.hasMoreRoom(j, full) {
		state := errMoreRoom
		if full {
			state = errStoreFailed
		}
		return fmt.Errorf("%w: the disk of store_dir %q has more room than when the server started", state, b.config.StoreDir)
	}
	b.refusals = j.API.Errors
	if !full {
		b.full = false
		return nil
	}
	if !b.full {
		b.log.log.Error("the streams hold all that they may, and the broker refuses what it is sent: free space on the disk of store_dir, "+
			"or raise max_store_bytes where it is set", "store", b.config.StoreDir, "bytes", j.Config.MaxStore)
	}
	b.full = true
	return nil
}

// hasMoreRoom reports whether another start of the server would have a larger bound: by roomNeeded where the bound is used up, else by an
// eighth, since a refused request alone is no reason to disturb a run.
func (b *Broker) hasMoreRoom(j *server.JSInfo, full bool) bool {
	if b.config.MaxStoreBytes > 0 {
		return false
	}
	bound, _, err := b.storeBound(int64(j.Store)) //nolint:gosec // bytes of a disk
	more := int64(roomNeeded)
	if !full {
		more = max(more, j.Config.MaxStore/8)
	}
	return err == nil && bound-j.Config.MaxStore >= more
}

// storeBound is how many bytes the streams may hold that hold so many: these, and the bytes that are free beside them but for a reserve.
// The reserve is a quarter of both, and at most half of the free bytes. While the disk does not fill up, the reserve never shrinks from
// start to start, so that streams which fill the bound leave it as it was: bound and reserve grow where others give bytes back, and then
// alone.
func (b *Broker) storeBound(used int64) (bound, reserve int64, err error) {
	left, err := diskFree(b.config.StoreDir)
	if err != nil {
		return 0, 0, err
	}
	free := int64(left) //nolint:gosec // bytes of a disk
	quarter := (used + free) / 4
	reserve = min(quarter, free/2)
	if b.reserve > 0 {
		reserve = max(b.reserve, min(quarter, (b.reserve+free)/2))
	}
	return max(1, used+free-reserve), max(1, reserve), nil
}

// storedBytes is how many bytes the files of a store have. A file that cannot be read is no stream's.
func storedBytes(dir string) (sum int64) {
	_ = filepath.WalkDir(dir, func(_ string, f fs.DirEntry, err error) error {
		if err != nil || f.IsDir() {
			return nil //nolint:nilerr // it is passed over
		}
		if info, err := f.Info(); err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum
}

// isUnexamined says that a server looked at none of its listeners, though it calls itself not ready: it gives itself a millisecond for
// that, and a busy machine gave it no processor for as long. A listener that is not ready is named.
func isUnexamined(fault string) bool {
	return strings.HasPrefix(fault, "failed to be ready for connections after ") && strings.HasSuffix(fault, ": ")
}

// healthAnswer takes the answer that the server would send over HTTP.
type healthAnswer struct {
	header http.Header
	body   bytes.Buffer
}

func (a *healthAnswer) Header() http.Header         { return a.header }
func (a *healthAnswer) Write(p []byte) (int, error) { return a.body.Write(p) }
func (a *healthAnswer) WriteHeader(int)             {}

// checkDiskRoom writes, syncs and removes a file of roomNeeded bytes. A process that is killed meanwhile leaves the file to the next look.
func checkDiskRoom(dir string) (err error) {
	f, err := os.Create(filepath.Join(dir, ".room"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := f.Write(make([]byte, roomNeeded)); err != nil {
		return err
	}
	return f.Sync()
}
