package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-rl/weir/schemas"
)

const batchesDir = "batches"

// maxBatchBytes bounds a kept batch once decompressed.
const maxBatchBytes = 8 << 30

// ErrNoBatch is returned by ReadBatch for a step whose batch is not kept, or no longer kept.
var ErrNoBatch = errors.New("the batch is not kept")

// KeptBatch names the file that holds a step's batch as it was trained on.
type KeptBatch struct {
	// SHA256 of the file, in hex, and its size in bytes.
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// BatchPath is the file of a store with the batch of a step.
func BatchPath(dir string, step int64) string {
	return filepath.Join(dir, batchesDir, fmt.Sprintf("step_%06d.zst", step))
}

// keepBatch writes the messages of a step's batch: laid out like pending messages, then compressed by zstd.
func (s *Store) keepBatch(c *Checkpoint) error {
	first, err := s.firstNeeded(c)
	if err != nil {
		return err
	}
	if s.cfg.Batches == 0 && c.State.Step < first || len(c.Batch) == 0 {
		return nil
	}
	data, err := encodePending(c.Batch)
	if err != nil {
		return err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	data = encoder.EncodeAll(data, nil)
	path := BatchPath(s.cfg.Dir, c.State.Step)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := writeFile(path+tmpSuffix, data); err != nil {
		return err
	}
	if err := os.Rename(path+tmpSuffix, path); err != nil {
		return err
	}
	c.Record.Batch = &KeptBatch{SHA256: schemas.ContentHash(data), Size: int64(len(data))}
	if err := s.dropBatches(keptFile{c.State.Step, int64(len(data))}, first); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// keptFile is a kept batch on disk.
type keptFile struct{ step, size int64 }

// listKept lists the kept batches of a store, oldest first.
func listKept(dir string) ([]keptFile, error) {
	entries, err := os.ReadDir(filepath.Join(dir, batchesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var kept []keptFile
	for _, e := range entries {
		name, _ := strings.CutPrefix(strings.TrimSuffix(e.Name(), ".zst"), "step_")
		step, err := strconv.ParseInt(name, 10, 64)
		if err != nil || e.Name() != filepath.Base(BatchPath(dir, step)) {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		kept = append(kept, keptFile{step, info.Size()})
	}
	slices.SortFunc(kept, func(a, b keptFile) int { return cmp.Compare(a.step, b.step) })
	return kept, nil
}

// KeptSteps lists the steps whose batches a store keeps, in order.
func KeptSteps(dir string) ([]int64, error) {
	kept, err := listKept(dir)
	if err != nil {
		return nil, fmt.Errorf("list kept batches: %w", err)
	}
	steps := make([]int64, len(kept))
	for i, k := range kept {
		steps[i] = k.step
	}
	return steps, nil
}

// dropBatches removes the oldest batches until those left are within Batches and BatchBytes. The newest, just written, stays, and so do the
// batches of the step firstNeeded and later.
func (s *Store) dropBatches(newest keptFile, firstNeeded int64) error {
	s.kept = slices.DeleteFunc(s.kept, func(k keptFile) bool { return k.step == newest.step })
	s.kept = append(s.kept, newest)
	bytes := int64(0)
	for _, k := range s.kept {
		bytes += k.size
	}
	for len(s.kept) > 1 && (s.cfg.Batches >= 0 && len(s.kept) > s.cfg.Batches || s.cfg.BatchBytes > 0 && bytes > s.cfg.BatchBytes) {
		oldest := s.kept[0]
		if oldest.step >= firstNeeded {
			break
		}
		if err := os.Remove(BatchPath(s.cfg.Dir, oldest.step)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		bytes -= oldest.size
		s.kept = s.kept[1:]
	}
	return nil
}

// ReadBatch reads the batch of a step as it was trained on, and checks it against the step's record. It is
// ErrNoBatch where it is not kept; a file that was changed is a *Damage.
func ReadBatch(dir string, r *Record) ([]schemas.Delivery, error) {
	path := BatchPath(dir, r.Step)
	if r.Batch == nil {
		return nil, fmt.Errorf("read batch of step %d: %w", r.Step, ErrNoBatch)
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read batch of step %d: %w", r.Step, ErrNoBatch)
	}
	if err != nil {
		return nil, fmt.Errorf("read batch of step %d: %w", r.Step, err)
	}
	if hash := schemas.ContentHash(data); hash != r.Batch.SHA256 {
		return nil, &Damage{
			Dir: filepath.Dir(path), File: filepath.Base(path),
			Want: "SHA-256 " + r.Batch.SHA256, Have: "SHA-256 " + hash,
		}
	}
	return decodeKept(r.Step, data)
}

// ReadKept reads the batch of a step without comparing it with the step's record. It is ErrNoBatch where it is not kept.
func ReadKept(dir string, step int64) ([]schemas.Delivery, error) {
	data, err := os.ReadFile(BatchPath(dir, step))
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNoBatch
	}
	if err != nil {
		return nil, fmt.Errorf("read batch of step %d: %w", step, err)
	}
	return decodeKept(step, data)
}

// decodeKept decodes the file of a kept batch.
func decodeKept(step int64, data []byte) ([]schemas.Delivery, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBatchBytes))
	if err != nil {
		return nil, fmt.Errorf("read batch of step %d: %w", step, err)
	}
	defer decoder.Close()
	if data, err = decoder.DecodeAll(data, nil); err != nil {
		return nil, fmt.Errorf("read batch of step %d: %w", step, err)
	}
	deliveries, err := decodePending(data)
	if err != nil {
		return nil, fmt.Errorf("read batch of step %d: %w", step, err)
	}
	return deliveries, nil
}
