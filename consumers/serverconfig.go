package consumers

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// The values of Config.Engine.
const (
	// EngineHere samples in this process, by the run's model.engine.
	EngineHere = ""
	// EngineNative and EngineTorch sample in this process, by these engines.
	EngineNative = "native"
	EngineTorch  = "torch"
	// EngineVLLM and EngineSGLang are servers.
	EngineVLLM   = "vllm"
	EngineSGLang = "sglang"
)

// The values of ServerConfig.Transfer.
const (
	TransferAuto = "auto"
	TransferOff  = "off"
)

// ServerConfig is about the servers of inference.engine vllm or sglang. Other engines do not read it.
type ServerConfig struct {
	// Dir is where each policy version is put as a folder, which the servers read: every server must see it under this path, and
	// two versions must fit, a third while it is written, and another for each server that is slower than the others to start or to
	// load. /dev/shm/weir is fast where there is room. Defaults to "", the folder servers in the run's, or shared memory (Transfer).
	Dir string `koanf:"dir"`
	// Count is how many servers are started, where inference.servers names none that run already. Defaults to 1.
	Count int `koanf:"count"`
	// Devices has the accelerators of each server that is started, as CUDA_VISIBLE_DEVICES has them, with + between: 0+1,2+3 is
	// two servers of two. Defaults to none: Count servers that see all.
	Devices []string `koanf:"devices"`
	// Command begins the command line of a server that is started. Defaults to none, which is vllm serve, or
	// python3 -m sglang.launch_server.
	Command []string `koanf:"command"`
	// Args are further arguments of that command line: --tensor-parallel-size,2. Defaults to none.
	Args []string `koanf:"args"`
	// Port is that of the first server that is started, on 127.0.0.1; the next ones follow. Defaults to 0, ports that are free.
	Port int `koanf:"port"`
	// List is a file with the URL of a running server in each line, instead of inference.servers. It is read again every
	// CheckEvery, so that servers come and go while a run goes on. Defaults to "".
	List string `koanf:"list"`
	// APIKey is sent as a bearer token with generate calls, AdminAPIKey with calls that pause and load. Default to "": AdminAPIKey
	// to APIKey.
	APIKey      string `koanf:"api_key"`
	AdminAPIKey string `koanf:"admin_api_key"`
	// Transfer is how versions reach a server: auto, through the shared memory of this machine where the server has Weir's plugin and takes
	// them, else as a folder; or off, always as a folder. A server that Weir starts by a command of its own name or by python has it. Defaults
	// to auto.
	Transfer string `koanf:"transfer"`
	// StartTimeout bounds how long a server may take to be ready. Defaults to 20m.
	StartTimeout time.Duration `koanf:"start_timeout"`
	// ControlTimeout bounds a pause, a resume and a look at the server. Defaults to 1m.
	ControlTimeout time.Duration `koanf:"control_timeout"`
	// LoadTimeout bounds the loading of a version. Defaults to 10m.
	LoadTimeout time.Duration `koanf:"load_timeout"`
	// StallTimeout is how long a server may send no token for a call, pauses left out, before the call goes on elsewhere. Defaults
	// to 2m.
	StallTimeout time.Duration `koanf:"stall_timeout"`
	// CheckEvery is how often a server is asked whether it is well and has the right weights. Defaults to 5s.
	CheckEvery time.Duration `koanf:"check_every"`
	// VerifyEvery is the number of loads at a server from a verified load to the next: each tensor that the version changed must have
	// changed at the server too. The first load after the server came, was taken out or was seen on old tensors is verified too. It takes a
	// checksum of all tensors before and after, some seconds in which a large model does not sample. A server without checksums is verified
	// by its log-probabilities, which shows only that nothing was loaded at all. 0 verifies none. Defaults to
	// 16.
	VerifyEvery int `koanf:"verify_every"`
	// EndsEvery is the number of calls from a watched call to the next: it is asked with the most likely tokens, to compare how often
	// answers end with the probability of an end. 0 asks none. Defaults to 16.
	EndsEvery int `koanf:"ends_every"`
}

