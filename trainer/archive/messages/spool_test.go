package messages

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errAway = errors.New("the store is away")

// remoteFolder is a remote store in a folder, which may fail before or after it has done what it was asked.
type remoteFolder struct {
	Folder
	mu sync.Mutex
	// fault says how the next call that writes fails: "" not at all; nil is no fault.
	fault func() string
	// away has every call fail; late hides the named segments from lists.
	away bool
	late map[string]bool
	// lists and puts count calls.
	lists, puts int
	removed     []string
}

func (r *remoteFolder) callFault() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.away:
		return "before"
	case r.fault != nil:
		return r.fault()
	}
	return ""
}

func (r *remoteFolder) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *remoteFolder) List() ([]Stored, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists++
	if r.away {
		return nil, errAway
	}
	all, err := r.Folder.List()
	return slices.DeleteFunc(all, func(s Stored) bool { return r.late[s.Name] }), err
}

func (r *remoteFolder) Put(name string, data []byte) error {
	r.set(func() { r.puts++ })
	fault := r.callFault()
	if fault == "before" {
		return errAway
	}
	path := filepath.Join(r.Dir, name)
	if err := errors.Join(os.MkdirAll(r.Dir, 0o755), os.WriteFile(path+tmpEnding, data, 0o600), os.Rename(path+tmpEnding, path)); err != nil {
		return err
	}
	if fault == "after" {
		return errAway
	}
	return nil
}

func (r *remoteFolder) Claim(id string, take bool) (string, error) {
	return ClaimMark(r, id, take, r.Put)
}

func (r *remoteFolder) Remove(name string) error {
	fault := r.callFault()
	if fault == "before" {
		return errAway
	}
	r.set(func() { r.removed = append(r.removed, name) })
	if err := r.Folder.Remove(name); err != nil || fault == "" {
		return err
	}
	return errAway
}

func (r *remoteFolder) Open(name string) (Blob, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return nil, errAway
	}
	return r.Folder.Open(name)
}

// startSpool opens a Spool that tries again soon, of a run whose the remote store is.
func startSpool(t require.TestingT, dir string, remote Store, cfg SpoolConfig) *Spool {
	s := startUnknown(t, dir, remote, cfg)
	s.noteOwn("")
	return s
}

// startUnknown opens a Spool that tries again soon. Whose the remote store is is not known yet.
func startUnknown(t require.TestingT, dir string, remote Store, cfg SpoolConfig) *Spool {
	if cfg.Bytes == 0 {
		cfg.Bytes = 64 << 20
	}
	s, err := openSpool(Folder{dir, true}, remote, cfg, slog.New(slog.DiscardHandler), pauses{time.Millisecond, 4 * time.Millisecond})
	require.NoError(t, err)
	return s
}

// killSpool ends a Spool as a kill does: what it does at the moment may be done or not.
func killSpool(s *Spool) {
	s.mu.Lock()
	s.stopped = true
	close(s.stop)
	s.mu.Unlock()
	<-s.ended
}

// awaitSpool returns when a condition holds, which is asked under the lock.
func awaitSpool(t require.TestingT, s *Spool, holds func() bool) {
	passed := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		done, changed := holds(), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-time.After(5 * time.Millisecond): // a failure is no change
		case <-passed:
			require.Fail(t, "the spool did not come to it")
			return
		}
	}
}

func storedNames(t require.TestingT, store Segments) []string {
	all, err := store.List()
	require.NoError(t, err)
	var out []string
	for _, s := range all {
		if _, ok := parseName(s.Name); ok {
			out = append(out, s.Name)
		}
	}
	slices.Sort(out)
	return out
}

