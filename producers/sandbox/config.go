package sandbox

import (
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// The tiers, from the strictest to none.
const (
	TierAuto     = "auto"
	TierFull     = "full"
	TierLandlock = "landlock"
	TierCommand  = "command"
	TierNone     = "none"
)

// Understood is the value of Config.Unsafe that allows tier none.
const Understood = "i-understand"

// Placeholder stands in Config.Command for the program and its arguments.
const Placeholder = "{argv}"

// Config sets the sandbox that programs run in, and its limits. Default has the defaults.
type Config struct {
	// Tier is auto, full, landlock, command or none. auto is full where that works, else landlock where that works, and never
	// less. Defaults to auto.
	Tier string `koanf:"tier"`
	// Command is the operator's own sandbox, for tier command: a program and its arguments, of which {argv} stands for the program to
	// run and its arguments, {tmp} for the folder that is to be its /tmp, in which it starts, and {uid} for a user id of its own, where this
	// process is root. It must hand on descriptor 3 and the standard streams, and end when what it started has; limits but Lifetime are its own to set:
	// docs/sandbox.md has command lines. Defaults to none.
	Command []string `koanf:"command"`
	// Unsafe must be i-understand for tier none, in which code that a model wrote has the files and the network of this process's user.
	// Defaults to "".
	Unsafe string `koanf:"unsafe"`
	// Limits bound each sandbox.
	Limits `koanf:",squash"`
	// Most bounds the sandboxes that run at once, > 0. Defaults to 64.
	Most int `koanf:"most"`
	// Queue bounds the starts that wait for one of the Most, >= 0. A start beyond it fails with the error that sandboxes are
	// unavailable, and its ticket is tried again. Defaults to 1024.
	Queue int `koanf:"queue"`
	// Warm is how many sandboxes of episodes are started before they are asked for, >= 0; each is used once. Defaults to 2.
	Warm int `koanf:"warm"`
	// FirstUID is the first of Most user ids, one for each sandbox, where this process is root; no other user may have them. 0
	// is 1900000000, or 61000 where that is outside the ids of this container. Defaults to 0.
	FirstUID int `koanf:"first_uid"`
}

// Limits bound a sandbox. The zero value of each is its default.
type Limits struct {
	// Memory bounds the address space of each process, in bytes; 0 is 512 MiB. A program in Go needs 1 GiB.
	Memory int64 `koanf:"memory"`
	// Disk bounds /tmp, and Shared /dev/shm, in bytes; 0 are 64 MiB and 16 MiB. They are memory of the machine; in the tiers landlock and none /tmp is a
	// folder on its disk, and a sandbox whose folder holds more is ended.
	Disk   int64 `koanf:"disk"`
	Shared int64 `koanf:"shared"`
	// Inodes bounds the files in /tmp and /dev/shm together; they are counted five times a second, in the tiers landlock and none once a second or
	// more seldom, and a sandbox with more is ended. 0 is 20000.
	Inodes int64 `koanf:"inodes"`
	// FileSize bounds the size of a file, in bytes; 0 is 64 MiB.
	FileSize int64 `koanf:"file_size"`
	// Processes bounds the processes and threads; 0 is 32.
	Processes int `koanf:"processes"`
	// OpenFiles bounds the descriptors of a process; 0 is 64.
	OpenFiles int `koanf:"open_files"`
	// CPU bounds the processor time of each process; 0 is 10 minutes. Whole seconds.
	CPU time.Duration `koanf:"cpu"`
	// Lifetime bounds the sandbox from start to end, so that a forgotten sandbox ends; 0 is 1 hour.
	Lifetime time.Duration `koanf:"lifetime"`
}

// defaultLimits are the limits that a zero stands for.
func defaultLimits() Limits {
	return Limits{
		Memory: 512 << 20, Disk: 64 << 20, Shared: 16 << 20, Inodes: 20000, FileSize: 64 << 20,
		Processes: 32, OpenFiles: 64, CPU: 10 * time.Minute, Lifetime: time.Hour,
	}
}

// Or returns the limits with others where they are zero.
func (l Limits) Or(other Limits) Limits {
	valueOr(&l.Memory, other.Memory)
	valueOr(&l.Disk, other.Disk)
	valueOr(&l.Shared, other.Shared)
	valueOr(&l.Inodes, other.Inodes)
	valueOr(&l.FileSize, other.FileSize)
	valueOr(&l.Processes, other.Processes)
	valueOr(&l.OpenFiles, other.OpenFiles)
	valueOr(&l.CPU, other.CPU)
	valueOr(&l.Lifetime, other.Lifetime)
	return l
}

// Validate reports every fault.
func (l Limits) Validate() error {
	return check.All(
		check.AtLeast("memory", l.Memory, 0), check.AtLeast("disk", l.Disk, 0), check.AtLeast("shared", l.Shared, 0),
		check.AtLeast("inodes", l.Inodes, 0), check.AtLeast("file_size", l.FileSize, 0),
		check.Between("processes", l.Processes, 0, 1<<20), check.Between("open_files", l.OpenFiles, 0, 1<<20),
		check.That(l.CPU == 0 || l.CPU >= time.Second, "cpu", "%s: want a second or more, or 0", l.CPU),
		check.NotNegative("lifetime", l.Lifetime),
	)
}

func valueOr[T comparable](v *T, other T) {
	var zero T
	if *v == zero {
		*v = other
	}
}

// Default is tier auto with the default limits, 64 sandboxes at once, 1024 that wait and 2 started in advance.
func Default() Config {
	return Config{Tier: TierAuto, Limits: defaultLimits(), Most: 64, Queue: 1024, Warm: 2}
}

// lastUID is the greatest user id that sandboxes are given: ids above 2^31 are negative to some programs.
const lastUID = 1<<31 - 1

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.OneOf("tier", c.Tier, TierAuto, TierFull, TierLandlock, TierCommand, TierNone),
		c.checkCommand(),
		check.That(c.Unsafe == "" || c.Unsafe == Understood, "unsafe", "%q: it is %s, or is left out", c.Unsafe, Understood),
		check.That(c.Tier != TierNone || c.Unsafe == Understood, "tier",
			"none: code that a model wrote would have this user's files and network: install bubblewrap, or write sandbox.unsafe: %s", Understood),
		c.Limits.Validate(),
		check.Between("most", c.Most, 1, 1<<16),
		check.NotNegative("queue", c.Queue),
		check.Between("warm", c.Warm, 0, max(c.Most, 1)),
		check.Between("first_uid", c.FirstUID, 0, lastUID-1<<16),
	)
}

