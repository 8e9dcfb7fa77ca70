package audit

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/archive"
	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// tensorModels writes a file of tensors too.
type tensorModels struct{ models }

func (m tensorModels) SaveOptimizer(_ context.Context, dir string) (int64, error) {
	return 0, os.WriteFile(filepath.Join(dir, gpu.OptimizerFile), bytes.Repeat([]byte("moments "), 40), 0o644)
}

// saveRun writes the checkpoints, the record, the batches and the signatures of a run of six steps.
func saveRun(t *testing.T) (dir, public string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err := pair.Seed()
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "trainer.seed")
	require.NoError(t, os.WriteFile(file, append(seed, '\n'), 0o600))
	cfg := checkpoint.DefaultConfig()
	cfg.Dir = t.TempDir()
	s, err := checkpoint.Open(cfg)
	require.NoError(t, err)
	signer, err := NewSigner("test", cfg.Dir, file)
	require.NoError(t, err)
	defer signer.Close()
	for step := range int64(6) {
		c := &checkpoint.Checkpoint{
			State: checkpoint.State{Step: step, Run: "test"}, Record: *stepOf(step), Policy: tensorModels{},
		}
		if step > 0 {
			id := batch.TicketID(uint64(step), 0, 0)
			c.Batch = []schemas.Delivery{{Sequence: uint64(step), Trajectory: &schemas.Trajectory{ID: id, Group: batch.GroupID(uint64(step), 0)}}}
		}
		require.NoError(t, s.Save(t.Context(), c))
		if step != 3 { // a trainer that was killed before it signed
			require.NoError(t, signer.Sign())
		}
	}
	require.NoError(t, s.Close())
	public, err = pair.PublicKey()
	require.NoError(t, err)
	return cfg.Dir, public
}

// Invariant: a flipped bit in any record, kept batch, signature and file of a checkpoint is found, and its file and step are named.
func TestInvariantAFlippedBitIsFound(t *testing.T) {
	t.Parallel()
	dir, public := saveRun(t)
	found, err := Verify("test", dir, []string{public})
	require.NoError(t, err)
	require.NoError(t, found.Err(), "%v", found.Damage)
	require.Empty(t, found.Notes)
	require.Equal(t, Signed{5, []string{public}}, found.Signed)
	require.Equal(t, 6, found.Records)
	require.Equal(t, 5, found.Batches)
	require.Equal(t, 3, found.Checkpoints, "the newest two, and the first, which the kept batches are replayed from")
	step := func(n, file string) string { return filepath.Join("step_00000"+n, file) }
	files := []string{
		checkpoint.RecordFile, SignatureFile, filepath.Join("batches", "step_000001.zst"), filepath.Join("batches", "step_000005.zst"),
		step("4", gpu.OptimizerFile), step("5", gpu.OptimizerFile), step("5", "state.json"), step("4", "record.json"),
	}
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.SampledFrom(files).Draw(rt, "file")
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		require.NoError(rt, err)
		at := rapid.OneOf(rapid.IntRange(0, len(whole)-1), rapid.IntRange(max(0, len(whole)-90), len(whole)-1)).Draw(rt, "at")
		changed := bytes.Clone(whole)
		changed[at] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		require.NoError(rt, os.WriteFile(path, changed, 0o644))
		found, err := Verify("test", dir, []string{public})
		require.NoError(rt, err)
		require.NoError(rt, os.WriteFile(path, whole, 0o644))
		require.Error(rt, found.Err())
		named := false
		for _, d := range found.Damage {
			named = named || d.File == name
			require.NotEqual(rt, d.Want, d.Have)
		}
		require.True(rt, named, "%s: %v", name, found.Damage)
	})
}

// A line of signatures that was cut off, as by a full disk, is no damage, and the next signature takes its place: nothing was signed any more.
func TestASignatureThatWasCutOffIsWrittenAgain(t *testing.T) {
	t.Parallel()
	dir, seed := t.TempDir(), filepath.Join(t.TempDir(), "seed")
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	secret, err := pair.Seed()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(seed, secret, 0o600))
	path := filepath.Join(dir, SignatureFile)
	sign := func(step int64) []byte {
		require.NoError(t, os.WriteFile(filepath.Join(dir, checkpoint.RecordFile), fmt.Appendf(nil, "{\"step\":%d,\"chain\":\"ab\"}\n", step), 0o600))
		s, err := NewSigner("test", dir, seed)
		require.NoError(t, err)
		defer s.Close()
		require.NoError(t, s.Sign())
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return data
	}
	first := sign(1)
	both := sign(2)
	for _, size := range []int{1, len(both) - len(first) - 1} {
		require.NoError(t, os.WriteFile(path, both[:len(first)+size], 0o600))
		found := &Verified{}
		require.NoError(t, found.checkSignatures("test", dir, map[int64]string{1: "ab"}, nil))
		require.Empty(t, found.Damage)
		require.Equal(t, []string{SignatureFile + ": its last line was cut off: the next signature takes its place"}, found.Notes)
		require.EqualValues(t, 1, found.Signed.Step)
		require.Equal(t, both, sign(2))
	}
}

