//go:build amd64 || arm64

package sandbox

import (
	"bytes"
	"cmp"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Descriptors of a program in a sandbox beside the standard streams.
const (
	// ControlFD is the program's end of [Process.Control].
	ControlFD = 3
	fdFilter  = 4 // and these are bwrap's alone: it closes them before the program starts
	fdInfo    = 5
	fdBlock   = 6
	fdFiles   = 7
)

// Defences that a launch can leave out, so that a test can see the effect of each.
const (
	withoutFilter     = "filter"
	withoutReadOnly   = "read-only"
	withoutSizes      = "sizes"
	withoutLimits     = "limits"
	withoutEnv        = "env"
	withoutNoNew      = "no-new-privs"
	withoutUID        = "uid"
	withoutCloseExec  = "close-on-exec"
	withoutDisableNew = "disable-userns"
	withoutNetwork    = "network"
	// withoutNewer, before a version, leaves out the restrictions of later versions of Landlock; it may follow withoutFilter.
	withoutNewer = " landlock "
)

// insideUID is the user that programs see themselves as.
const insideUID = "65534"

// bwrapArgv is the command line of tier full. docs/sandbox.md and the tests of this package explain each part.
func bwrapArgv(l *launch) []string {
	argv := []string{"bwrap", "--unshare-all", "--unshare-user"}
	if l.Without != withoutDisableNew {
		argv = append(argv, "--disable-userns")
	}
	if l.Without == withoutNetwork {
		argv = append(argv, "--share-net")
	}
	argv = append(argv, "--die-with-parent", "--new-session", "--clearenv", "--args", strconv.Itoa(fdFiles+len(l.Files)))
	argv = append(argv, "--hostname", "sandbox", "--uid", insideUID, "--gid", insideUID, "--cap-drop", "ALL")
	argv = append(argv, systemBinds()...)
	argv = append(argv, l.bindFiles(false)...)
	argv = append(argv, "--proc", "/proc", "--dev", "/dev")
	argv = append(argv, tmpfsArgs(l, l.Limits.Shared, "/dev/shm")...)
	argv = append(argv, tmpfsArgs(l, l.Limits.Disk, "/tmp")...)
	argv = append(argv, l.bindFiles(true)...) // a folder below the machine's /tmp would be hidden by the sandbox's own
	for i, name := range l.Files {
		for _, dir := range parentFolders(name) {
			argv = append(argv, "--dir", path.Join("/tmp", dir))
		}
		argv = append(argv, "--file", strconv.Itoa(fdFiles+i), path.Join("/tmp", name))
	}
	if l.Without != withoutReadOnly {
		argv = append(argv, "--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/")
	}
	argv = append(argv, "--chdir", cmp.Or(l.Dir, "/tmp"), "--info-fd", strconv.Itoa(fdInfo), "--block-fd", strconv.Itoa(fdBlock))
	if l.Without != withoutFilter {
		argv = append(argv, "--add-seccomp-fd", strconv.Itoa(fdFilter))
	}
	if l.First {
		argv = append(argv, "--as-pid-1")
	}
	argv = append(argv, "--")
	if l.Port > 0 {
		argv = append(argv, doorArgv(l)...)
	}
	return append(argv, l.Argv...)
}

// setVariables are further arguments, which set the environment: the machine's other users can read the command line, and not these.
func setVariables(l *launch) []byte {
	var b bytes.Buffer
	for _, pair := range programEnv(l.Env, "/tmp") {
		key, value, _ := strings.Cut(pair, "=")
		b.WriteString("--setenv\x00" + key + "\x00" + value + "\x00")
	}
	return b.Bytes()
}

// bindFiles shows the program files and folders of the machine: those below /tmp, or the others.
func (l *launch) bindFiles(belowTmp bool) []string {
	var argv []string
	for _, inside := range sortedKeys(l.Binds) {
		if withinAny(inside, "/tmp") == belowTmp {
			argv = append(argv, "--ro-bind", l.Binds[inside], inside)
		}
	}
	return argv
}

func tmpfsArgs(l *launch, size int64, at string) []string {
	if l.Without == withoutSizes {
		return []string{"--tmpfs", at}
	}
	return []string{"--size", strconv.FormatInt(size, 10), "--tmpfs", at}
}

// systemBinds binds the machine's programs and libraries, and nothing of /var, /run or /home; of /etc only the files by which
// libraries are found.
func systemBinds() []string {
	argv := []string{"--ro-bind", "/usr", "/usr"}
	for _, dir := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		target, err := os.Readlink(dir)
		switch {
		case err == nil:
			argv = append(argv, "--symlink", strings.TrimPrefix(target, "/"), dir)
		case pathExists(dir):
			argv = append(argv, "--ro-bind", dir, dir)
		}
	}
	for _, file := range systemFiles {
		argv = append(argv, "--ro-bind-try", file, file)
	}
	return argv
}

func pathExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// programEnv is the whole environment of a program; its own variables come last.
func programEnv(own []string, home string) []string {
	return append([]string{"PATH=" + strings.Join(programDirs, ":"), "HOME=" + home, "TMPDIR=" + home, "LANG=C.UTF-8"}, own...)
}

// parentFolders are the folders of a relative name, outermost first.
func parentFolders(name string) []string {
	var out []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		out = append(out, dir)
	}
	slices.Reverse(out)
	return out
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
