package doctor

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// examineMemory compares the free memory with the model's need. A container's bound counts where it is lower.
func (e *examination) examineMemory() {
	const check = "memory"
	free, total, ok := e.readMeminfo()
	if !ok {
		e.addFinding(check, Unused, "", "the system does not say")
		return
	}
	detail := fmt.Sprintf("%s free of %s", formatBytes(free), formatBytes(total))
	if limit, ok := e.memoryLimit(); ok && limit < total {
		detail += fmt.Sprintf(", the container may have %s", formatBytes(limit))
		free = min(free, limit)
	}
	const remedy = "take a smaller model, lower trainer.micro_tokens and inference.slots, or run the roles on several machines"
	switch need := e.n.Memory; {
	case need > free:
		e.addFinding(check, Fail, remedy, "%s; the model takes about %s", detail, formatBytes(need))
	case need > free*8/10:
		e.addFinding(check, Warn, remedy, "%s; the model takes about %s", detail, formatBytes(need))
	case need > 0:
		e.addGood(check, "%s; the model takes about %s", detail, formatBytes(need))
	default:
		e.addGood(check, "%s", detail)
	}
}

// readMeminfo reads Linux's account of its memory, in bytes.
func (e *examination) readMeminfo() (free, total int64, ok bool) {
	data, err := e.m.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, false
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			continue
		}
		switch key {
		case "MemTotal":
			total = kb << 10
		case "MemAvailable":
			free = kb << 10
		}
	}
	return free, total, total > 0
}

// memoryLimit is the memory that a container may have.
func (e *examination) memoryLimit() (int64, bool) {
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		data, err := e.m.ReadFile(path)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(data)), 10, 64) // "max" is no bound
		return n, err == nil
	}
	return 0, false
}

// leastDisk is the free disk that a run of any size needs: streams, checkpoints and kept batches.
const leastDisk = 1 << 30

func (e *examination) examineDisk() {
	const check = "disk"
	free, total, err := e.m.Disk(e.n.Dir)
	if err != nil {
		e.addFinding(check, Fail, "name a folder that can be written with --run.dir", "%s: %v", e.n.Dir, err)
		return
	}
	detail := fmt.Sprintf("%s free of %s where %s lies", formatBytes(free), formatBytes(total), e.n.Dir)
	const remedy = "make room, name a folder on another disk with --run.dir, or lower trainer.checkpoint.keep and streams.weights_keep"
	switch need := max(e.n.Disk, leastDisk); {
	case free < need && e.n.Disk > leastDisk:
		e.addFinding(check, Fail, remedy, "%s; checkpoints and versions take about %s", detail, formatBytes(need))
	case free < need:
		e.addFinding(check, Warn, remedy, "%s", detail)
	default:
		e.addGood(check, "%s", detail)
	}
}

// leastShared is the shared memory that ranks on a machine and inference servers need; containers have 64 MiB by default.
const leastShared = 1 << 30

func (e *examination) examineSharedMemory() {
	const check = "shared memory"
	needed := e.n.Torch || e.n.VLLM || e.n.SGLang
	free, total, err := e.m.Disk("/dev/shm")
	switch {
	case err != nil:
		e.addLack(check, needed, "mount a tmpfs at /dev/shm", "/dev/shm: %v", err)
	case free < leastShared && needed:
		e.addFinding(check, Warn, "start the container with --shm-size 8g, or --ipc host", "%s free of %s in /dev/shm: several ranks and vLLM want more", formatBytes(free), formatBytes(total))
	default:
		e.addGood(check, "%s free of %s in /dev/shm", formatBytes(free), formatBytes(total))
	}
}

// examineSandbox starts a program in a sandbox as tools do: without a network, in an empty environment.
func (e *examination) examineSandbox() {
	const check = "sandbox"
	path, err := e.m.LookPath("bwrap")
	if err != nil {
		e.addLack(check, e.n.Sandbox, "apt install bubblewrap", "bwrap is not installed")
		return
	}
	version, err := e.m.Run(e.ctx, path, "--version")
	if err == nil {
		_, err = e.m.Run(e.ctx, path, "--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/", "/",
			"--proc", "/proc", "--dev", "/dev", "--", "/bin/true")
	}
	version = strings.TrimSpace(version)
	switch {
	case err != nil:
		e.addLack(check, e.n.Sandbox, e.examineNamespaces(), "%s does not start a program: %v", path, err)
	case e.m.User() == 0:
		e.addFinding(check, Warn, "start Weir as another user: code that root starts in a sandbox has a way out of it", "%s works, and this is root", version)
	default:
		e.addGood(check, "%s starts a program without a network", version)
	}
}

// examineNamespaces returns the cure where the system has user namespaces turned off.
func (e *examination) examineNamespaces() string {
	for _, s := range []struct{ file, off, set string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give bwrap an AppArmor profile"},
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"},
	} {
		data, err := e.m.ReadFile(s.file)
		if err == nil && string(bytes.TrimSpace(data)) == s.off {
			return s.set
		}
	}
	return "allow user namespaces; in a container start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
}

// leastPayload is the broker's bound on a message below which large trajectories go in very many parts.
const leastPayload = 1 << 20

// examineBroker asks the configured broker for its name and version.
func (e *examination) examineBroker() {
	const check = "broker"
	if e.n.Broker == "" {
		e.addGood(check, "none is configured: weir up has one of its own")
		return
	}
	b, err := e.m.Broker(e.ctx, e.n.Broker)
	switch {
	case err != nil:
		e.addFinding(check, Fail, "start one with weir broker, or name another with --broker.url", "%s: %v", e.n.Broker, err)
		return
	case !b.JetStream:
		e.addFinding(check, Fail, "start the server with JetStream: nats-server -js", "%s has no JetStream", e.n.Broker)
	case isOlderThan(b.Version, b.OldestVersion):
		e.addFinding(check, Fail, "update the server to "+b.OldestVersion+" or newer, or start one with weir broker", "%s is nats-server %s", e.n.Broker, b.Version)
	case b.MaxPayload < leastPayload:
		e.addFinding(check, Warn, "raise max_payload of the server to 8MB", "%s takes %s a message", e.n.Broker, formatBytes(b.MaxPayload))
	default:
		e.addGood(check, "nats-server %s at %s, %s a message, round trip %s", b.Version, e.n.Broker, formatBytes(b.MaxPayload), b.RoundTrip.Round(10*time.Microsecond))
	}
	const most = time.Second
	if !b.AheadKnown {
		return
	}
	if b.Ahead.Abs() > most {
		e.addFinding("broker's clock", Warn, "keep both clocks right with NTP: reported lags and the sweeping of old shards go by them", "%s ahead of this machine's", b.Ahead.Round(time.Millisecond))
		return
	}
	e.addGood("broker's clock", "within %s of this machine's", most)
}

func (e *examination) examineClock() {
	const check = "clock"
	switch synchronized, known := e.m.Clock(); {
	case !known:
		e.addFinding(check, Unused, "", "the system does not say whether it is kept right")
	case !synchronized:
		e.addFinding(check, Warn, "timedatectl set-ntp true, or start chrony: reported lags between machines go by it", "it is not kept right by another")
	default:
		e.addGood(check, "it is kept right by NTP")
	}
}