func (c Config) checkCommand() error {
	switch {
	case c.Tier != TierCommand && len(c.Command) == 0:
		return nil
	case c.Tier != TierCommand:
		return check.That(false, "command", "%q: only tier command uses it, and the tier is %s", strings.Join(c.Command, " "), c.Tier)
	case len(c.Command) == 0 || c.Command[0] == "":
		return errors.New("command: empty: tier command needs the command line of a sandbox, with {argv} where the program stands")
	}
	return check.That(slices.Contains(c.Command, Placeholder), "command", "%q: lacks %s, which stands for the program and its arguments",
		strings.Join(c.Command, " "), Placeholder)
}

// Spec is a program to run.
type Spec struct {
	// Argv is the program, by its path or found in /usr/bin and /bin of the sandbox, and its arguments.
	Argv []string
	// Env is the whole environment beside PATH, HOME and LANG, as "KEY=value".
	Env []string
	// Files are written below /tmp before the program starts, by relative names in folders that are made; 200 at most.
	Files map[string][]byte
	// Binds are files and folders of the machine that the program can read, by their path inside, which is not /, /tmp, /proc or /dev.
	Binds map[string]string
	// Dir is the folder that the program starts in, by its path inside; "" is /tmp.
	Dir string
	// Port, from 1024, gives the program a network of its own with nothing in it but 127.0.0.1, where this TCP port is heard by
	// [Process.Listener]: the program can connect there and nowhere else. It needs tier full. 0 gives it no network at all.
	Port int
	// Limits override the configuration's where they are not zero.
	Limits Limits
}

func (s Spec) checkSpec() error {
	faults := []error{check.That(len(s.Argv) > 0, "argv", "empty: want a program")}
	faults = append(faults, check.That(len(s.Files) <= maxFiles, "files", "%d: want %d at most", len(s.Files), maxFiles))
	for name := range s.Files {
		faults = append(faults, check.That(isLocal(name), "files", "%q: want a relative name without ..", name))
	}
	for _, pair := range s.Env {
		key, _, ok := strings.Cut(pair, "=")
		faults = append(faults, check.That(ok && key != "" && !strings.ContainsRune(pair, 0), "env", "%.40q: want KEY=value", pair))
	}
	for _, arg := range s.Argv {
		faults = append(faults, check.That(!strings.ContainsRune(arg, 0), "argv", "%.40q: holds a zero byte", arg))
	}
	for inside, outside := range s.Binds {
		faults = append(faults, check.That(path.IsAbs(inside) && path.IsAbs(outside) && path.Clean(inside) == inside, "binds", "%q: want absolute paths", inside),
			check.That(canShow(inside), "binds", "%q: a sandbox has its own /, /tmp, /proc and /dev: want a file or folder beside them", inside))
	}
	return check.All(append(faults,
		check.That(s.Dir == "" || path.IsAbs(s.Dir), "dir", "%q: want an absolute path", s.Dir),
		check.That(s.Port == 0 || s.Port >= 1024 && s.Port < 1<<16, "port", "%d: want one from 1024 to 65535, or 0", s.Port),
	)...)
}

// canShow reports whether a file or folder can be shown at an absolute path: a sandbox has its own /, /tmp, /proc and /dev.
func canShow(inside string) bool {
	return !withinAny(inside, "/proc", "/dev") && inside != "/" && inside != "/tmp"
}

// withinAny reports whether a clean path is one of these folders, or below it.
func withinAny(name string, dirs ...string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/") })
}

// maxFiles bounds Spec.Files: each goes to the keeper as a descriptor, of which a message holds 253.
const maxFiles = 200
