package view_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/view"
)

// Finding 5 of the ninth reader: an open page of a folder of runs never showed the runs that began later, where a page that was opened then
// did.
func TestAnOpenPageShowsRunsThatBeginLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begin := func(name string) view.Run {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, runfolder.CheckpointsFolder), 0o755))
		return view.Run{Run: runfolder.Run{Name: name, Dir: filepath.Join(dir, name)}}
	}
	later := []view.Run{}
	server, err := view.Listen(view.Config{Listen: "127.0.0.1:0"}, view.Deps{
		Runs: []view.Run{begin("first")},
		More: func(shown func(dir string) bool) (out []view.Run) {
			require.True(t, shown(filepath.Join(dir, "first")))
			for _, r := range later {
				if !shown(r.Dir) {
					out = append(out, r)
				}
			}
			return out
		},
	}, false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	base, _, _ := strings.Cut(server.URL(), "/#")
	ask := func(path string) (status int, names []string) {
		resp, err := http.Get(base + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		var answer struct {
			Runs []struct {
				Name string `json:"name"`
			} `json:"runs"`
		}
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
		for _, r := range answer.Runs {
			names = append(names, r.Name)
		}
		return resp.StatusCode, names
	}
	_, names := ask("/api/runs")
	require.Equal(t, []string{"first"}, names)
	later = append(later, begin("second"))
	for range 2 {
		_, names = ask("/api/runs")
		require.Equal(t, []string{"first", "second"}, names)
	}
	status, _ := ask("/api/runs/second/overview")
	require.Equal(t, http.StatusOK, status)
	cancel()
	require.NoError(t, <-ended)
	http.DefaultClient.CloseIdleConnections()
}
