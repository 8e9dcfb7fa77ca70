package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/child"
)

// randomSeed begins a server's random numbers.
func randomSeed() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint32(b[:]) >> 1
}

// writeKeys writes the keys of a kind that takes them from a file, and returns where; "" for none.
func (p *process) writeKeys(with Start) (string, error) {
	kind, is := p.kind.(Keyed)
	if !is || kind.Keys(with) == "" {
		return "", nil
	}
	path := filepath.Join(p.cfg.Server.Dir, fmt.Sprintf("%s-%d.keys.yaml", p.kind.Name(), p.index))
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return "", fmt.Errorf("write the server's keys: %w", err)
	}
	if err := os.WriteFile(path, []byte(kind.Keys(with)), 0o600); err != nil {
		return "", fmt.Errorf("write the server's keys: %w", err)
	}
	return path, nil
}

// helpTimeout bounds the question whether a program knows an argument: a server imports much before it answers.
const helpTimeout = 2 * time.Minute

// knowsArgument reports whether the program's help names an argument: a program ends at an argument that it does not know.
// It is asked once.
func (p *process) knowsArgument(ctx context.Context, argument string) bool {
	if known, asked := p.known[argument]; asked {
		return known
	}
	command := p.cfg.Server.Command
	if len(command) == 0 {
		command, _ = p.kind.Command(Start{})
		command = command[:2]
	}
	ctx, cancel := context.WithTimeout(ctx, helpTimeout)
	defer cancel()
	args := append(command[1:len(command):len(command)], "--help="+strings.TrimLeft(argument, "-"))
	text, err := outputOf(ctx, exec.Command(command[0], args...)) //nolint:noctx // its end is that of ctx
	known := err == nil && strings.Contains(text, argument)
	if p.known == nil {
		p.known = map[string]bool{}
	}
	if ctx.Err() == nil {
		p.known[argument] = known
	}
	p.log.Debug("asked an inference server's program for an argument", "argument", argument, "known", known, "err", err)
	return known
}

// outputOf runs a program to its end, or to that of ctx, and returns what it wrote. What the program started ends with it.
func outputOf(ctx context.Context, c *exec.Cmd) (string, error) {
	var out bytes.Buffer
	c.Stdout, c.WaitDelay = &out, time.Second
	p, err := child.Start(c, syscall.SIGKILL)
	if err != nil {
		return "", err
	}
	defer context.AfterFunc(ctx, func() { p.Signal(syscall.SIGKILL) })()
	if err := p.Err(); err != nil {
		return "", err
	}
	return out.String(), nil
}

// pluginName is the folder with the plugin, in that of weights.
const pluginName = "plugin"

// writePlugin writes the plugin for a server that is to be started, and returns its folder: "" where the server is started without. A
// command of another name may start it where the folder is not seen, as in a container.
func (p *process) writePlugin() (string, error) {
	kind, is := p.kind.(Plugged)
	if !is || p.plain || !TakesMemory(&p.cfg, p.kind) {
		return "", nil
	}
	dir := filepath.Join(p.cfg.Server.Dir, pluginName)
	return dir, WritePlugin(dir, kind.Plugin())
}

// TakesMemory reports whether servers are started such that they can take versions through the shared memory of this machine: by a command
// that is known to start them as a program of this machine, with Weir's plugin.
func TakesMemory(cfg *consumers.Config, kind Kind) bool {
	if _, is := kind.(Plugged); !is || cfg.Server.Transfer == consumers.TransferOff || len(cfg.Servers) > 0 || cfg.Server.List != "" {
		return false
	}
	if len(cfg.Server.Command) == 0 {
		return true
	}
	name := filepath.Base(cfg.Server.Command[0])
	return name == kind.Name() || strings.HasPrefix(name, "python")
}

// notePluggedFault has the next start be one without the plugin, after a start with the plugin has failed: the plugin may be why.
func (p *process) notePluggedFault() {
	if p.plugged && !p.plain {
		p.plain = true
		p.log.Warn("an inference server did not come up with Weir's plugin: it is started without, and loads versions from folders")
	}
}
