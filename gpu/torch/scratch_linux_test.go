package torch_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/gpu/torch"
)

// What a maker that was killed has left goes with the next one's start; what belongs to one that lives stays.
func TestScratchFoldersOfTheDeadAreRemoved(t *testing.T) {
	t.Parallel()
	in := t.TempDir()
	foreign := filepath.Join(in, "weir-torch-other")
	require.NoError(t, os.Mkdir(foreign, 0o700))
	dead, abandon, err := torch.NewScratch(in)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dead, "model.safetensors"), []byte("x"), 0o600))
	alive, leave, err := torch.NewScratch(in)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, leave()) }) // a lock that nothing refers to is let go of
	require.FileExists(t, filepath.Join(dead, "model.safetensors"), "its maker lives")
	require.NoError(t, abandon()) // as the system does when a process is killed
	// A process that another test is starting holds the lock until it runs its own program.
	require.Eventually(t, func() bool {
		_, _, err := torch.NewScratch(in)
		require.NoError(t, err)
		_, err = os.Stat(dead)
		return errors.Is(err, os.ErrNotExist)
	}, patience, time.Millisecond)
	require.DirExists(t, alive)
	require.DirExists(t, foreign, "nothing says whose it is")
}

// hanging is a Python that has PyTorch and never comes to run it; said tells its process id.
func hanging(t *testing.T) (python string, started func() (pid int)) {
	t.Helper()
	dir := t.TempDir()
	python, said := filepath.Join(dir, "python3"), filepath.Join(dir, "pid")
	text := fmt.Sprintf(`#!/bin/sh
case "$2" in *find_spec*) exit 0;; esac
echo $$ > %s.new
mv %s.new %s
exec sleep 600
`, said, said, said)
	require.NoError(t, os.WriteFile(python, []byte(text), 0o755))
	return python, func() (pid int) {
		require.Eventually(t, func() bool {
			data, err := os.ReadFile(said)
			if err == nil {
				_, err = fmt.Sscan(string(data), &pid)
			}
			return err == nil
		}, patience, 20*time.Millisecond)
		return pid
	}
}

// A sampler that is being started is given up with the context of its Start, and with its decoder's End.
func TestASamplerThatStartsIsGivenUp(t *testing.T) {
	t.Parallel()
	cfg := families()["llama"]
	cfg.ValueHead = false
	dir := written(t, cfg)
	model, err := hf.Load(dir)
	require.NoError(t, err)
	for name, giveUp := range map[string]func(cancel func(), d gpu.Decoder){
		"context": func(cancel func(), _ gpu.Decoder) { cancel() },
		"end":     func(_ func(), d gpu.Decoder) { d.(gpu.Ender).End() },
	} {
		b := backend(1)
		var started func() int
		b.Config.Python, started = hanging(t)
		b.Config.StartTimeout = time.Hour
		d, err := b.NewDecoder(cfg, model.Weights, gpu.DecoderOptions{Slots: 1, MaxTokens: 16, Dir: dir})
		require.NoError(t, err, name)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.(gpu.Starter).Start(ctx) }()
		pid := started()
		giveUp(cancel, d)
		require.Error(t, <-ended, name)
		require.False(t, running(pid), "%s: its process is left", name)
		cancel()
		d.(gpu.Ender).End()
	}
}

// One rank has the new weights and the other cannot read them: nothing may be trained on such a pair.
func TestRanksOfDifferentWeightsAreLost(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["llama"]
	folder, next := written(t, cfg), writtenFrom(t, cfg, 2)
	e := opened(t, backend(2), cfg, folder)
	torch.SetSilentAfter(e, time.Hour)
	pids := e.PIDs()
	require.NoError(t, syscall.Kill(pids[1], syscall.SIGSTOP))
	imported := make(chan error, 1)
	asked := torch.Asked(e, 1, "load")
	go func() { imported <- e.Import(t.Context(), next) }()
	require.Eventually(t, asked, patience, 10*time.Millisecond, "rank 1 has the order to load")
	require.NoError(t, os.RemoveAll(next))
	require.NoError(t, syscall.Kill(pids[1], syscall.SIGCONT))
	err := <-imported
	require.ErrorIs(t, err, gpu.ErrLost)
	require.ErrorContains(t, err, "rank 1")
	require.ErrorContains(t, err, "No such file")
	requireLost(t, e, pids, folder)
}

// A process that is killed while it starts is replaced like one that is killed later.
func TestASamplerKilledAtItsStartIsReplaced(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["llama"]
	cfg.ValueHead = false
	dir := written(t, cfg)
	model, err := hf.Load(dir)
	require.NoError(t, err)
	b := backend(1)
	once := filepath.Join(t.TempDir(), "once")
	b.Config.Python = filepath.Join(t.TempDir(), "python3")
	text := fmt.Sprintf(`#!/bin/sh
case "$2" in *find_spec*) exit 0;; esac
if [ ! -e %s ]; then touch %s; kill -9 $$; fi
for p in python3 /usr/bin/python3; do "$p" -c 'import torch' 2>/dev/null && exec "$p" "$@"; done
`, once, once)
	require.NoError(t, os.WriteFile(b.Config.Python, []byte(text), 0o755))
	d, err := b.NewDecoder(cfg, model.Weights, gpu.DecoderOptions{Slots: 1, MaxTokens: 16, Dir: dir})
	require.NoError(t, err)
	t.Cleanup(d.(gpu.Ender).End)
	slot, err := d.Open()
	require.NoError(t, err)
	out, err := d.Extend(t.Context(), []gpu.Extension{{Slot: slot, Tokens: []int32{1, 2}, Sample: true, Temperature: 1}})
	require.NoError(t, err)
	require.NoError(t, out[0].Err)
	require.FileExists(t, once)
}