// A signature of a step whose line was removed signs nothing that is left: a record that a stranger wrote anew below it is not called signed.
func TestASignatureOfARemovedLineSignsNothing(t *testing.T) {
	t.Parallel()
	dir, public := saveRun(t)
	require.NoError(t, os.RemoveAll(checkpoint.StepDir(dir, 5)))
	path := filepath.Join(dir, checkpoint.RecordFile)
	record, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := bytes.SplitAfter(record, []byte("\n"))
	require.NoError(t, os.WriteFile(path, bytes.Join(lines[:5], nil), 0o600))
	path = filepath.Join(dir, SignatureFile)
	signed, err := os.ReadFile(path)
	require.NoError(t, err)
	lines = bytes.SplitAfter(signed, []byte("\n"))
	require.NoError(t, os.WriteFile(path, lines[4], 0o600)) // that of step 5 alone

	found, err := Verify("test", dir, []string{public})
	require.NoError(t, err)
	require.Equal(t, Signed{-1, []string{}}, found.Signed)
	require.Contains(t, found.Notes, SignatureFile+": step 5 is signed, and the record has no line of it: the run went back, or lines were removed")
	require.NoError(t, os.WriteFile(path, signed, 0o600))
	found, err = Verify("test", dir, []string{public})
	require.NoError(t, err)
	require.EqualValues(t, 4, found.Signed.Step)
}

func TestWhatIsGoneOrOfAnotherIsFound(t *testing.T) {
	t.Parallel()
	dir, public := saveRun(t)
	verify := func(run string, trusted ...string) []string {
		found, err := Verify(run, dir, trusted)
		require.NoError(t, err)
		var out []string
		for _, d := range found.Damage {
			out = append(out, d.String())
		}
		return out
	}
	require.Empty(t, verify("test"))
	other, err := nkeys.CreateUser()
	require.NoError(t, err)
	stranger, err := other.PublicKey()
	require.NoError(t, err)
	require.Contains(t, verify("test", stranger)[0], "signatures.jsonl, step 0: want a signature by "+stranger+", have one by "+public)
	require.Contains(t, verify("other", public)[0], "want a signature of run other, have one of run test")

	// A batch between others is missed; those that were removed to make room are not.
	require.NoError(t, os.Remove(checkpoint.BatchPath(dir, 1)))
	require.Empty(t, verify("test"))
	require.NoError(t, os.Remove(checkpoint.BatchPath(dir, 3)))
	require.Contains(t, verify("test")[0], "step_000003.zst, step 3: want SHA-256 ")

	// A record that somebody wrote anew, with its chain, is not the record that was signed.
	path := filepath.Join(dir, checkpoint.RecordFile)
	lines, err := os.ReadFile(path)
	require.NoError(t, err)
	cut := bytes.LastIndex(lines[:len(lines)-1], []byte("\n")) + 1
	require.NoError(t, os.WriteFile(path, lines[:cut+30], 0o644))
	found, err := Verify("test", dir, nil)
	require.NoError(t, err)
	require.Len(t, found.Damage, 1, "the batch alone: %v", found.Damage)
	require.Contains(t, strings.Join(found.Notes, "\n"), "the line of step 5 is not written whole yet")
}

// A low finding of earlier readers: the end of the archive could be cut off, or its newest segment of messages removed, and nothing told.
func TestAnArchiveThatEndsBeforeTheRecordIsTold(t *testing.T) {
	t.Parallel()
	dir, public := saveRun(t) // steps 0 to 5
	created := time.Unix(1700000000, 0).UTC()
	segments := messages.Folder{Dir: t.TempDir()}
	verify := func() string {
		found, err := Verify("test", dir, []string{public})
		require.NoError(t, err)
		require.NoError(t, found.VerifyMessages(segments, dir))
		require.Empty(t, found.Damage)
		return strings.Join(found.Notes, "\n")
	}
	require.NotContains(t, verify(), "archive")
	for _, step := range []int64{3, 5} {
		w, err := archive.Open(filepath.Join(dir, archive.Folder), archive.Config{Bytes: 1 << 30}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		w.End(&schemas.Trajectory{ID: fmt.Sprint("g-", step)}, 1, archive.Origin{}, schemas.ReasonZeroVariance, "", step, created)
		require.NoError(t, w.Close())
		const gone = "archive: its last seal is of step 3, and the record goes on to step 5"
		require.Equal(t, step == 3, strings.Contains(verify(), gone), step)
	}

	kept, err := messages.Open(segments, messages.Config{Bytes: 1 << 30}, messages.Owner{Run: "test"}, messages.Life{Created: created}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	store, err := checkpoint.Open(checkpoint.Config{Dir: dir, Keep: 2})
	require.NoError(t, err)
	for upTo := uint64(10); upTo <= 20; upTo += 10 {
		_, err = kept.Keep(t.Context(), stream{}, upTo)
		require.NoError(t, err)
		require.NoError(t, store.MarkPurged("WEIR_test_TRAJECTORIES", created, upTo))
		require.NotContains(t, verify(), "were purged")
	}
	require.NoError(t, errors.Join(kept.Close(), store.Close()))
	names, err := filepath.Glob(filepath.Join(segments.Dir, "*.seg"))
	require.NoError(t, err)
	require.Len(t, names, 2)
	require.NoError(t, os.Remove(names[1]))
	require.Contains(t, verify(), "messages 11 to 20 of the stream were purged, and no segment of the archive has them")
}

// stream has messages whose first ten take so much room that their segment is joined with no other.
type stream struct{}

func (stream) ReadStored(_ context.Context, after, upTo uint64, _ int) (messages.Span, []messages.Message, error) {
	var out []messages.Message
	for n := after + 1; n <= upTo; n++ {
		m := messages.Message{Sequence: n, Data: []byte{1}}
		if n <= 10 {
			m.Data = make([]byte, 1<<10)
			_, _ = rand.Read(m.Data) // never fails
		}
		out = append(out, m)
	}
	return messages.Span{After: after, Last: upTo}, out, nil
}
