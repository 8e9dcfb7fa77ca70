package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/internal/report"
)

var at = time.Date(2026, 11, 22, 10, 0, 0, 500e6, time.UTC)

func sample() []report.Record {
	return []report.Record{
		{At: at, Type: "evaluated", PolicyVersion: 3, Metrics: map[string]float64{"eval/exact_match": 0.25}},
		{At: at.Add(time.Second), Type: "step_done", Step: 4, PolicyVersion: 4, Metrics: map[string]float64{"reward/mean": -1.5, "loss/kl": 1e-9}},
		{At: at, Type: "run_done", Step: 4},
	}
}

func events(t require.TestingT, all []report.Record) []byte {
	var file bytes.Buffer
	w, err := NewEventWriter(&file, at)
	require.NoError(t, err)
	for _, rec := range all {
		require.NoError(t, w.Add(rec))
	}
	return file.Bytes()
}

// scalar is what the independent reader prints of each number.
type scalar struct {
	Wall  float64
	Step  int64
	Tag   string
	Value float64
}

// readBack reads an event file by testdata/events.py, which has the format from its description and none of this package: the
// framing, both checksums and the messages.
func readBack(t *testing.T, file []byte) (string, []scalar) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3, so that no independent reader could read the event file")
	}
	path := filepath.Join(t.TempDir(), "events.out.tfevents.test")
	require.NoError(t, os.WriteFile(path, file, 0o644))
	out, err := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "events.py"), path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var read struct {
		Version string
		Scalars []scalar
	}
	require.NoError(t, json.Unmarshal(out, &read), "%s", out)
	return read.Version, read.Scalars
}

func TestAnIndependentReaderReadsTheEventFile(t *testing.T) {
	t.Parallel()
	version, scalars := readBack(t, events(t, sample()))
	require.Equal(t, "brain.Event:2", version)
	require.Equal(t, []scalar{
		{1795341600.5, 3, "eval/exact_match", 0.25},
		{1795341601.5, 4, "loss/kl", float64(float32(1e-9))},
		{1795341601.5, 4, "reward/mean", -1.5},
	}, scalars)
}

// Every event file of TensorFlow and PyTorch begins with these bytes: 24, its checksum, and then the time.
func TestTheEventFileBeginsAsTensorFlowsDo(t *testing.T) {
	t.Parallel()
	require.Equal(t, "\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK\"\t", string(events(t, nil)[:13]))
	require.Equal(t, "\x1a\rbrain.Event:2", string(events(t, nil)[21:36]))
}

func TestACSVHasARowForEachRecordAndAColumnForEachKey(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, WriteCSV(&out, sample()))
	require.Equal(t, `at,type,step,policy_version,eval/exact_match,loss/kl,reward/mean
2026-11-22T10:00:00.5Z,evaluated,0,3,0.25,,
2026-11-22T10:00:01.5Z,step_done,4,4,,1e-09,-1.5
2026-11-22T10:00:00.5Z,run_done,4,0,,,
`, out.String())
}

// However a file grows, in whatever pieces, each whole line is given once and in order.
func TestFollowGivesEveryRecordOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	var text []byte
	for i := range 50 {
		line, err := json.Marshal(report.Record{Type: "step_done", Step: int64(i)})
		require.NoError(t, err)
		text = append(append(text, line...), '\n')
	}
	text = append(text, "{cut short\n"+`{"type":"tested","step":50}`+"\n"...)
	done := make(chan error, 1)
	var got []int64
	go func() {
		done <- Follow(t.Context(), path, func(rec report.Record) error {
			got = append(got, rec.Step)
			return nil
		})
	}()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	for len(text) > 0 {
		n := min(len(text), 700)
		_, err := f.Write(text[:n])
		require.NoError(t, err)
		text = text[n:]
	}
	require.NoError(t, <-done)
	require.Len(t, got, 51)
	for i, step := range got {
		require.EqualValues(t, i, step)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("enough")
	cancel(cause)
	require.ErrorIs(t, Follow(ctx, filepath.Join(t.TempDir(), "absent"), nil), cause)
}

