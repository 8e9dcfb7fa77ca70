package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/weir-rl/weir/producers"
)

// HeaderKey is the header that carries a call's idempotency key. A retry has the key of the call: a service that remembers its answer to a
// key does the work once.
const HeaderKey = "Idempotency-Key"

const (
	maxBackoff    = 5 * time.Second
	maxRetryAfter = 10 * time.Second
	maxRedirects  = 3
	startRetries  = 6
	maxHeader     = 64 << 10
)

// Client calls a service. It is safe for concurrent use.
type Client struct {
	cfg   Config
	url   *url.URL
	token string
	http  *http.Client
	slots chan struct{}
	// answers counts the answers that could be used.
	answers atomic.Uint64
}

// New makes a client; nothing is sent yet.
func New(cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	token, err := cfg.readToken()
	if err != nil {
		return nil, err
	}
	address, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("url: not an address")
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost: cfg.Concurrency, IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: cfg.AttemptTimeout,
	}
	return &Client{
		cfg: cfg, url: address, token: token, slots: make(chan struct{}, cfg.Concurrency),
		http: &http.Client{Transport: transport, CheckRedirect: CheckRedirect},
	}, nil
}

// Close lets go of idle connections. The client can still be used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// WarnIfPlain logs when the token goes to another machine unencrypted. A nil log is none.
func (c *Client) WarnIfPlain(log *slog.Logger) {
	host := c.url.Hostname()
	if log != nil && c.token != "" && c.url.Scheme == "http" && host != "localhost" && host != "127.0.0.1" && host != "::1" {
		log.Warn("the service's token goes over the network unencrypted: use https", "service", c.String())
	}
}

// String is the service's address without its query.
func (c *Client) String() string { return c.url.Scheme + "://" + c.url.Host + c.url.Path }

// errRedirect marks a redirect that is not followed.
var errRedirect = errors.New("a redirect is not followed")

// CheckRedirect follows a redirect only to the same scheme, host and port, and only where the request stays the same, at most three in a
// row. It is for every client that sends a secret, or that a service could send to addresses of its choice. The error names the host alone.
func CheckRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("%w: %d came one after the other", errRedirect, len(via))
	case req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host:
		return fmt.Errorf("%w to another host, %s://%s: set url to where the service is", errRedirect, req.URL.Scheme, req.URL.Host)
	case req.Method != first.Method:
		return fmt.Errorf("%w that would turn %s into %s: let the service answer 307 or 308", errRedirect, first.Method, req.Method)
	}
	return nil
}

// Post sends a body as JSON and has the answer decoded. key names the call: the same for every attempt at it, and for no
// other call.
func (c *Client) Post(ctx context.Context, key string, body any, decode func([]byte) error) error {
	return c.post(ctx, nil, key, body, decode)
}

// Get asks with further values in the query and has the answer decoded. It is for requests at the start, when the service may be starting
// too: it tries at least startRetries times more.
func (c *Client) Get(ctx context.Context, query url.Values, decode func([]byte) error) error {
	address := *c.url
	values := address.Query()
	for name := range query {
		values.Set(name, query.Get(name))
	}
	address.RawQuery = values.Encode()
	return c.callService(ctx, nil, max(c.cfg.Retries, startRetries), request{method: http.MethodGet, address: address.String()}, decode)
}

// request is what a call sends.
type request struct {
	method, address, key string
	body                 []byte
}

// callService tries until the service answers or refuses, at most retries times after the first attempt. With slot nil each attempt takes
// a slot of its own.
func (c *Client) callService(ctx context.Context, slot *Slot, retries int, r request, decode func([]byte) error) error {
	answered := c.answers.Load()
	// blame marks the failure of a call that fails while others are answered.
	blame := func(err error) error {
		if c.answers.Load() > answered && suspectsCall(err) {
			return &FailedCallError{err}
		}
		return err
	}
	for attempt := 0; ; attempt++ {
		err := c.sendRequest(ctx, slot, r, decode)
		var refused *RefusedError
		if err == nil || errors.As(err, &refused) {
			return err
		}
		var away *awayError
		if cause := context.Cause(ctx); cause != nil {
			return blame(fmt.Errorf("%w: %s: %w (the last attempt: %w)", producers.ErrUnavailable, c, cause, err))
		}
		if !errors.As(err, &away) || attempt == retries {
			return blame(fmt.Errorf("%w: %s: attempt %d: %w", producers.ErrUnavailable, c, attempt+1, err))
		}
		if cause := waitOrCause(ctx, c.backoffAfter(attempt, away.after)); cause != nil {
			return blame(fmt.Errorf("%w: %s: %w (the last attempt: %w)", producers.ErrUnavailable, c, cause, err))
		}
	}
}

// backoffAfter returns how long to wait after an attempt, counted from 0: half of it at random, so that many callers do not come back
// together, and at least as long as the service asked for.
func (c *Client) backoffAfter(attempt int, asked time.Duration) time.Duration {
	longest := c.cfg.Backoff
	for range attempt {
		longest = min(2*longest, maxBackoff)
	}
	wait := time.Duration((0.5 + 0.5*rand.Float64()) * float64(longest))
	return max(wait, min(asked, maxRetryAfter))
}

// waitOrCause waits, or returns why ctx ended before.
func waitOrCause(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sendRequest sends a request and decodes its answer.
func (c *Client) sendRequest(ctx context.Context, slot *Slot, r request, decode func([]byte) error) error {
	if slot == nil {
		own, err := c.TakeSlot(ctx)
		if err != nil {
			return err
		}
		defer own.Leave()
	}
	late := fmt.Errorf("%w within %s", errLate, c.cfg.AttemptTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.AttemptTimeout, late)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, r.address, bytes.NewReader(r.body))
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "weir")
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set(HeaderKey, r.key)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return c.sendFailure(ctx, late, err)
	}
	defer func() { _ = res.Body.Close() }() // only read from
	data, err := io.ReadAll(io.LimitReader(res.Body, int64(c.cfg.MaxBytes)+1))
	if err != nil {
		return c.sendFailure(ctx, late, err)
	}
	whole := len(data) <= c.cfg.MaxBytes
	words := c.quoteAnswer(data)
	if err := checkStatus(res, data, whole, words); err != nil {
		return err
	}
	if !whole {
		return fmt.Errorf("%w, %d", errTooLong, c.cfg.MaxBytes)
	}
	if err := decode(data); err != nil {
		return fmt.Errorf("%w: %w (the answer: %s)", errUnusable, err, cmp.Or(words, "empty"))
	}
	c.answers.Add(1)
	return nil
}

// quoteAnswer is [quoteBody] without the service's token: an answer may repeat it.
func (c *Client) quoteAnswer(body []byte) string {
	if c.token != "" {
		body = bytes.ReplaceAll(body, []byte(c.token), []byte("[token]"))
	}
	return quoteBody(body)
}

// sendFailure returns why no answer came. The address that net/http puts into its errors is left out: its query may hold a secret.
func (c *Client) sendFailure(ctx context.Context, late, err error) error {
	if sent, ok := errors.AsType[*url.Error](err); ok {
		err = sent.Err
	}
	switch {
	case errors.Is(err, errRedirect):
		return err
	case errors.Is(context.Cause(ctx), late):
		return &awayError{err: late}
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("closed the connection without an answer: %w", err)
	}
	return &awayError{err: err}
}