// Invariant: a segment leaves the spool only after the bucket has confirmed it.
func TestInvariantASegmentLeavesTheSpoolOnlyAfterTheBucketHasConfirmedIt(t *testing.T) {
	t.Parallel()
	root, checks := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		checks++
		dir := filepath.Join(root, strconv.Itoa(checks))
		folder := Folder{filepath.Join(dir, "spool"), true}
		remote := &remoteFolder{Folder: Folder{filepath.Join(dir, "bucket"), true}}
		faults := rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "before", "after"}), 0, 12).Draw(t, "faults")
		remote.fault = func() string {
			if len(faults) == 0 {
				return ""
			}
			next := faults[0]
			faults = faults[1:]
			return next
		}
		m := spoolModel{want: map[string]string{}, gone: map[string]bool{}}
		for range rapid.IntRange(1, 4).Draw(t, "starts") {
			delay := time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * time.Millisecond
			s := startSpool(t, folder.Dir, remote, SpoolConfig{Delay: delay})
			m.requireKept(t, s)
			for range rapid.IntRange(0, 6).Draw(t, "calls") {
				m.act(t, s, rapid.SampledFrom([]string{"put", "put", "join", "drop"}).Draw(t, "call"))
			}
			if rapid.Bool().Draw(t, "killed") {
				killSpool(s)
			} else {
				require.NoError(t, s.Close())
			}
			m.requireKept(t, Spooled{folder, remote})
		}
		remote.set(func() { faults = nil })
		require.NoError(t, startSpool(t, folder.Dir, remote, SpoolConfig{}).Close())
		m.requireKept(t, remote.Folder) // the bucket alone
		left, err := folder.List()
		require.NoError(t, err)
		for _, of := range left {
			require.Equal(t, sentEnding, filepath.Ext(of.Name))
		}
	})
}

// spoolModel is what a Spool is to keep.
type spoolModel struct {
	next uint64
	// names are those of want in order; gone are the names that were removed, which a kill may bring back.
	names []string
	want  map[string]string
	gone  map[string]bool
}

func (m *spoolModel) put(t require.TestingT, s *Spool, name, data string) {
	require.NoError(t, s.Put(name, []byte(data)))
	m.names, m.want[name] = append(m.names, name), data
}

func (m *spoolModel) remove(t require.TestingT, s *Spool, at int) {
	name := m.names[at]
	require.NoError(t, s.Remove(name))
	delete(m.want, name)
	m.gone[name], m.names = true, slices.Delete(m.names, at, at+1)
}

// act does what an archive does with its store.
func (m *spoolModel) act(t require.TestingT, s *Spool, call string) {
	n := len(m.names)
	switch {
	case call == "put":
		m.next++
		p := place{born.UnixNano(), 0, Span{m.next - 1, m.next}}
		m.put(t, s, p.segmentName(), p.segmentName()+" data")
	case call == "join" && n >= 2:
		x, y := m.names[n-2], m.names[n-1]
		release, here := s.Hold(x, y)
		if !here {
			return
		}
		defer release()
		first, _ := parseName(x)
		last, _ := parseName(y)
		first.Last = last.Last
		m.put(t, s, first.segmentName(), m.want[x]+m.want[y])
		m.remove(t, s, n-2)
		m.remove(t, s, n-2)
	case call == "drop" && n > 0:
		m.remove(t, s, 0)
	}
}

func (m *spoolModel) requireKept(t require.TestingT, store Segments) {
	all, err := store.List()
	require.NoError(t, err)
	have := map[string]string{}
	for _, of := range all {
		if _, ok := parseName(of.Name); !ok || m.gone[of.Name] {
			continue
		}
		blob, err := store.Open(of.Name)
		require.NoError(t, err)
		data := make([]byte, blob.Size())
		_, err = blob.ReadAt(data, 0)
		require.NoError(t, errors.Join(err, blob.Close()))
		have[of.Name] = string(data)
	}
	require.Equal(t, m.want, have)
}

// segmentOf is a segment of a size under the name of a sequence.
func segmentOf(sequence uint64, size int) (string, []byte) {
	return place{born.UnixNano(), 0, Span{sequence - 1, sequence}}.segmentName(), make([]byte, size)
}

