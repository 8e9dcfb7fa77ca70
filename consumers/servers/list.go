package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weir-rl/weir/consumers"
)

// readList keeps the servers at the URLs in their file, until ctx ends.
func (p *Pool) readList(ctx context.Context) {
	tick := time.NewTicker(p.cfg.Server.CheckEvery)
	defer tick.Stop()
	last, failed := "", ""
	for {
		urls, err := ReadList(p.cfg.Server.List)
		if err == nil && len(urls) == 0 && last != "" {
			err = errEmptyList
		}
		switch key := strings.Join(urls, "\n"); {
		case err != nil:
			if failed != err.Error() {
				failed = err.Error()
				p.log.Warn("the list of inference servers cannot be used; those known stay", "err", err)
			}
		case key != last:
			last, failed = key, ""
			p.log.Info("the list of inference servers is read", "servers", len(urls))
			p.Set(urls)
		default:
			failed = ""
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// errEmptyList is a list without a server, where the list before had servers. A file that is being written is empty for a moment.
var errEmptyList = errors.New("inference.server.list: it has no server now, as while it is written; " +
	"name at least one server, or stop the role to use none")

// ReadList reads a file with the URL of a server in each line; lines that begin with # are comments.
func ReadList(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("inference.server.list: %w", err)
	}
	var urls []string
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !consumers.ServerURL(line) {
			return nil, fmt.Errorf("inference.server.list: %s: line %d: %q: want a URL such as http://gpu-1:8000", path, i+1, line)
		}
		urls = append(urls, line)
	}
	return urls, nil
}
