package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// chainAnew chains the lines of a record anew, as somebody does who has changed them.
func chainAnew(t *testing.T, lines []byte) []byte {
	t.Helper()
	var out []byte
	before := ""
	for line := range bytes.Lines(lines) {
		plain, _, found := bytes.Cut(line, []byte(`,"chain":"`))
		require.True(t, found)
		hash := sha256.Sum256(append([]byte(before+"\n"), plain...))
		before = hex.EncodeToString(hash[:])
		out = append(append(out, plain...), `,"chain":"`+before+"\"}\n"...)
	}
	return out
}

// A run with keys signs its record, so that a record which a stranger has changed and chained anew is found; and its record traces a prompt
// to the step that trained on it.
func TestARunWithKeysSignsItsRecordAndAStrangersRecordIsFound(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	weir(t, "up", "--run.dir", dir, "--run.name", "signed", "--broker.listen", "127.0.0.1:0", "--broker.keys_dir", keys, "--trainer.steps", "2",
		"--trainer.batch_groups", "2", "--trainer.group_size", "2", "--trainer.minibatches", "1", "--trainer.selection.drop_zero_variance=false",
		"--trainer.cold_start.steps", "10", "--model.hidden", "16", "--model.intermediate", "32", "--model.layers", "1", "--eval.every", "0",
		"--eval.test_questions", "1", "--view.listen", "")
	public := strings.TrimSpace(string(read(t, keys, "trainer.pub")))
	verify := func() (*audit.Verified, error) {
		out, err := runWeir(t, "", "audit", "signed", "--verify", "-o", "json", "--run.dir", dir, "--broker.keys_dir", keys)
		found := &audit.Verified{}
		require.NoError(t, json.Unmarshal([]byte(out), found))
		return found, err
	}
	found, err := verify()
	require.NoError(t, err)
	require.Equal(t, audit.Signed{Step: 2, Keys: []string{public}}, found.Signed)
	out, err := runWeir(t, "", "audit", "signed", "--verify", "--run.dir", dir, "--broker.keys_dir", keys)
	require.NoError(t, err)
	require.Contains(t, out, "the record is signed up to step 2 by "+public+", a key of broker.keys_dir\n")

	store := filepath.Join(dir, "signed", "checkpoints")
	records, err := checkpoint.ReadRecords(store)
	require.NoError(t, err)
	group := records[2].Groups[0]
	out, err = runWeir(t, "", "trace", "signed", "--run.dir", dir, "--prompt", group.Prompt, "-o", "json")
	require.NoError(t, err)
	var traced tracedGroup
	require.NoError(t, json.NewDecoder(strings.NewReader(out[strings.Index(out, `{"prompt"`):])).Decode(&traced))
	require.Equal(t, group.Prompt, traced.Prompt)
	out, err = runWeir(t, "", "trace", "signed", "--run.dir", dir, "--prompt", group.Prompt)
	require.NoError(t, err)
	require.Contains(t, out, group.Members[0].ID)
	require.Contains(t, out, "version 1: weights "+records[2].Began.ShortName()+"\n")

	// The stranger changes a reward, chains the lines anew, and removes the checkpoints, which have copies of lines.
	steps, err := filepath.Glob(filepath.Join(store, "step_*"))
	require.NoError(t, err)
	for _, step := range steps {
		require.NoError(t, os.RemoveAll(step))
	}
	path := filepath.Join(store, checkpoint.RecordFile)
	changed := bytes.Replace(read(t, path), []byte(`"reward":`), []byte(`"reward":1`), 1)
	require.NoError(t, os.WriteFile(path, chainAnew(t, changed), 0o644))
	signatures := filepath.Join(store, audit.SignatureFile)
	honest := read(t, signatures)
	require.NoError(t, os.Remove(signatures))
	found, err = verify()
	require.NoError(t, err, "no hash tells")
	require.Equal(t, -1, int(found.Signed.Step))
	require.NoError(t, os.WriteFile(signatures, honest, 0o644))
	found, err = verify()
	require.Error(t, err)
	require.Len(t, found.Damage, 2)
	for i, d := range found.Damage {
		require.Equal(t, int64(i+1), d.Step)
		require.Contains(t, d.Want, "which is signed")
	}

	// A key of the stranger's own does not help.
	pair, err := nkeys.CreateUser()
	require.NoError(t, err)
	seed, err := pair.Seed()
	require.NoError(t, err)
	file := filepath.Join(dir, "stranger.seed")
	require.NoError(t, os.WriteFile(file, seed, 0o600))
	signer, err := audit.NewSigner("signed", store, file)
	require.NoError(t, err)
	defer signer.Close()
	require.NoError(t, os.Remove(signatures))
	require.NoError(t, signer.Sign())
	found, err = verify()
	require.Error(t, err)
	require.Len(t, found.Damage, 1)
	require.Contains(t, found.Damage[0].Want, "a signature by "+public)
	require.FileExists(t, broker.SeedFile(keys, streams.RoleTrainer))
}
