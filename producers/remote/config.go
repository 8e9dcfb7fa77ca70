package remote

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/weir-rl/weir/internal/check"
)

// Config says how a service is reached. DefaultConfig has the defaults.
type Config struct {
	// URL is the service's address, http or https, without a user and password: passwords would be shown in logs.
	URL string `koanf:"url"`
	// AttemptTimeout bounds an attempt, the reading of the answer included, > 0. Defaults to 8s.
	AttemptTimeout time.Duration `koanf:"attempt_timeout"`
	// Retries is how often a call is tried again when the service is away, late or overloaded, >= 0. Defaults to 2.
	Retries int `koanf:"retries"`
	// Backoff is the longest wait before the first retry; it doubles with every further attempt, up to 5 s. The service may ask for longer
	// with Retry-After, up to 10 s. Defaults to 200ms.
	Backoff time.Duration `koanf:"backoff"`
	// MaxBytes bounds an answer, > 0; a longer answer is an error. Defaults to 1 MiB.
	MaxBytes int `koanf:"max_bytes"`
	// Concurrency bounds the calls that are under way at once, > 0; others wait. Defaults to 64.
	Concurrency int `koanf:"concurrency"`
	// TokenFile is a file with the token that is sent as "Authorization: Bearer"; TokenEnv is an environment variable with
	// it. Both "" send none.
	TokenFile string `koanf:"token_file"`
	TokenEnv  string `koanf:"token_env"`
}

// DefaultConfig is three attempts of 8 s, answers of 1 MiB, 64 calls at once, and no token.
func DefaultConfig() Config {
	return Config{AttemptTimeout: 8 * time.Second, Retries: 2, Backoff: 200 * time.Millisecond, MaxBytes: 1 << 20, Concurrency: 64}
}

// maxRetries bounds Config.Retries, so that a service that is away for good is noticed.
const maxRetries = 20

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		checkURL(c.URL),
		check.Positive("attempt_timeout", c.AttemptTimeout),
		check.Between("retries", c.Retries, 0, maxRetries),
		check.NotNegative("backoff", c.Backoff),
		check.Positive("max_bytes", c.MaxBytes),
		check.Positive("concurrency", c.Concurrency),
		check.That(c.TokenFile == "" || c.TokenEnv == "", "token_env", "%q: token_file is set too: keep one of them", c.TokenEnv),
	)
}

// checkURL never quotes text that may be a password.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return errors.New(`url: "": want the service's address, such as http://127.0.0.1:8900/tool`)
	case err != nil:
		return errors.New("url: not an address: want one such as http://127.0.0.1:8900/tool")
	case u.User != nil:
		return fmt.Errorf("url: %s: holds a user: put the secret in token_file or token_env", u.Redacted())
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("url: %q: want http:// or https://", text)
	case u.Host == "":
		return fmt.Errorf("url: %q: names no host", text)
	case u.Fragment != "":
		return fmt.Errorf("url: %q: a fragment is not sent: leave out #%s", text, u.Fragment)
	}
	return nil
}

// readToken reads the bearer token, "" for none. Its errors never hold it.
func (c Config) readToken() (string, error) {
	var token, from string
	switch {
	case c.TokenFile != "":
		data, err := os.ReadFile(c.TokenFile)
		if err != nil {
			return "", fmt.Errorf("token_file: %w", err)
		}
		token, from = string(data), "token_file: "+c.TokenFile
	case c.TokenEnv != "":
		token, from = os.Getenv(c.TokenEnv), "token_env: the environment variable "+c.TokenEnv
	default:
		return "", nil
	}
	token = strings.TrimSpace(token)
	switch {
	case token == "":
		return "", fmt.Errorf("%s: is empty: want a token", from)
	case strings.ContainsFunc(token, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }):
		return "", fmt.Errorf("%s: holds more than one word, or characters that no header can carry: want a token alone", from)
	}
	return token, nil
}
