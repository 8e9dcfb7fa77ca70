package sandbox

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-rl/weir/internal/check"
)

// Program sets how a program of the operator's own runs, such as a server of tools or an agent. DefaultProgram has the
// defaults.
type Program struct {
	// Sandbox runs the program in a sandbox: it has no network, only the environment that it is given, and sees the machine's
	// programs and libraries, Dir and Binds. False runs it as this process's user, with its network and all files that the user
	// may read. Defaults to true.
	Sandbox bool `koanf:"sandbox"`
	// Dir is the folder that the program starts in, and sees. "" is an empty folder of the sandbox's own; without a sandbox it is
	// the folder that weir runs in. Defaults to "".
	Dir string `koanf:"dir"`
	// Binds are further files and folders that the program sees in its sandbox, at their own paths. It can read them, as it can Dir, and
	// change none. Defaults to none.
	Binds []string `koanf:"binds"`
	// Limits bound the sandbox; a limit of 0 is as in the section sandbox. memory, processes and open_files default to
	// 4294967296, 64 and 256: programs in Go reserve more address space than they use, and fetch of Node.js reserves
	// 17179869184.
	Limits Limits `koanf:"limits"`
}

// DefaultProgram runs in a sandbox with a folder of its own.
func DefaultProgram() Program {
	return Program{Sandbox: true, Limits: Limits{Memory: 4 << 30, Processes: 64, OpenFiles: 256}}
}

// Validate reports every fault.
func (p Program) Validate() error {
	faults := []error{
		check.Section("limits", p.Limits.Validate()),
		check.That(p.Sandbox || len(p.Binds) == 0, "binds", "%q: a program without a sandbox sees all files", p.Binds),
	}
	for _, bind := range p.Binds {
		inside, err := filepath.Abs(bind)
		faults = append(faults, check.That(bind != "" && err == nil && canShow(inside), "binds",
			"%q: want a file or folder beside /, /tmp, /proc and /dev, of which a sandbox has its own", bind))
	}
	if dir, err := filepath.Abs(p.Dir); p.Sandbox && p.Dir != "" {
		faults = append(faults, check.That(err == nil && canShow(dir), "dir", "%q: want a folder beside /, /tmp, /proc and /dev, of which a sandbox has its own", p.Dir))
	}
	return check.All(faults...)
}

// Spec is the program to start in a sandbox. If the program names a file that its sandbox does not show, the error names the
// setting that shows it.
func (p Program) Spec(argv, env []string) (Spec, error) {
	s := Spec{Argv: argv, Env: env, Limits: p.Limits, Binds: map[string]string{}}
	shown := slices.Clone(p.Binds)
	if p.Dir != "" {
		shown = append(shown, p.Dir)
	}
	for _, name := range shown {
		path, err := filepath.Abs(name)
		if err != nil {
			return Spec{}, fmt.Errorf("find %s: %w", name, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			return Spec{}, fmt.Errorf("show the program its files: %w", err)
		}
		// The file itself: a link on the way may lie in a folder that is closed to the sandbox's user.
		if s.Binds[path], err = filepath.EvalSymlinks(path); err != nil {
			return Spec{}, fmt.Errorf("show the program its files: %w", err)
		}
		if name == p.Dir {
			s.Dir = path
			if !info.IsDir() {
				return Spec{}, fmt.Errorf("dir: %s: not a folder", path)
			}
		}
	}
	if err := s.checkVisible(argv[0]); err != nil {
		return Spec{}, err
	}
	for _, word := range argv[1:] {
		info, err := os.Stat(word)
		named := err == nil && (info.Mode().IsRegular() || info.IsDir() && filepath.IsAbs(word) && canShow(filepath.Clean(word)))
		if named && !s.showsPath(word) {
			return Spec{}, fmt.Errorf("%s is on this machine and the program's sandbox does not show it: name it, or its folder, by dir or binds, or write sandbox: false", word)
		}
	}
	return s, nil
}

// checkVisible explains why the program itself cannot be started in the sandbox.
func (s Spec) checkVisible(program string) error {
	if !strings.Contains(program, "/") {
		if _, err := lookIn(program); err == nil {
			return nil
		}
		where := ""
		if path, err := exec.LookPath(program); err == nil {
			where = ", and it is " + path
		}
		return fmt.Errorf("%s: a sandbox finds programs in %s%s: write the whole path, and name its folder by binds, or write sandbox: false",
			program, strings.Join(programDirs, ", "), where)
	}
	if !s.showsPath(program) {
		return fmt.Errorf("%s: the program's sandbox does not show it: name its folder by dir or binds, or write sandbox: false", program)
	}
	path := program
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.Dir, path)
	}
	if real, err := filepath.EvalSymlinks(path); err != nil {
		return fmt.Errorf("find the program: %w", err)
	} else if !s.showsPath(real) && !slices.ContainsFunc(slices.Collect(maps.Values(s.Binds)), func(outside string) bool { return withinAny(real, outside) }) {
		return fmt.Errorf("%s is a link to %s, which the program's sandbox does not show: name its folder by binds, or write sandbox: false", program, real)
	}
	return nil
}

// showsPath reports whether a path of the machine is the same file in the sandbox. A relative path is relative to Dir, which a
// sandbox without Dir has not.
func (s Spec) showsPath(name string) bool {
	if !filepath.IsAbs(name) {
		return s.Dir != "" && filepath.IsLocal(name)
	}
	name = filepath.Clean(name)
	for inside := range s.Binds {
		if withinAny(name, inside) {
			return true
		}
	}
	return withinAny(name, "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64") || slices.ContainsFunc(systemFiles, func(file string) bool { return withinAny(name, file) })
}

// programDirs are where a sandbox finds programs.
var programDirs = []string{"/usr/local/bin", "/usr/bin", "/bin"}

// systemFiles hold no secret: links of Debian's alternatives, and where libraries lie.
var systemFiles = []string{"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"}

// lookIn finds a program where the environment of sandboxes has them.
func lookIn(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, dir := range programDirs {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && !info.IsDir() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}
