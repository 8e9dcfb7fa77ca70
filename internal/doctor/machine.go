package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Local is the machine of this process.
type Local struct {
	// Environ has the variables that Getenv knows.
	Environ func(key string) string
	// Ask asks a broker for its name and version.
	Ask func(ctx context.Context, address string) (Broker, error)
}

var _ Machine = Local{}

// Getenv is a variable of the environment.
func (l Local) Getenv(key string) string { return l.Environ(key) }

// LookPath finds a program.
func (Local) LookPath(name string) (string, error) { return exec.LookPath(name) }

// patience is how long a program may take: the first import of PyTorch from a cold disk takes tens of seconds.
const patience = 2 * time.Minute

// Run runs a program.
func (l Local) Run(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.WaitDelay = time.Second
	for _, key := range []string{"PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV"} {
		if v := l.Environ(key); v != "" {
			c.Env = append(c.Env, key+"="+v)
		}
	}
	var out, told bytes.Buffer
	c.Stdout, c.Stderr = &out, &told
	err := c.Run()
	switch said := strings.TrimSpace(told.String()); {
	case ctx.Err() != nil:
		return "", fmt.Errorf("no answer after %s", patience)
	case err != nil && said != "":
		lines := strings.Split(said, "\n")
		return "", fmt.Errorf("%w: %.300s", err, lines[len(lines)-1])
	}
	return out.String(), err
}

// ReadFile reads a file.
func (Local) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// Disk is that of the path, or of the nearest folder above it that is there.
func (Local) Disk(path string) (free, size int64, err error) {
	path, err = filepath.Abs(path)
	for err == nil {
		free, size, err = freeDisk(path)
		if !errors.Is(err, os.ErrNotExist) || path == filepath.Dir(path) {
			return free, size, err
		}
		path, err = filepath.Dir(path), nil
	}
	return 0, 0, err
}

// User is the effective user's id.
func (Local) User() int { return os.Geteuid() }

// Clock asks the kernel.
func (Local) Clock() (synchronized, known bool) { return kernelClock() }

// Broker asks a broker.
func (l Local) Broker(ctx context.Context, address string) (Broker, error) {
	return l.Ask(ctx, address)
}
