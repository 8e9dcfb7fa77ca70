package torch

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed worker/*.py
var worker embed.FS

// modules are the worker's files, each a module weir_NAME, in the order in which they need each other.
var modules = []string{"frames", "attention", "kernels", "head", "weights", "family", "model", "folders", "optimizer", "ranks", "training", "sampler", "family_sampler", "main"}

// bootstrap is the program that Python is started with: it reads the worker's modules from file descriptor 3 and starts it. The
// working folder is no place for modules: a file of the user's named torch.py would take PyTorch's place.
const bootstrap = `
import json, linecache, os, socket, struct, sys, types
sys.path[:] = [p for p in sys.path if p]
link = socket.socket(fileno=3)
def take(n):
    data = b""
    while len(data) < n:
        more = link.recv(n - len(data))
        if not more:
            os._exit(3)
        data += more
    return data
(size,) = struct.unpack("<I", take(4))
for name, source in json.loads(take(size)):
    module = types.ModuleType(name)
    module.__file__ = name + ".py"
    sys.modules[name] = module
    linecache.cache[module.__file__] = (len(source), None, source.splitlines(True), module.__file__)
    exec(compile(source, module.__file__, "exec"), module.__dict__)
sys.modules["weir_main"].start(link)
`

// moduleFrame is the frame that bootstrap reads.
func moduleFrame() ([]byte, error) {
	var all [][2]string
	for _, m := range modules {
		text, err := worker.ReadFile("worker/" + m + ".py")
		if err != nil {
			return nil, err
		}
		all = append(all, [2]string{"weir_" + m, string(text)})
	}
	return json.Marshal(all)
}

// noPyTorch is the status of hasTorch where the module is missing.
const noPyTorch = 9

const hasTorch = `
import importlib.util, os, sys
sys.path[:] = [p for p in sys.path if p]
sys.exit(0 if importlib.util.find_spec("torch") else 9)
`

// remedy describes how to install PyTorch.
const remedy = "install it (Debian: apt install python3-torch; elsewhere: pip install torch, in an environment of its own), or name an interpreter that has it with torch.python"

// findInterpreter finds a Python that has PyTorch.
func findInterpreter(ctx context.Context, named string) (string, error) {
	if named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("torch.python: %w: name a Python that has PyTorch", err)
		}
		return path, tryPython(ctx, path)
	}
	var tried []error
	for _, path := range pythonCandidates() {
		err := tryPython(ctx, path)
		if err == nil {
			return path, nil
		}
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		tried = append(tried, err)
	}
	if len(tried) == 0 {
		return "", errors.New("torch.python: there is no python3 on the path: install Python 3 with PyTorch (Debian: apt install python3-torch), or name an interpreter")
	}
	return "", errors.Join(tried...)
}

// pythonCandidates are the interpreters to try, each once.
func pythonCandidates() []string {
	var out []string
	seen := map[string]bool{}
	for _, name := range []string{filepath.Join(os.Getenv("VIRTUAL_ENV"), "bin", "python3"), "python3", "/usr/bin/python3"} {
		if os.Getenv("VIRTUAL_ENV") == "" && strings.HasPrefix(name, "bin") {
			continue
		}
		path, err := exec.LookPath(name)
		if err == nil && !seen[path] {
			seen[path] = true
			out = append(out, path)
		}
	}
	return out
}

// tryPython reports what a Python lacks.
func tryPython(ctx context.Context, path string) error {
	c := exec.CommandContext(ctx, path, "-c", hasTorch)
	c.WaitDelay = killDelay // a wrapper's child may keep the output open
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.ExitCode() == noPyTorch:
		return fmt.Errorf("torch.python: %s has no PyTorch: %s", path, remedy)
	}
	return fmt.Errorf("torch.python: %s does not run: %w: %s", path, err, strings.TrimSpace(string(out)))
}

// greeting is a rank's description of itself.
type greeting struct {
	PID        int    `json:"pid"`
	Python     string `json:"python"`
	Executable string `json:"executable"`
	Torch      string `json:"torch"`
	CUDA       string `json:"cuda"`
	Devices    int    `json:"devices"`
	NCCL       bool   `json:"nccl"`
	Gloo       bool   `json:"gloo"`
}

// checkVersion refuses a PyTorch that cannot run this group.
func (g greeting) checkVersion(c Config) error {
	major, rest, _ := strings.Cut(g.Torch, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	known := err == nil && err2 == nil && (a == 1 && b >= 13 || a == 2)
	if !known && !c.AnyVersion {
		return fmt.Errorf("torch.python: %s has PyTorch %s: Weir is tested with 1.13 and 2.x: install one of them, or set torch.any_version to try", g.Executable, g.Torch)
	}
	if c.Device == "cuda" && g.Devices == 0 {
		return fmt.Errorf("torch.device: cuda: PyTorch %s of %s sees no GPU: check the driver (nvidia-smi) and that PyTorch is built for CUDA, or set torch.device to cpu", g.Torch, g.Executable)
	}
	gpus := g.Devices > 0 && c.Device != "cpu"
	if gpus && c.machineRanks() > g.Devices {
		return fmt.Errorf("torch.ranks: %d on a machine: PyTorch of %s sees %d GPUs, and a rank has one to itself", c.machineRanks(), g.Executable, g.Devices)
	}
	if c.Ranks > 1 && !gpus && !g.Gloo || c.Ranks > 1 && gpus && !g.NCCL {
		return fmt.Errorf("torch.ranks: %d: PyTorch %s of %s is built without what ranks speak to each other with (gloo on the processor, NCCL on GPUs): set torch.ranks to 1 or install another build",
			c.Ranks, g.Torch, g.Executable)
	}
	return nil
}
