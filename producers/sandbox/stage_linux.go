//go:build amd64 || arm64

package sandbox

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// Descriptors of the stage beside its program's: it reads its launch from fdLaunch, and writes to fdBegun when it has done its part.
const (
	fdLaunch = 4
	fdBegun  = 5
)

// stageEnv is the stage's own environment: a runtime that interrupts a goroutine allocates.
const stageEnv = "GODEBUG=asyncpreemptoff=1"

// execStage starts a program without namespaces: by way of the stage, which limits itself and becomes the program, or by the operator's
// command line.
func (k *keeper) execStage(s *kept, files []*os.File) (func(), error) {
	l := s.launch
	dir, err := newDir(l, files[4:])
	s.dir = dir
	if err != nil {
		return nil, err
	}
	l.Env = programEnv(l.Env, dir)
	attr := &syscall.ProcAttr{Dir: cmp.Or(l.Dir, dir), Env: l.Env, Files: descriptorNumbers(files[:4]), Sys: outerAttributes(l)}
	name, argv := "/proc/self/exe", []string{stageName}
	if l.Tier == TierCommand {
		attr.Sys.Credential = nil
		argv = expandCommand(l, dir)
		name = argv[0]
	} else {
		text, err := json.Marshal(l)
		if err != nil {
			return nil, err
		}
		spec, err := fileOf(text)
		if err != nil {
			return nil, err
		}
		defer spec.Close()
		begun, begins, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		s.begun = begun
		defer begins.Close()
		attr.Files, attr.Env = append(attr.Files, spec.Fd(), begins.Fd()), []string{stageEnv}
	}
	if s.outer, err = syscall.ForkExec(name, argv, attr); err != nil {
		if s.begun != nil {
			_ = s.begun.Close()
		}
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	s.first = s.outer
	if s.pidfd, err = unix.PidfdOpen(s.outer, 0); err != nil {
		s.pidfd = -1
		_ = unix.Kill(s.outer, unix.SIGKILL) // our child, not waited for
	}
	return func() {
		if s.hasBegun() {
			k.sendEvent(event{Kind: eventStarted, ID: s.id, Pid: s.first})
		}
	}, nil
}

// hasBegun waits until the stage has done its part, and reports false where it ended before: it never became the program.
func (s *kept) hasBegun() bool {
	if s.begun == nil {
		return true // an operator's command, which has no stage
	}
	defer s.begun.Close()
	n, _ := s.begun.Read(make([]byte, 1)) // at the stage's end its descriptor closes
	return n > 0
}

// uidPlaceholder is in an operator's command line that gives the program a user of its own.
const uidPlaceholder = "{uid}"

// expandCommand puts the program into the operator's command line. {tmp} in it is the folder that stands for /tmp, {uid} the
// user that owns the folder.
func expandCommand(l *launch, dir string) []string {
	uid := l.UID
	if uid == 0 {
		uid = os.Getuid()
	}
	with := strings.NewReplacer("{tmp}", dir, uidPlaceholder, strconv.Itoa(uid))
	var out []string
	for _, word := range l.Command {
		if word == Placeholder {
			out = append(out, l.Argv...)
			continue
		}
		out = append(out, with.Replace(word))
	}
	return out
}

// ownsFolder reports whether the sandbox's folder is to be its user's: an operator's command that names no user runs as this process's.
func (l *launch) ownsFolder() bool {
	return l.UID != 0 && (l.Tier != TierCommand || slices.ContainsFunc(l.Command, func(word string) bool { return strings.Contains(word, uidPlaceholder) }))
}

// newDir makes the folder that stands for /tmp, with the launch's files.
func newDir(l *launch, files []*os.File) (string, error) {
	dir, err := os.MkdirTemp("", "weir-sandbox-")
	if err != nil {
		return "", err
	}
	own := func(name string) error {
		if !l.ownsFolder() {
			return nil
		}
		return os.Lchown(name, l.UID, l.UID)
	}
	if err := own(dir); err != nil {
		return dir, err
	}
	for i, name := range l.Files {
		for _, parent := range parentFolders(name) {
			if err := os.Mkdir(filepath.Join(dir, parent), 0o700); err != nil && !os.IsExist(err) {
				return dir, err
			}
			if err := own(filepath.Join(dir, parent)); err != nil {
				return dir, err
			}
		}
		to, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
		if err != nil {
			return dir, err
		}
		_, err = to.ReadFrom(files[i])
		_ = to.Close()
		if err == nil {
			err = own(to.Name())
		}
		if err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// stageMain is the program between the keeper and a program that runs without namespaces.
func stageMain() int {
	runtime.LockOSThread() // the filter belongs to the thread, and this thread becomes the program
	debug.SetGCPercent(-1) // nothing else is to allocate beyond the limit of memory
	fail := func(doing string, err error) int {
		fmt.Fprintf(os.Stderr, "weir: sandbox: %s: %v\n", doing, err)
		return 126
	}
	failProgram := func(doing string, err error) int {
		_, _ = unix.Write(fdBegun, []byte{1}) // what is left is the program's own fault
		return fail(doing, err)
	}
	var l launch
	spec := os.NewFile(fdLaunch, "launch")
	if err := json.NewDecoder(spec).Decode(&l); err != nil {
		return fail("read what to start", err)
	}
	_ = spec.Close()
	_ = unix.CloseRange(4, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	name, err := lookIn(l.Argv[0])
	if err != nil {
		return failProgram("find the program", err)
	}
	// Orphans of the program stay with it while it lives, and come to the keeper, which ends them, when it has ended.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fail("become a subreaper", err)
	}
	killFirst(os.Getpid())
	version := l.landlockVersion()
	if l.Tier == TierLandlock {
		if err := restrictFiles(&l, version); err != nil {
			return fail("restrict the file system", err)
		}
	}
	if l.Without != withoutNoNew {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fail("give up new privileges", err)
		}
	}
	last, err := prepareLast(name, l.Argv, l.Env, l.Limits)
	if err != nil {
		return failProgram("name the program", err)
	}
	last.begins = 1
	if l.Tier == TierLandlock && !strings.HasPrefix(l.Without, withoutFilter) {
		filter := newFilter(sockets{}, machineFiles{landlock: version, owned: l.UID == 0})
		last.filter = unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	}
	if err := setLimits(0, l.ownLimits()); err != nil {
		return fail("set limits", err)
	}
	doing, errno := last.become()
	return fail(doing+name, errno)
}

// ownLimits are the limits that hold without a user namespace, but that of memory, which is the last. The number of a user's processes
// cannot be bounded where others have the user too.
func (l *launch) ownLimits() []rlimit {
	var out []rlimit
	for _, limit := range l.Limits.processLimits(0) {
		if limit.resource != unix.RLIMIT_AS && (limit.resource != unix.RLIMIT_NPROC || l.UID > 0) {
			out = append(out, limit)
		}
	}
	return out
}

// restrictFiles leaves the program the machine's programs to read and its own folder to write. It is refused where the kernel has no Landlock:
// BestEffort alone would then restrict nothing.
func restrictFiles(l *launch, version int) error {
	if version < 1 {
		return fmt.Errorf("this kernel has no Landlock: %w", unix.ENOSYS)
	}
	dir := ""
	for _, pair := range l.Env {
		if value, ok := strings.CutPrefix(pair, "TMPDIR="); ok {
			dir = value
			break
		}
	}
	rules := []landlock.Rule{
		landlock.RODirs("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.conf.d").IgnoreIfMissing(),
		landlock.ROFiles("/etc/ld.so.cache", "/etc/ld.so.conf", "/dev/urandom", "/dev/random", "/dev/zero").IgnoreIfMissing(),
		landlock.RWFiles("/dev/null").IgnoreIfMissing(),
		landlock.RWDirs(dir),
	}
	for _, outside := range l.Binds {
		if info, err := os.Stat(outside); err == nil && info.IsDir() {
			rules = append(rules, landlock.RODirs(outside))
		} else {
			rules = append(rules, landlock.ROFiles(outside))
		}
	}
	return landlocks[version-1].BestEffort().Restrict(rules...)
}

// landlocks are all that each version of Landlock governs, from version 1 on.
var landlocks = [...]landlock.Config{
	landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5, landlock.V6,
	landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11,
}

// landlockVersion is the version of Landlock that restricts the program, 0 where the kernel has none.
func (l *launch) landlockVersion() int {
	version := min(landlockVersion(), len(landlocks))
	if _, text, ok := strings.Cut(l.Without, withoutNewer); ok {
		last, _ := strconv.Atoi(text) // of a test
		version = min(version, last)
	}
	return version
}

// landlockVersion is the kernel's, 0 where it has none.
func landlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}
