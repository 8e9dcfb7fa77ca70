package mcp

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/sandbox"
)

// Name is the type's in a configuration.
const Name = "mcp"

// everything is the entry of Allow that stands for all tools of the server.
const everything = "*"

// Config says which server is asked, and for which tools. DefaultConfig has the defaults.
type Config struct {
	// Command starts the server: a program and its arguments. URL is a server's address in place of it.
	Command []string `koanf:"command"`
	URL     string   `koanf:"url"`
	// Env names the environment variables that the program is given beside PATH, HOME, TMPDIR and LANG. Weir's own variables, WEIR_..., are
	// refused. Defaults to none.
	Env []string `koanf:"env"`
	// Program says how a command runs.
	sandbox.Program `koanf:",squash"`
	// TokenEnv is an environment variable with the token that a service by URL is sent as "Authorization: Bearer". "" sends none.
	TokenEnv string `koanf:"token_env"`
	// Allow names the tools that agents may call; "*" is all that the server offers. It is needed.
	Allow []string `koanf:"allow"`
	// Prefix is put before the names of the tools, where servers have tools of the same name.
	Prefix string `koanf:"prefix"`
	// Shared gives all episodes the same session, for servers that keep nothing for a caller. Defaults to false.
	Shared bool `koanf:"shared"`
	// StartTimeout bounds the opening of a session. Defaults to 30s.
	StartTimeout time.Duration `koanf:"start_timeout"`
	// MaxMessageBytes bounds a message of the server's, > 0; a longer message ends the session. Defaults to 4194304.
	MaxMessageBytes int `koanf:"max_message_bytes"`
	// OutputBytes bounds how much of a result is shown, > 0. Defaults to 65536.
	OutputBytes int `koanf:"output_bytes"`
}

// DefaultConfig names no server.
func DefaultConfig() Config {
	return Config{Program: sandbox.DefaultProgram(), StartTimeout: 30 * time.Second, MaxMessageBytes: 4 << 20, OutputBytes: 64 << 10}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.That((len(c.Command) > 0) != (c.URL != ""), "command", "want either a command, such as [mcp-files, /data], or url"),
		checkURL(c.URL),
		check.That(len(c.Allow) > 0, "allow", `empty: want the names of the tools that agents may call, or "*"`),
		check.That(c.TokenEnv == "" || c.URL != "", "token_env", "%q: a command is given variables by env", c.TokenEnv),
		check.That(len(c.Env) == 0 || len(c.Command) > 0, "env", "%q: a service by url is given no environment", c.Env),
		check.That(!slices.ContainsFunc(c.Env, func(name string) bool { return name == "" || strings.Contains(name, "=") }), "env",
			"%q: want names of variables, without values", c.Env),
		check.That(!slices.ContainsFunc(c.Env, func(name string) bool { return strings.HasPrefix(name, "WEIR_") }), "env",
			"%q: the variables of Weir's own may hold its keys: give the program a variable of another name", c.Env),
		c.Program.Validate(),
		check.Positive("start_timeout", c.StartTimeout),
		check.Between("max_message_bytes", c.MaxMessageBytes, 1024, 1<<30),
		check.Between("output_bytes", c.OutputBytes, 1, 1<<24),
	)
}

func checkURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("url: not an address")
	case u.User != nil:
		return fmt.Errorf("url: %s: holds a user: put the secret in token_env", u.Redacted())
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("url: %q: want one such as https://tools.example/mcp", text)
	}
	return nil
}

// allowsTool reports whether agents may call a tool.
func (c Config) allowsTool(tool string) bool {
	return slices.Contains(c.Allow, tool) || slices.Contains(c.Allow, everything)
}

// Common reports whether all episodes have the same session.
func (c Config) Common() bool { return c.Shared }

// Sandboxed says whether a program is started in a sandbox.
func (c Config) Sandboxed() bool { return len(c.Command) > 0 && c.Sandbox }

// few are the variables that a program without a sandbox is given beside the configured variables: a sandbox has its own.
var few = []string{"PATH", "HOME", "TMPDIR", "LANG"}

// variablesOf returns these variables of this process's environment, as NAME=value.
func variablesOf(names []string) []string {
	out := []string{}
	for _, name := range names {
		if value, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// readToken returns the bearer token, "" for none. Its errors never hold it.
func (c Config) readToken() (string, error) {
	if c.TokenEnv == "" {
		return "", nil
	}
	token := strings.TrimSpace(os.Getenv(c.TokenEnv))
	if token == "" || strings.ContainsAny(token, " \r\n") {
		return "", fmt.Errorf("token_env: the environment variable %s is empty, or more than one word: want a token", c.TokenEnv)
	}
	return token, nil
}