func defaultServerConfig() ServerConfig {
	return ServerConfig{
		Count: 1, Transfer: TransferAuto, StartTimeout: 20 * time.Minute, ControlTimeout: time.Minute, LoadTimeout: 10 * time.Minute,
		StallTimeout: 2 * time.Minute, CheckEvery: 5 * time.Second, VerifyEvery: 16, EndsEvery: 16,
	}
}

// validateSection reports every fault of the section.
func (c ServerConfig) validateSection() error {
	return check.All(
		check.Positive("count", c.Count),
		check.OneOf("transfer", c.Transfer, TransferAuto, TransferOff),
		check.Between("port", c.Port, 0, 65535),
		check.That(!slices.Contains(c.Devices, ""), "devices", "%q: an entry is empty", c.Devices),
		check.Positive("start_timeout", c.StartTimeout),
		check.Positive("control_timeout", c.ControlTimeout),
		check.Positive("load_timeout", c.LoadTimeout),
		check.Positive("stall_timeout", c.StallTimeout),
		check.Positive("check_every", c.CheckEvery),
		check.NotNegative("verify_every", c.VerifyEvery),
		check.NotNegative("ends_every", c.EndsEvery),
	)
}

// validateServers reports faults of the keys that say which servers there are.
func (c Config) validateServers() error {
	if slices.Contains([]string{EngineHere, EngineNative, EngineTorch}, c.Engine) {
		return check.All(
			check.Section("server", c.Server.validateSection()),
			check.That(len(c.Servers) == 0 && c.Server.List == "", "servers", "%s: name what they are in engine: %s or %s",
				strings.Join(append(slices.Clone(c.Servers), c.Server.List), ","), EngineVLLM, EngineSGLang),
		)
	}
	errs := []error{
		check.OneOf("engine", c.Engine, EngineHere, EngineNative, EngineTorch, EngineVLLM, EngineSGLang),
		check.Section("server", c.Server.validateSection()),
		check.That(len(c.Servers) == 0 || c.Server.List == "", "server.list", "%q: servers are named in inference.servers too: name them once", c.Server.List),
	}
	seen := map[string]bool{}
	for _, s := range c.Servers {
		errs = append(errs,
			check.That(ServerURL(s), "servers", "%q: want a URL such as http://gpu-1:8000", s),
			check.That(!seen[s], "servers", "%q: named twice", s))
		seen[s] = true
	}
	return check.All(errs...)
}

// ServerURL reports whether a text is the URL of a server, without a path.
func ServerURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && strings.Trim(u.Path, "/") == "" &&
		u.RawQuery == "" && u.Fragment == "" && u.User == nil
}

// Unread is why nothing depends on a key of the section inference, beginning with the other key that is the reason; "" if something does.
func (c Config) Unread(key string) string {
	name, of := strings.CutPrefix(key, "server.")
	switch {
	case (key == "chunk_tokens" || key == "step_token_budget") && (c.Engine == EngineVLLM || c.Engine == EngineSGLang):
		return fmt.Sprintf("engine is %q, whose servers batch by themselves", c.Engine)
	case strings.HasPrefix(key, "openai.") && key != "openai.listen" && c.OpenAI.Listen == "":
		return "openai.listen is empty: there is no such server"
	case !of:
		return ""
	case c.Engine != EngineVLLM && c.Engine != EngineSGLang:
		return fmt.Sprintf("engine is %q, which are no servers", c.Engine)
	case !slices.Contains([]string{"count", "devices", "command", "args", "port"}, name):
		return ""
	case len(c.Servers) > 0:
		return "servers names those that run already"
	case c.Server.List != "":
		return "server.list names those that run already"
	case name == "count" && len(c.Server.Devices) > 0:
		return "server.devices has a server each"
	}
	return ""
}
