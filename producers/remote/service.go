package remote

import (
	"cmp"
	"time"

	"github.com/weir-rl/weir/internal/check"
)

// Service is a service that sections of a configuration name, so that its address, its token and its bounds stand once.
type Service struct {
	// URL is the service's address, http or https, without a user and password: passwords would be shown in logs.
	URL string `koanf:"url"`
	// AttemptTimeout bounds an attempt, the reading of the answer included. 0 is the bound of the section that names the service: 10m for
	// an agent, 20s for simulated_search, 8s for any other.
	AttemptTimeout time.Duration `koanf:"attempt_timeout" min:"0s"`
	// Retries is how often a call is tried again when the service is away, late or overloaded; at most 20. -1 is the number of the section
	// that names the service: 0 for an agent, 2 for any other.
	Retries int `koanf:"retries" default:"-1" min:"-1" max:"20"`
	// Backoff is the longest wait before the first retry; it doubles with every further attempt, up to 5 s. The service may ask for longer
	// with Retry-After, up to 10 s.
	Backoff time.Duration `koanf:"backoff" default:"200ms" min:"0s"`
	// MaxBytes bounds an answer; a longer answer is an error. 0 is the bound of the section that names the service: 16 MiB for a task, 1
	// MiB for any other.
	MaxBytes int `koanf:"max_bytes" min:"0"`
	// Concurrency bounds the calls of a section that are under way at once; others wait. 0 is the bound of the section that names the
	// service: 1024 for an agent, 64 for any other.
	Concurrency int `koanf:"concurrency" min:"0"`
	// TokenFile is a file with the token that is sent as "Authorization: Bearer"; TokenEnv is an environment variable with
	// it. Both "" send none.
	TokenFile string `koanf:"token_file"`
	TokenEnv  string `koanf:"token_env"`
}

// DefaultService has the defaults, and no address.
func DefaultService() Service { return check.Default[Service]() }

// Validate reports every fault.
func (s Service) Validate() error {
	return check.All(
		checkURL(s.URL),
		check.Fields(s),
		check.That(s.TokenFile == "" || s.TokenEnv == "", "token_env", "%q: token_file is set too: keep one of them", s.TokenEnv),
	)
}

// over is how the service is called by a section that calls services as c says.
func (s Service) over(c Config) Config {
	out := Config{
		URL: s.URL, AttemptTimeout: cmp.Or(s.AttemptTimeout, c.AttemptTimeout), Retries: s.Retries, Backoff: s.Backoff,
		MaxBytes: cmp.Or(s.MaxBytes, c.MaxBytes), Concurrency: cmp.Or(s.Concurrency, c.Concurrency), TokenFile: s.TokenFile, TokenEnv: s.TokenEnv,
	}
	if s.Retries < 0 {
		out.Retries = c.Retries
	}
	return out
}
