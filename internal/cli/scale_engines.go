package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/scale"
)

// enginesFlag names pages of metrics on which the calls stand that wait for inference consumers.
func enginesFlag(cmd *cobra.Command) *[]string {
	return cmd.Flags().StringArray("engines", nil, "metrics of inference consumers, of all that a name stands for; may be given again")
}

// readCalls adds up the calls that wait and run at the engines. A page that does not answer counts for nothing: its consumer may be about
// to start, or gone.
func readCalls(ctx context.Context, log *slog.Logger, signal *scale.Signal, pages []string) {
	for _, page := range pages {
		for _, host := range lookUpAddresses(ctx, page) {
			waiting, running, err := callsAt(ctx, page, host)
			if err != nil {
				log.Debug("ask an engine what waits", "page", page, "host", host, "err", err)
				continue
			}
			signal.CallsWaiting, signal.CallsRunning = addCount(signal.CallsWaiting, waiting), addCount(signal.CallsRunning, running)
		}
	}
}

// lookUpAddresses are the hosts and ports that a page's name stands for: each a container or a machine. Of a machine with addresses of both
// kinds the IPv4 addresses count, so that it counts once.
func lookUpAddresses(ctx context.Context, page string) []string {
	at, err := url.Parse(page)
	if err != nil {
		return []string{""} // asking for the page reports the error
	}
	port := cmp.Or(at.Port(), map[string]string{"https": "443"}[at.Scheme], "80")
	for _, kind := range []string{"ip4", "ip6"} {
		found, err := net.DefaultResolver.LookupNetIP(ctx, kind, at.Hostname())
		if err != nil || len(found) == 0 {
			continue
		}
		hosts := make([]string, len(found))
		for i, ip := range found {
			hosts[i] = net.JoinHostPort(ip.Unmap().String(), port)
		}
		return hosts
	}
	return []string{net.JoinHostPort(at.Hostname(), port)}
}

// pageWithin bounds the reading of a page: a consumer that hangs must not keep the others from being read.
const pageWithin = 2 * time.Second

func addCount(sum *int, n int) *int {
	if sum != nil {
		n += *sum
	}
	return &n
}

// callsAt reads from a page of metrics how many calls wait and run, at an address that its name stands for.
func callsAt(ctx context.Context, page, host string) (waiting, running int, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageWithin)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return 0, 0, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, host)
	}}}
	res, err := client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("%s: %s", page, res.Status)
	}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		x, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		switch name {
		case "weir_inference_waiting":
			waiting = int(x)
		case "weir_inference_running":
			running = int(x)
		}
	}
	return waiting, running, lines.Err()
}
