package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/checkpoint"
)

// A line that is written anew, as when a light checkpoint is made a full one at a start, was not signed, and the old signature called the new
// line damage for good.
func TestALineThatIsWrittenAnewIsSignedBefore(t *testing.T) {
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
	newSigner := func() *Signer {
		s, err := NewSigner("test", store.Dir(), seed)
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	signer := newSigner()
	of := func(step int64, cursor uint64, light bool) *checkpoint.Checkpoint {
		c := &checkpoint.Checkpoint{State: checkpoint.State{Step: step, Run: "test", Light: light}, Record: *stepOf(step), Policy: tensorModels{}}
		c.Record.NextCursor = cursor
		return c
	}
	verify := func() *Verified {
		found, err := Verify("test", store.Dir(), nil)
		require.NoError(t, err)
		return found
	}
	save := func(step int64) {
		require.NoError(t, store.Save(t.Context(), of(step, 1, step > 0)))
		require.NoError(t, signer.Sign())
	}
	save(0)
	save(1)
	store.Rewrites = func(step int64, before, chain string) { require.NoError(t, signer.SignAhead(step, before, chain)) }
	for cursor := uint64(2); cursor < 5; cursor++ {
		require.NoError(t, store.Renew(t.Context(), of(1, cursor, true)))
		require.Empty(t, verify().Damage)
		require.NoError(t, signer.SignRewritten(), "it is signed already")
		signer = newSigner()
	}
	require.NoError(t, store.Complete(t.Context(), of(1, 5, false)))
	lines, err := os.ReadFile(filepath.Join(store.Dir(), SignatureFile))
	require.NoError(t, err)
	require.Equal(t, 6, strings.Count(string(lines), "\n"))
	require.Empty(t, verify().Damage)
	save(2)
	require.Empty(t, verify().Damage)
	require.EqualValues(t, 2, verify().Signed.Step)

	// Where no line of the step could be signed both lines are.
	signatures := filepath.Join(store.Dir(), SignatureFile)
	whole, err := os.ReadFile(signatures)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(signatures, whole[:strings.LastIndex(string(whole[:len(whole)-1]), "\n")+1], 0o600))
	signer = newSigner()
	require.NoError(t, store.Renew(t.Context(), of(2, 7, true)))
	require.Empty(t, verify().Damage)
	require.EqualValues(t, 2, verify().Signed.Step)

	// A line that no signature of its step has is damage, and the signer that rewrites it does not hide that.
	store.Rewrites = nil
	require.NoError(t, store.Renew(t.Context(), of(2, 8, true)))
	changed := func() {
		t.Helper()
		require.Len(t, verify().Damage, 2, "of both signatures")
		require.Contains(t, verify().Damage[0].Want, "which is signed")
	}
	changed()
	var refused error
	store.Rewrites = func(step int64, before, chain string) { refused = signer.SignAhead(step, before, chain) }
	require.NoError(t, store.Renew(t.Context(), of(2, 9, true)))
	require.ErrorContains(t, refused, "the line was changed")
	require.NoError(t, signer.SignRewritten())
	changed()
	save(3)
	changed()
}
