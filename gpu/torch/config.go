package torch

import (
	"net"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Config is the section torch of a run's configuration. The zero value is not usable: start from DefaultConfig.
type Config struct {
	// Python is the interpreter, which has PyTorch: a name or a path. "" takes the first of $VIRTUAL_ENV/bin/python3, python3 on the
	// path and /usr/bin/python3 that has it. Defaults to "".
	Python string `koanf:"python"`
	// Ranks is how many processes train, a GPU each where there are any. A reference policy and a critic of its own have as many
	// on the same devices. Defaults to 1.
	Ranks int `koanf:"ranks"`
	// Machines are further machines whose devices train too, as host:port where weir torch-worker listens. Ranks is then the
	// number on all machines together, the same on each, this machine's first. Folders of the run, and Scratch, must be the
	// same on all: on storage that they share. Defaults to none.
	Machines []string `koanf:"machines"`
	// SecretFile is the secret that all machines have, from weir keys --torch; it is read where there are Machines. Defaults to "".
	SecretFile string `koanf:"secret_file"`
	// Address is this machine's, by which ranks of others find its first rank. "" is the address that the first of Machines is reached
	// from. Ranks speak to each other in the clear: keep them in a network of their own. Defaults to "".
	Address string `koanf:"address"`
	// Interface is the network interface by which ranks of several machines speak to each other. "" lets PyTorch choose; ranks
	// of a single machine use its loopback. Defaults to "".
	Interface string `koanf:"interface"`
	// Device is cpu, cuda, or auto: cuda where PyTorch sees a GPU. Defaults to auto.
	Device string `koanf:"device"`
	// DType is the type of the products: bfloat16, float32, or auto: bfloat16 on a GPU and float32 on the processor. Norms, the
	// angles, the softmax of the head and all sums of gradients over ranks are float32. Defaults to auto.
	DType string `koanf:"dtype"`
	// Masters keeps the weights in float32 whatever DType is. Without them the weights are stored in DType, at half the memory,
	// and small steps are lost to rounding. Defaults to true.
	Masters bool `koanf:"masters"`
	// Shard is fsdp, which cuts weights, gradients and moments among several ranks; none, where each rank has all; or auto: fsdp with
	// several ranks on GPUs where PyTorch has fully_shard. Defaults to auto.
	Shard string `koanf:"shard"`
	// Attention is varlen, sdpa, plain, or auto: the first that is there and agrees with plain on a small example. Defaults to auto.
	Attention string `koanf:"attention"`
	// Recompute keeps each block's input alone and runs the block again in the backward pass: far less memory for a third more
	// time. Defaults to false.
	Recompute bool `koanf:"recompute"`
	// Compile has PyTorch compile the blocks, which takes a quarter off a step's time on an H100: always, never, or auto: on a GPU, where the
	// compiler works, the ranks have whole copies and deterministic is off. The first passes take up to minutes. Defaults to auto.
	Compile string `koanf:"compile"`
	// Deterministic gives the same bits for the same parts, however they are packed: each sequence is run by itself, and PyTorch's
	// deterministic algorithms alone are used. It is slow. Defaults to false.
	Deterministic bool `koanf:"deterministic"`
	// MaxTokens bounds the tokens that a rank runs at once, below trainer.micro_tokens; 0 does not. Defaults to 0.
	MaxTokens int `koanf:"max_tokens"`
	// Scratch is a folder for weights on their way to a process; "" is the system's folder for temporary files. If a Weir was
	// killed, the next removes the files that it left there. Defaults to "".
	Scratch string `koanf:"scratch"`
	// StartTimeout bounds the start of a group: Python's start, PyTorch's import, and the ranks' meeting. Defaults to 5m.
	StartTimeout time.Duration `koanf:"start_timeout"`
	// SilentAfter is how long a rank may send nothing at all. A working rank is never silent so long. Defaults to 1m.
	SilentAfter time.Duration `koanf:"silent_after"`
	// StalledAfter is how long a rank may be within an operation and finish no piece of it. A first compiled pass takes
	// minutes. Defaults to 30m.
	StalledAfter time.Duration `koanf:"stalled_after"`
	// AnyVersion lets in a PyTorch that is older than 1.13 or newer than 2.x. Defaults to false.
	AnyVersion bool `koanf:"any_version"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{
		Ranks: 1, Device: "auto", DType: "auto", Masters: true, Shard: "auto", Attention: "auto", Compile: "auto",
		StartTimeout: 5 * time.Minute, SilentAfter: time.Minute, StalledAfter: 30 * time.Minute,
	}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.That(c.Ranks >= 1 && c.Ranks <= maxRanks, "ranks", "%d: must be between 1 and %d", c.Ranks, maxRanks),
		check.That(c.Ranks%(1+len(c.Machines)) == 0, "ranks", "%d: must be the same number on each of %d machines", c.Ranks, 1+len(c.Machines)),
		c.validateMachines(),
		check.OneOf("device", c.Device, "auto", "cpu", "cuda"),
		check.OneOf("dtype", c.DType, "auto", "bfloat16", "float32"),
		check.OneOf("shard", c.Shard, "auto", "none", "fsdp"),
		check.That(c.Shard != "fsdp" || c.Ranks > 1, "shard", "fsdp: ranks is %d, and there is nobody to share with; set shard to auto, or more ranks", c.Ranks),
		check.OneOf("attention", c.Attention, "auto", "varlen", "sdpa", "plain"),
		check.OneOf("compile", c.Compile, "auto", "always", "never"),
		check.That(c.Compile != "always" || !c.Deterministic, "compile", "always: deterministic is on, and compiled blocks are not the same from one packing to another"),
		check.NotNegative("max_tokens", c.MaxTokens),
		check.Positive("start_timeout", c.StartTimeout),
		check.Positive("silent_after", c.SilentAfter),
		check.Positive("stalled_after", c.StalledAfter),
	)
}

func (c Config) validateMachines() error {
	var errs []error
	for _, m := range c.Machines {
		_, port, err := net.SplitHostPort(m)
		errs = append(errs, check.That(err == nil && port != "", "machines", "%q: want host:port, such as gpu2:7070", m))
	}
	errs = append(errs, check.That(len(c.Machines) == 0 || c.SecretFile != "", "secret_file",
		"empty: ranks on other machines need the secret of weir keys --torch"))
	return check.All(errs...)
}

// machineRanks is the number of ranks on each machine.
func (c Config) machineRanks() int { return c.Ranks / (1 + len(c.Machines)) }

// maxRanks bounds the processes of a group.
const maxRanks = 1024

// Unread explains why nothing depends on a key of the section, beginning with the other key that says so; "" if something does.
func (c Config) Unread(key string) string {
	switch key {
	case "secret_file", "address", "interface":
		if len(c.Machines) == 0 {
			return "machines is empty"
		}
	case "shard":
		if c.Ranks == 1 {
			return "ranks is 1"
		}
	}
	return ""
}
