package torch_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/gpu/torch"
)

// machine is another machine that lends its ranks, as far as this process can be one.
type machine struct {
	address string
	// stop ends it and waits for that.
	stop func()
}

func secretFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "torch.secret")
	require.NoError(t, torch.WriteSecret(path))
	return path
}

func lending(t testing.TB, secret string) machine {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- torch.Serving{Secret: secret, Interface: "lo"}.Serve(ctx, l) }()
	stop := sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return machine{l.Addr().String(), stop}
}

// through is a connection to an address that can be cut.
func through(t testing.TB, address string) (own string, cut func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var open []net.Conn
	var work sync.WaitGroup
	work.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", address)
			if err != nil {
				_ = a.Close()
				continue
			}
			mu.Lock()
			open = append(open, a, b)
			mu.Unlock()
			work.Go(func() { _, _ = io.Copy(a, b); _ = a.Close() })
			work.Go(func() { _, _ = io.Copy(b, a); _ = b.Close() })
		}
	})
	cut = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
	}
	t.Cleanup(func() { _ = l.Close(); cut(); work.Wait() })
	return l.Addr().String(), cut
}

func apart(secret string, machines ...string) torch.Backend {
	b := backend(1 + len(machines))
	b.Config.Deterministic, b.Config.Machines, b.Config.SecretFile, b.Config.Interface = false, machines, secret, "lo"
	return b
}

// A rank here and a rank of another machine train as one engine in Go does; the connection is lost, and the machine, and each time the
// group ends with all its ranks and begins anew.
func TestRanksOfAnotherMachineTrainAlong(t *testing.T) {
	needTime(t)
	needPython(t)
	cfg := families()["qwen3"]
	folder, secret := written(t, cfg), secretFile(t)
	far := lending(t, secret)
	address, cut := through(t, far.address)
	e := engineOf(t, apart(secret, address), cfg).(*torch.Engine)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	parts, up := someParts(cfg)
	inGo, err := native.New(cfg, native.Options{})
	require.NoError(t, err)
	train(t, inGo, folder, parts, up).near(t, train(t, e, folder, parts, up), 1e-4)

	lost := func(how string) {
		_, err := e.Step(t.Context(), stepOptions)
		require.ErrorIs(t, err, gpu.ErrLost, how)
		require.ErrorContains(t, err, "rank ", how)
	}
	again := func() {
		require.NoError(t, e.Discard(t.Context()))
		require.NoError(t, e.Import(t.Context(), folder))
	}
	pids := e.PIDs()
	require.Len(t, pids, 1, "the other is not of this machine")
	cut()
	lost("the connection")
	require.False(t, running(pids[0]))
	again()
	require.NoError(t, syscall.Kill(torch.FarPID(e), syscall.SIGKILL))
	lost("the other rank")
	again()
	other := torch.FarPID(e)
	far.stop()
	lost("the machine")
	require.False(t, running(other), "what was lent ends with the machine's worker")
	require.NoError(t, e.Discard(t.Context()))
	require.ErrorContains(t, e.Import(t.Context(), folder), "torch.machines: "+address)
}

// Who has another secret gets no rank, and lends none.
func TestAnotherSecretIsRefused(t *testing.T) {
	t.Parallel()
	needTime(t)
	needPython(t)
	cfg := families()["llama"]
	folder := written(t, cfg)
	far := lending(t, secretFile(t))
	e := engineOf(t, apart(secretFile(t), far.address), cfg)
	err := e.Import(t.Context(), folder)
	require.ErrorContains(t, err, "torch.machines: "+far.address)
	require.ErrorContains(t, err, "another secret")
	require.NoError(t, e.Close())

	// One who does not care whom it speaks to is not answered.
	require.Error(t, torch.AskBlindly(t.Context(), far.address))

	broken := filepath.Join(t.TempDir(), "short")
	require.NoError(t, os.WriteFile(broken, []byte("abcd\n"), 0o600))
	e = engineOf(t, apart(broken, far.address), cfg)
	require.ErrorContains(t, e.Import(t.Context(), folder), "want 32 bytes as hexadecimal digits, as weir keys --torch")
	require.NoError(t, e.Close())
	require.ErrorContains(t, torch.WriteSecret(broken), "file exists")
}

func TestMachinesAreCheckedBeforeAnythingStarts(t *testing.T) {
	t.Parallel()
	c := torch.DefaultConfig()
	c.Ranks, c.Machines = 3, []string{"gpu2"}
	err := c.Validate()
	for _, want := range []string{"ranks: 3: must be the same number on each of 2 machines", `machines: "gpu2": want host:port`, "secret_file: empty"} {
		require.ErrorContains(t, err, want)
	}
	c.Ranks, c.Machines, c.SecretFile = 4, []string{"gpu2:7070"}, "s"
	require.NoError(t, c.Validate())
}
