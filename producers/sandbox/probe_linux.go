//go:build amd64 || arm64

package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// probeWithin bounds the probe, on a busy machine too.
const probeWithin = 2 * time.Minute

// probeControl bounds the time that a word takes which was written to descriptor 3 before.
const probeControl = 10 * time.Second

// probeTier runs a program as all others are run, and checks from outside what it may do.
func (p *Pool) probeTier(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probeWithin, errors.New("the probe did not end in time"))
	defer cancel()
	host := machine{root: os.Geteuid() == 0, read: os.ReadFile}
	if p.tier == TierFull {
		if _, err := bwrapPath(); err != nil {
			return explainRefusal(p.tier, err.Error(), host)
		}
	}
	// The shell's own words: it needs no other program.
	process, err := p.StartFirst(ctx, Spec{Argv: []string{"/bin/sh", "-c", `echo ready; read line; echo "$line" >word; echo "$line" >&3; echo "$line"; read line; exit 0`}})
	if err != nil {
		return explainRefusal(p.tier, err.Error(), host)
	}
	defer process.Close()
	if err := p.examineProgram(ctx, process); err != nil {
		return explainRefusal(p.tier, err.Error(), host)
	}
	return nil
}

// probeWord goes in and comes out.
const probeWord = "weir"

func (p *Pool) examineProgram(ctx context.Context, process *Process) error {
	stop := context.AfterFunc(ctx, process.Close)
	defer stop()
	lines := bufio.NewReader(process.Stdout)
	if line, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
		exit, _ := process.Wait(ctx)
		return fmt.Errorf("a program did not start (status %d): %s", exit.Code, process.whyNot())
	}
	if err := p.checkConfined(process.Pid); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(process.Stdin, probeWord); err != nil {
		return fmt.Errorf("write to a program: %w", err)
	}
	if line, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(line) != probeWord {
		said := ""
		if err != nil {
			_, _ = process.Wait(ctx) // all its output is there then
			said = ": " + process.whyNot()
		}
		return fmt.Errorf("a program answered %q where %q was wanted%s", line, probeWord, said)
	}
	if err := p.checkReached(ctx, process); err != nil {
		return err
	}
	_ = process.Stdin.Close() // which ends it
	exit, err := process.Wait(ctx)
	if err != nil || exit.Code != 0 {
		return fmt.Errorf("a program ended with status %d: %w", exit.Code, err)
	}
	return nil
}

// checkReached checks that the program's descriptor 3 and its folder are those that are known here.
func (p *Pool) checkReached(ctx context.Context, process *Process) error {
	stop := context.AfterFunc(ctx, process.Close)
	defer stop()
	if err := process.Control.SetReadDeadline(time.Now().Add(probeControl)); err != nil {
		return fmt.Errorf("read from a program's descriptor %d: %w", ControlFD, err)
	}
	line, err := bufio.NewReader(process.Control).ReadString('\n')
	if err != nil {
		return fmt.Errorf("a program has another descriptor %d than it is given: nothing comes out of it: %w", ControlFD, err)
	}
	data, err := process.ReadFile(ctx, "word", 1<<10)
	if err != nil {
		return fmt.Errorf("a program starts in another folder than the sandbox's, {tmp}: what it writes is not there: %w", err)
	}
	for _, said := range []string{line, string(data)} {
		if strings.TrimSpace(said) != probeWord {
			return fmt.Errorf("a program wrote %q where %q was wanted", said, probeWord)
		}
	}
	return nil
}

// checkConfined compares a running program with the tier's promises.
func (p *Pool) checkConfined(pid int) error {
	if p.tier != TierFull && p.tier != TierLandlock {
		return nil
	}
	has, err := readStatus(pid)
	if err != nil {
		return fmt.Errorf("look at a program: %w", err)
	}
	for _, want := range []struct{ key, value string }{{"NoNewPrivs", "1"}, {"Seccomp", "2"}, {"CapEff", "0000000000000000"}} {
		if has[want.key] != want.value {
			return fmt.Errorf("a program runs with %s %q: want %s", want.key, has[want.key], want.value)
		}
	}
	return nil
}

// readStatus reads the kernel's status of a process.
func readStatus(pid int) (map[string]string, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, ":")
		out[key] = strings.TrimSpace(value)
	}
	return out, nil
}

// bwrapPath finds bubblewrap where programs of the system lie: the environment of the keeper is empty.
func bwrapPath() (string, error) {
	for _, path := range []string{"/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"} {
		if _, err := exec.LookPath(path); err == nil {
			return path, nil
		}
	}
	return "", errors.New("bwrap: not found in /usr/bin, /usr/local/bin and /bin")
}

// usualUID is the first id of programs where this process is root: above what systems give to users, services and containers.
const (
	usualUID = 1900000000
	smallUID = 61000
)

// firstUID is the first of the pool's user ids, 0 where programs run as this process's user.
func firstUID(cfg Config) int {
	switch {
	case os.Geteuid() != 0:
		return 0
	case cfg.FirstUID > 0:
		return cfg.FirstUID
	}
	data, err := os.ReadFile("/proc/self/uid_map")
	if err == nil && !isMapped(string(data), usualUID) {
		return smallUID
	}
	return usualUID
}

// isMapped reports whether a container has a user id.
func isMapped(uidMap string, uid int) bool {
	for line := range strings.Lines(uidMap) {
		var inside, outside, count int
		if n, _ := fmt.Sscan(line, &inside, &outside, &count); n == 3 && uid >= inside && uid-inside < count {
			return true
		}
	}
	return false
}
