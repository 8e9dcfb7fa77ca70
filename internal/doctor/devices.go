package doctor

import (
	"fmt"
	"strings"
)

// examineDevices looks for CUDA and its devices, and for NCCL between them.
func (e *examination) examineDevices() {
	driver, cards := e.examineDriver()
	s := e.stack
	needed := e.needsCUDA()
	switch {
	case s != nil && s.Available:
		e.addGood("cuda", "%s, driver %s", s.CUDA, orUnknown(driver))
	case len(cards) == 0:
		e.addLack("cuda", needed, "install NVIDIA's driver, so that nvidia-smi lists the devices; in a container start it with --gpus all", "no device is seen")
	case s == nil || s.Torch == "":
		e.addLack("cuda", needed, "see torch", "driver %s, and no PyTorch to use it", driver)
	case s.CUDA == "":
		e.addLack("cuda", needed, "pip install torch from the index for CUDA of https://pytorch.org/get-started/locally", "PyTorch is built for the CPU")
	default:
		why := s.Unavailable
		if why == "" {
			why = "it does not say why"
		}
		e.addLack("cuda", needed, "update the driver to one for CUDA "+s.CUDA+", or install a PyTorch that is built for the driver's CUDA; look at CUDA_VISIBLE_DEVICES",
			"PyTorch is built for CUDA %s and cannot use the device, driver %s: %s", s.CUDA, driver, why)
	}
	switch {
	case s != nil && len(s.Devices) > 0:
		var names []string
		busy := false
		for i, d := range s.Devices {
			names = append(names, fmt.Sprintf("%d: %s, %s free of %s, capability %s", i, d.Name, formatBytes(d.Free), formatBytes(d.Total), d.Capability))
			busy = busy || d.Free < d.Total*9/10
		}
		if busy && needed {
			e.addFinding("devices", Warn, "nvidia-smi names the processes that hold the rest: end them, or leave the device out with CUDA_VISIBLE_DEVICES", "%s", strings.Join(names, "; "))
		} else {
			e.addGood("devices", "%s", strings.Join(names, "; "))
		}
	case len(cards) > 0:
		e.addLack("devices", needed, "see cuda", "%s", strings.Join(cards, "; "))
	default:
		e.addLack("devices", needed, "see cuda", "none")
	}
	switch {
	case s != nil && s.NCCL != "":
		e.addGood("nccl", "%s", s.NCCL)
	case s != nil && len(s.Devices) > 1:
		e.addLack("nccl", needed, "pip install torch for CUDA, which brings NCCL", "this PyTorch has none, for %d devices", len(s.Devices))
	case s != nil && s.Gloo:
		e.addFinding("nccl", Unused, "", "none; ranks on processors use gloo")
	default:
		e.addFinding("nccl", Unused, "", "none")
	}
}

// needsCUDA reports whether the run needs a device: a vLLM that is built for processors needs none.
func (e *examination) needsCUDA() bool {
	return e.n.CUDA || e.n.VLLM && (e.stack == nil || !isCPUBuild(e.stack.VLLM))
}

// isCPUBuild reports whether a version is that of a vLLM for processors, from a package or from its source.
func isCPUBuild(version string) bool {
	return strings.HasSuffix(version, "+cpu") || strings.HasSuffix(version, ".cpu")
}

// examineDriver reads the driver's version and the cards from nvidia-smi.
func (e *examination) examineDriver() (version string, cards []string) {
	path, err := e.m.LookPath("nvidia-smi")
	if err != nil {
		return "", nil
	}
	out, err := e.m.Run(e.ctx, path, "--query-gpu=driver_version,name,memory.total", "--format=csv,noheader")
	if err != nil {
		return "", nil
	}
	for line := range strings.Lines(out) {
		parts := strings.Split(strings.TrimSpace(line), ", ")
		if len(parts) == 3 {
			version, cards = parts[0], append(cards, parts[1]+", "+parts[2])
		}
	}
	return version, cards
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

// examineServers looks for vLLM and SGLang, which are found where PyTorch is.
func (e *examination) examineServers() {
	for _, server := range []struct {
		check   string
		needed  bool
		version func(*stack) string
	}{
		{"vllm", e.n.VLLM, func(s *stack) string { return s.VLLM }},
		{"sglang", e.n.SGLang, func(s *stack) string { return s.SGLang }},
	} {
		if e.stack != nil && server.version(e.stack) != "" {
			e.addGood(server.check, "%s", server.version(e.stack))
			continue
		}
		e.addLack(server.check, server.needed, "pip install "+server.check+" into that Python, or name servers that run with --inference.servers", "not installed")
	}
}
