package load

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/streams/broker"
)

// Serve is a broker in a process of its own: its address and its page's are its first line. It ends with its standard input, so that it
// is not left behind.
func Serve(ctx context.Context, dir string, sync bool) error {
	cfg := harness.BrokerConfig(dir)
	cfg.Monitor, cfg.SyncAlways = "127.0.0.1:0", sync
	b, err := broker.Start(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer b.Shutdown()
	fmt.Println(b.URL(), b.MonitorURL())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// child is the broker's process.
type child struct {
	cmd          *exec.Cmd
	in           io.Closer
	url, monitor string
}

// startChild starts a program that calls [Serve] with its last two arguments.
func startChild(ctx context.Context, program []string, dir string, sync bool) (*child, error) {
	cmd := exec.CommandContext(ctx, program[0], slices.Concat(program[1:], []string{dir, strconv.FormatBool(sync)})...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt ends the clients first
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, in: in}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the broker did not start: %w", err)
	}
	c.url, c.monitor, _ = strings.Cut(strings.TrimSpace(line), " ")
	return c, nil
}

func (c *child) stopBroker() error {
	_ = c.in.Close()
	return c.cmd.Wait()
}

// traffic are the counts of the broker's server, of every client and of itself.
type traffic struct {
	InMsgs   int64 `json:"in_msgs"`
	OutMsgs  int64 `json:"out_msgs"`
	InBytes  int64 `json:"in_bytes"`
	OutBytes int64 `json:"out_bytes"`
}

func (c *child) readTraffic(ctx context.Context) (t traffic, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.monitor+"/varz", http.NoBody)
	if err != nil {
		return t, err
	}
	once := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := once.Do(req)
	if err != nil {
		return t, err
	}
	defer res.Body.Close()
	return t, json.NewDecoder(res.Body).Decode(&t)
}
