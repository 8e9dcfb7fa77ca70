package assembly

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// weightless is a policy without weights.
type weightless struct{}

func (weightless) Config() gpu.Config                                   { return gpu.Config{} }
func (weightless) SaveOptimizer(context.Context, string) (int64, error) { return 0, nil }
func (weightless) Export(_ context.Context, dir string, _ gpu.ExportOptions) (gpu.Pending, error) {
	return gpu.Written(nil), errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, gpu.ConfigFile), []byte("{}"), 0o600))
}

// The trainer signs each line of its record, also a line that it writes anew.
func TestTheTrainerSignsEachLineOfItsRecord(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	secret, err := pair.Seed()
	require.NoError(t, err)
	seed := filepath.Join(t.TempDir(), "seed")
	require.NoError(t, os.WriteFile(seed, secret, 0o600))
	store, err := checkpoint.Open(checkpoint.Config{Dir: t.TempDir(), Keep: 2})
	require.NoError(t, err)
	defer store.Close()
	role := &trainerRole{process: process{log: slog.New(slog.DiscardHandler)}}
	role.signer, err = audit.NewSigner("test", store.Dir(), seed)
	require.NoError(t, err)
	defer role.signer.Close()
	store.After, store.Rewrites = role.afterStage, role.signAhead
	c := func(step int64, cursor uint64) *checkpoint.Checkpoint {
		c := &checkpoint.Checkpoint{State: checkpoint.State{Step: step, Run: "test", Light: step > 0}, Policy: weightless{}}
		c.Record.Step, c.Record.NextCursor = step, cursor
		return c
	}
	for _, act := range []func() error{
		func() error { return store.Save(t.Context(), c(0, 0)) },
		func() error { return store.Save(t.Context(), c(1, 0)) },
		func() error { return store.Renew(t.Context(), c(1, 1)) },
		func() error { return store.Complete(t.Context(), c(1, 2)) },
	} {
		require.NoError(t, act())
		found, err := audit.Verify("test", store.Dir(), nil)
		require.NoError(t, err)
		require.Empty(t, found.Damage)
		require.Equal(t, found.Records-1, int(found.Signed.Step))
	}
}