// Numbers of every size are framed so that the reader's own checks hold: lengths follow one another to the end.
func TestEventFramesFollowOneAnother(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		metrics := rapid.MapOf(rapid.StringMatching(`[a-z/_<>0-9]{1,80}`), rapid.Float64()).Draw(t, "metrics")
		file := events(t, []report.Record{{At: at, Step: rapid.Int64Range(0, 1<<40).Draw(t, "step"), Metrics: metrics}})
		frames := 0
		for len(file) > 0 {
			require.GreaterOrEqual(t, len(file), 16)
			n := int(file[0]) | int(file[1])<<8 | int(file[2])<<16
			file = file[16+n:]
			frames++
		}
		want := 2
		if len(metrics) == 0 {
			want = 1
		}
		require.Equal(t, want, frames)
	})
}

func TestTheReaderFindsAChangedByte(t *testing.T) {
	t.Parallel()
	file := events(t, sample())
	file[len(file)-8] ^= 1
	path := filepath.Join(t.TempDir(), "changed")
	require.NoError(t, os.WriteFile(path, file, 0o644))
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3, so that no independent reader could read the event file")
	}
	out, err := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "events.py"), path).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "checksum")
}

// Finding 4 of the eighth reader: the records of a run that went on after its end, as one that is given more steps does, were not followed
// beyond that end. Nor were those of a file that another took the place of.
func TestFollowGoesOnAfterAnEarlierEnd(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "metrics.jsonl")
	write := func(text string) {
		require.NoError(t, os.WriteFile(path+".tmp", []byte(text), 0o600))
		require.NoError(t, os.Rename(path+".tmp", path))
	}
	const begun = `{"type":"step_done","step":1}` + "\n" + `{"type":"tested","step":1}` + "\n" + `{"type":"step_done","step":2}` + "\n"
	write(begun)
	var got []string
	lines := grown{path: path}
	each := func(rec report.Record) error {
		got = append(got, fmt.Sprintf("%s %d", rec.Type, rec.Step))
		return nil
	}
	over, err := lines.readNext(each)
	require.NoError(t, err)
	require.False(t, over)
	require.Equal(t, []string{"step_done 1", "tested 1", "step_done 2"}, got)
	got = nil
	write(begun + `{"type":"tested","step":2}` + "\n") // longer, in another file
	over, err = lines.readNext(each)
	require.NoError(t, err)
	require.True(t, over)
	require.Equal(t, []string{"step_done 1", "tested 1", "step_done 2", "tested 2"}, got)
	require.NoError(t, Follow(t.Context(), path, func(report.Record) error { return nil }))
}

// What stood in the metrics file and what comes until the end is in the event file, in its order, the end of an earlier run of the same
// name among it; where the file cannot be written, that is an error and no panic.
func TestTheEventFileIsKeptAsTheRunGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, path := filepath.Join(dir, "metrics.jsonl"), filepath.Join(dir, "tensorboard", "events.out.tfevents.demo")
	add := func(all ...report.Record) {
		f, err := os.OpenFile(source, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		require.NoError(t, err)
		for _, rec := range all {
			require.NoError(t, json.NewEncoder(f).Encode(rec))
		}
		require.NoError(t, f.Close())
	}
	all := sample()
	add(all[0], report.Record{At: at, Type: report.Tested, Metrics: map[string]float64{"test/exact_match": 0.5}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- KeepEvents(ctx, source, path) }()
	add(all[1])
	cancel()
	require.NoError(t, <-done)
	file, err := os.ReadFile(path)
	require.NoError(t, err)
	_, scalars := readBack(t, file)
	var tags []string
	for _, s := range scalars {
		tags = append(tags, s.Tag)
	}
	require.Equal(t, []string{"eval/exact_match", "test/exact_match", "loss/kl", "reward/mean"}, tags)

	require.ErrorContains(t, KeepEvents(ctx, source, filepath.Join(source, "x")), "make the folder of event files")

	// Finding 8 of the ninth reader: weir records tensorboard beside a run with records.tensorboard cut the file that the run went on writing, and
	// left a hole in it that TensorBoard reads no further than.
	held, err := CreateEvents(path)
	require.NoError(t, err)
	_, err = CreateEvents(path)
	require.ErrorContains(t, err, "another process writes "+path)
	require.ErrorContains(t, KeepEvents(ctx, source, path), "another process writes "+path)
	require.NoError(t, held.Close())
	require.NoError(t, KeepEvents(ctx, source, path))
	again, err := os.ReadFile(path)
	require.NoError(t, err)
	_, scalars = readBack(t, again)
	require.Len(t, scalars, len(tags))
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full, so that no full disk was tried")
	}
	full := filepath.Join(dir, "full")
	require.NoError(t, os.Symlink("/dev/full", full))
	require.ErrorContains(t, KeepEvents(ctx, source, full), "write an event file")
}