func TestAFullSpoolRefusesOrWaitsUntilTheBucketIsBack(t *testing.T) {
	t.Parallel()
	remote := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
	dir := t.TempDir()
	s := startSpool(t, dir, remote, SpoolConfig{Bytes: 250})
	remote.set(func() { remote.away = true })
	for i := range uint64(2) {
		require.NoError(t, s.AwaitRoom(t.Context(), 100, nil))
		require.NoError(t, s.Put(segmentOf(i+1, 100)))
	}
	require.NoError(t, s.AwaitRoom(t.Context(), 100, nil), "it does not wait unless it is told to")
	err := s.Put(segmentOf(3, 100))
	require.ErrorIs(t, err, ErrSpoolFull)
	awaitSpool(t, s, func() bool { return s.failure != nil })
	require.ErrorIs(t, s.Put(segmentOf(3, 100)), errAway, "the reason is named")
	require.Len(t, storedNames(t, Folder{Dir: dir}), 2, "what was kept stays")
	require.NoError(t, s.Close())

	remote.set(func() { remote.away = false })
	s = startSpool(t, t.TempDir(), remote, SpoolConfig{Bytes: 250, Wait: true})
	remote.set(func() { remote.away = true })
	require.NoError(t, s.Put(segmentOf(4, 200)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.AwaitRoom(ctx, 100, nil), context.DeadlineExceeded)
	waited := make(chan error)
	told := make(chan error, 1) // once a wait
	go func() { waited <- s.AwaitRoom(t.Context(), 100, func(err error) { told <- err }) }()
	require.ErrorIs(t, <-told, ErrSpoolFull)
	remote.set(func() { remote.away = false })
	require.NoError(t, <-waited)
	require.NoError(t, s.AwaitRoom(t.Context(), 1, func(err error) { told <- err }))
	require.Empty(t, told, "there is room")
	require.NoError(t, s.Put(segmentOf(5, 100)))
	require.NoError(t, s.Close())
}

// A bucket that takes nothing delays no caller, is asked for no list, and gets everything in the end, oldest first.
func TestABucketThatIsAwayDelaysNobody(t *testing.T) {
	t.Parallel()
	remote := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
	dir := t.TempDir()
	var sent []error
	var waiting int64
	s := startSpool(t, dir, remote, SpoolConfig{Sent: func(err error) { sent = append(sent, err) }, Waiting: func(n int64) { waiting = n }})
	remote.set(func() { remote.away = true })
	stream := &memoryStream{messages: map[uint64]Message{}}
	a, err := Open(s, Config{Bytes: 1 << 20}, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for range 30 {
		stream.publish(trajectoryBytes(t, "g000001-a0-0", 30))
		_, err := a.Keep(t.Context(), stream, stream.last)
		require.NoError(t, err)
	}
	require.NoError(t, a.Close())
	awaitSpool(t, s, func() bool { return s.failure != nil })
	remote.set(func() { require.Equal(t, 1, remote.lists); remote.away = false })
	require.Len(t, readAll(t, Spooled{Folder{Dir: dir}, remote}), 30)
	require.NoError(t, s.Close())
	require.Len(t, readAll(t, remote.Folder), 30)
	require.Zero(t, waiting)
	require.ErrorIs(t, sent[0], errAway)
	require.NoError(t, sent[len(sent)-1])
}

// Only segments that wait here are joined: a segment that was sent, or is on its way, is neither read back nor removed.
func TestOnlySegmentsThatWaitAreJoined(t *testing.T) {
	t.Parallel()
	remote := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
	s := startSpool(t, t.TempDir(), remote, SpoolConfig{Delay: time.Hour})
	keep := func(a *Archive, stream *memoryStream, n int) {
		for range n {
			stream.publish(trajectoryBytes(t, "g000001-a0-0", 30))
			_, err := a.Keep(t.Context(), stream, stream.last)
			require.NoError(t, err)
		}
	}
	stream := &memoryStream{messages: map[uint64]Message{}}
	a, err := Open(s, Config{Bytes: 1 << 30}, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	keep(a, stream, 8)
	require.Less(t, len(storedNames(t, s)), 8)
	before := storedNames(t, s)
	remote.set(func() { require.Zero(t, remote.puts) })
	s.mu.Lock()
	s.cfg.Delay = 0
	s.noteChange()
	s.mu.Unlock()
	awaitSpool(t, s, func() bool { return len(s.waiting) == 0 })
	s.mu.Lock()
	s.cfg.Delay = time.Hour
	s.mu.Unlock()
	keep(a, stream, 8)
	require.Subset(t, storedNames(t, s), before)
	require.Empty(t, remote.removed)
	require.NoError(t, a.Close())
	require.NoError(t, s.Close())
	require.Len(t, readAll(t, remote.Folder), 16)
}

// A bucket that lists late, or lists what was removed, changes nothing about what is kept; an object that somebody has removed is named.
func TestALateListIsNotBelievedAndALostObjectIsNamed(t *testing.T) {
	t.Parallel()
	remote := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
	dir := t.TempDir()
	stream := &memoryStream{messages: map[uint64]Message{}}
	keep := func(s *Spool, n int) *Archive {
		a, err := Open(s, Config{Bytes: 1 << 30}, Owner{Run: "r"}, Life{Created: born}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		for range n {
			stream.publish(trajectoryBytes(t, "g000001-a0-0", 30))
		}
		_, err = a.Keep(t.Context(), stream, stream.last)
		require.NoError(t, err)
		require.NoError(t, a.Close())
		require.NoError(t, s.Close())
		clear(stream.messages)
		stream.purged = stream.last
		return a
	}
	keep(startSpool(t, dir, remote, SpoolConfig{}), 3)
	keep(startSpool(t, dir, remote, SpoolConfig{}), 3)
	names := storedNames(t, remote.Folder)
	require.Len(t, names, 2)
	remote.late = map[string]bool{names[1]: true}
	a := keep(startSpool(t, dir, remote, SpoolConfig{}), 3)
	require.Empty(t, a.gaps, "messages 4 to 6 are not taken for lost")
	remote.late = map[string]bool{names[0]: true, names[1]: true}
	require.Len(t, readAll(t, Spooled{Folder{Dir: dir}, remote}), 9)
	remote.late = nil
	require.NoError(t, remote.Folder.Remove(names[2-1]))
	found, err := Verify(Spooled{Folder{Dir: dir}, remote})
	require.NoError(t, err)
	require.Len(t, found.Damage, 1)
	require.Equal(t, names[1], found.Damage[0].Segment)
	_, err = Find(Spooled{Folder{Dir: dir}, remote}, "g000009-a0-0")
	require.ErrorIs(t, err, ErrNotKept)
	// A list that has a removed name for good does not hold a reader up.
	ghost := &ghostList{Folder: remote.Folder, name: names[1]}
	_, err = Find(ghost, "g000009-a0-0")
	require.ErrorIs(t, err, ErrNotKept)
	require.Len(t, readAll(t, ghost), 6)
}

// ghostList lists a name that is not there.
type ghostList struct {
	Folder
	name string
}

func (g *ghostList) List() ([]Stored, error) {
	all, err := g.Folder.List()
	return append(all, Stored{Name: g.name, Size: 1}), err
}

// A start whose bucket is away goes on by what this disk knows; a start on a disk that knows nothing does not.
func TestAStartWithoutTheBucket(t *testing.T) {
	t.Parallel()
	remote := &remoteFolder{Folder: Folder{Dir: t.TempDir()}, away: true}
	dir := t.TempDir()
	_, err := OpenSpool(Folder{Dir: dir}, remote, SpoolConfig{}, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, errAway)
	remote.away = false
	s := startSpool(t, dir, remote, SpoolConfig{})
	name, data := segmentOf(5, 10)
	require.NoError(t, s.Put(name, data))
	require.NoError(t, s.Close())
	require.Equal(t, []string{name}, storedNames(t, remote.Folder))
	remote.away = true
	s = startSpool(t, dir, remote, SpoolConfig{})
	require.Equal(t, []string{name}, storedNames(t, s))
	require.NoError(t, s.Close())
}

// A full bucket is made room in: what is to be removed does not wait behind what is to be put.
func TestAFullBucketIsMadeRoomIn(t *testing.T) {
	t.Parallel()
	remote := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
	dir := t.TempDir()
	s := startSpool(t, dir, remote, SpoolConfig{})
	first, data := segmentOf(1, 10)
	require.NoError(t, s.Put(first, data))
	awaitSpool(t, s, func() bool { return len(s.waiting) == 0 })
	remote.set(func() {
		remote.fault = func() string {
			if len(remote.removed) == 0 && remote.puts > 1 {
				return "before"
			}
			return ""
		}
		remote.puts = 1
	})
	second, data := segmentOf(2, 10)
	require.NoError(t, s.Put(second, data))
	awaitSpool(t, s, func() bool { return s.failure != nil })
	remote.set(func() { remote.puts = 0 })
	require.NoError(t, s.Remove(first))
	awaitSpool(t, s, func() bool { return len(s.waiting) == 0 && len(s.removals) == 0 })
	require.Equal(t, []string{second}, storedNames(t, remote.Folder))
	require.NoError(t, s.Close())
	left, err := Folder{Dir: dir}.List()
	require.NoError(t, err)
	require.Len(t, left, 1, "the file that says so goes with the segment")
}

// A segment that is removed, or put again, while it is on its way.
func TestASegmentThatChangesOnItsWay(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		remote := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
		asked, on := make(chan struct{}), make(chan struct{})
		slow := &slowStore{remoteFolder: remote, asked: asked, on: on}
		dir := t.TempDir()
		s := startSpool(t, dir, slow, SpoolConfig{})
		name, data := segmentOf(1, 10)
		require.NoError(t, s.Put(name, data))
		<-asked
		_, here := s.Hold(name)
		require.False(t, here, "it is on its way")
		if again {
			require.NoError(t, s.Put(name, []byte("again")))
		} else {
			require.NoError(t, s.Remove(name))
		}
		close(on)
		awaitSpool(t, s, func() bool { return len(s.waiting)+len(s.removals) == 0 })
		require.NoError(t, s.Close())
		want := map[string]int64{}
		if again {
			want[name] = 5
		}
		all, err := remote.Folder.List()
		require.NoError(t, err)
		have := map[string]int64{}
		for _, of := range all {
			have[of.Name] = of.Size
		}
		require.True(t, maps.Equal(want, have), have)
	}
}

// slowStore says when it is asked, and waits.
type slowStore struct {
	*remoteFolder
	asked, on chan struct{}
	once      sync.Once
}

func (s *slowStore) Put(name string, data []byte) error {
	s.once.Do(func() { close(s.asked) })
	<-s.on
	return s.remoteFolder.Put(name, data)
}

func TestAFolderIsMovedIntoABucket(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keepMany(t, dir, Config{Bytes: 1 << 30}, 20, 30)
	remote := &remoteFolder{Folder: Folder{Dir: t.TempDir()}}
	require.NoError(t, startSpool(t, dir, remote, SpoolConfig{}).Close())
	require.Len(t, readAll(t, remote.Folder), 30)
}

func TestConfigOfABucket(t *testing.T) {
	t.Parallel()
	good := S3Config{SpoolBytes: 1 << 20}
	for dir, want := range map[string][2]string{
		"s3://bucket": {"bucket", ""}, "s3://bucket/": {"bucket", ""}, "s3://bucket/a/b": {"bucket", "a/b"},
		"s3://my.bucket-1/a/": {"my.bucket-1", "a"},
	} {
		c := Config{Bytes: 1 << 20, Dir: dir, S3: good}
		require.NoError(t, c.Validate(), dir)
		name, prefix := c.Bucket()
		require.Equal(t, want, [2]string{name, prefix}, dir)
	}
	for _, dir := range []string{
		"s3://", "s3:///a", "s3://b", "s3://bucket/a//b", "s3://bucket/../b", "s3://key:secretword@bucket/a",
		"s3://bucket/a?x=secretword", "s3://b@d/secretword",
	} {
		err := Config{Bytes: 1 << 20, Dir: dir, S3: good}.Validate()
		require.ErrorContains(t, err, "dir", dir)
		require.NotContains(t, err.Error(), "secretword")
	}
	for _, endpoint := range []string{
		"minio:9000", "ftp://x", "http://", "https://key:secretword@host", "https://host/bucket", "https://host?x=1",
	} {
		err := Config{Bytes: 1 << 20, Dir: "s3://bucket", S3: S3Config{SpoolBytes: 1 << 20, Endpoint: endpoint}}.Validate()
		require.ErrorContains(t, err, "s3.endpoint", endpoint)
		require.NotContains(t, err.Error(), "secretword")
	}
	require.ErrorContains(t, Config{Bytes: 1 << 20, Dir: "s3://bucket"}.Validate(), "s3.spool_bytes")
	require.Contains(t, Config{Bytes: 1 << 20}.Unread("s3.region"), "dir")
	require.Empty(t, Config{Bytes: 1 << 20, Dir: "s3://bucket"}.Unread("s3.region"))
}
