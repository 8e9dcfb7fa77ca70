package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/weir-rl/weir/internal/child"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/sandbox"
)

// connection is a session with the server.
type connection struct {
	*sdk.ClientSession
	// stop ends it, and the program with all that this started.
	stop func()
}

// openConnection opens a session; a confined program starts on place, or where that is nil on a place that it frees as it ends. The client
// offers the server nothing: no roots, no sampling, no questions to a person.
func (s *Server) openConnection(ctx context.Context, place *sandbox.Place) (*connection, error) {
	c := s.cfg
	client := sdk.NewClient(&sdk.Implementation{Name: "weir", Version: "1"}, &sdk.ClientOptions{
		Capabilities: &sdk.ClientCapabilities{}, MultiRoundTrip: &sdk.MultiRoundTripOptions{Disabled: true},
	})
	opening, cancel := context.WithTimeoutCause(ctx, c.StartTimeout, fmt.Errorf("no session within start_timeout, %s", c.StartTimeout))
	defer cancel()
	transport, end, complaints, err := s.openTransport(opening, place)
	if err != nil {
		return nil, err
	}
	// A transport may go on waiting when its context is over: the program is ended then, which ends the waiting.
	overdue := context.AfterFunc(opening, end)
	session, err := client.Connect(opening, transport, nil)
	if !overdue() && err == nil {
		err = context.Cause(opening)
	}
	if err != nil {
		end()
		if cause := context.Cause(opening); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("open a session: %w%s", err, complaints())
	}
	var once sync.Once
	return &connection{session, func() {
		once.Do(func() {
			if len(c.Command) > 0 {
				end() // first: closing waits for a program that does not end
			}
			_ = session.Close() // it may have ended
			end()
		})
	}}, nil
}

// openTransport opens the way to the server. end ends the started program; complaints returns the program's standard error.
func (s *Server) openTransport(ctx context.Context, place *sandbox.Place) (
	transport sdk.Transport, end func(), complaints func() string, err error,
) {
	c := s.cfg
	if c.URL != "" {
		token, err := c.readToken()
		if err != nil {
			return nil, nil, nil, err
		}
		service, err := url.Parse(c.URL)
		if err != nil {
			return nil, nil, nil, errors.New("url: not an address")
		}
		client := &http.Client{
			Transport:     &bearer{token: token, service: service, base: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}},
			CheckRedirect: remote.CheckRedirect,
		}
		return &sdk.StreamableClientTransport{
			Endpoint: c.URL, HTTPClient: client, MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: c.MaxMessageBytes,
		}, client.CloseIdleConnections, func() string { return "" }, nil
	}
	if c.Sandbox {
		return s.openConfined(ctx, place)
	}
	said := newComplaints()
	cmd := exec.Command(c.Command[0], c.Command[1:]...) //nolint:noctx // it outlives the call that starts it
	cmd.Dir, cmd.Env, cmd.Stderr, cmd.WaitDelay = c.Dir, append(variablesOf(few), variablesOf(c.Env)...), said, time.Second
	process, in, out, err := startPiped(cmd)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("start the server: %w", err)
	}
	return &sdk.IOTransport{Reader: out, Writer: in, MaxLineLength: c.MaxMessageBytes}, func() {
		process.Kill()
		_, _ = in.Close(), out.Close() // the session may have closed them
	}, said.String, nil
}

// startPiped starts a program, and returns its standard input and output. Unlike the pipes of exec.Cmd, they stay open when the program
// ends, so that its last message can be read.
func startPiped(cmd *exec.Cmd) (p *child.Process, stdin, stdout *os.File, err error) {
	theirIn, stdin, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	stdout, theirOut, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, errors.Join(err, theirIn.Close(), stdin.Close())
	}
	cmd.Stdin, cmd.Stdout = theirIn, theirOut
	p, err = child.Start(cmd, syscall.SIGKILL)
	_, _ = theirIn.Close(), theirOut.Close() // the program has its own
	if err != nil {
		return nil, nil, nil, errors.Join(err, stdin.Close(), stdout.Close())
	}
	return p, stdin, stdout, nil
}

// openConfined starts the program in a sandbox of its own.
func (s *Server) openConfined(ctx context.Context, place *sandbox.Place) (
	transport sdk.Transport, end func(), complaints func() string, err error,
) {
	if place == nil {
		if place, err = s.spaces.TakePlace(ctx); err != nil {
			return nil, nil, nil, fmt.Errorf("start the server: %w", err)
		}
		defer place.Leave() // it is free when the program has ended
	}
	spec, err := s.cfg.Spec(s.cfg.Command, variablesOf(s.cfg.Env))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("start the server: %w", err)
	}
	process, err := place.Start(ctx, spec)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("start the server: %w", err)
	}
	said, drained := newComplaints(), make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(said, process.Stderr) // until the program has ended
	}()
	complaints = func() string {
		<-drained
		return said.String()
	}
	return &sdk.IOTransport{Reader: process.Stdout, Writer: process.Stdin, MaxLineLength: s.cfg.MaxMessageBytes}, func() {
		process.Kill()
		<-process.Ended()
		<-drained // all that it said
		process.Close()
	}, complaints, nil
}

// bearer sends a token to the service that is configured, by its scheme and host: net/http asks a transport anew for each redirect.
type bearer struct {
	token   string
	service *url.URL
	base    *http.Transport
}

// RoundTrip adds the header.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" && r.URL.Scheme == b.service.Scheme && r.URL.Host == b.service.Host {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.base.RoundTrip(r)
}

// CloseIdleConnections is asked for by the client of net/http.
func (b *bearer) CloseIdleConnections() { b.base.CloseIdleConnections() }

// complaints are the beginning of a program's standard error.
type complaints struct{ *child.Head }

func newComplaints() complaints { return complaints{child.NewHead(1000)} }

// String is the text of the complaints, as an addition to an error.
func (c complaints) String() string {
	if text := c.Text(); text != "" {
		return fmt.Sprintf(" (the server said: %s)", strings.Join(strings.Fields(text), " "))
	}
	return ""
}

// listTools returns the tools that the server offers.
func (c *connection) listTools(ctx context.Context) ([]*sdk.Tool, error) {
	const most = 10_000
	var out []*sdk.Tool
	for tool, err := range c.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("list the tools: %w", err)
		}
		if out = append(out, tool); len(out) > most {
			return nil, errors.New("list the tools: there are more than 10000")
		}
	}
	return out, nil
}
