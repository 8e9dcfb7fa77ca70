package checkpoint

import (
	"io/fs"
	"path/filepath"
	"slices"
)

// replayBases are the full checkpoints that stay so that the steps of the kept batches can be learnt again: the oldest after which every
// batch is kept, and a later one for each half of BatchBytes, which takes its place once the oldest batches are gone. A checkpoint that is
// larger than BatchBytes is none. steps are the store's, newest first.
func (s *Store) replayBases(steps []int64) (bases []int64, err error) {
	if s.cfg.Batches == 0 || len(s.kept) == 0 || len(steps) == 0 || s.kept[len(s.kept)-1].step != steps[0] {
		return nil, nil
	}
	first := len(s.kept) - 1 // of the batches without a gap up to the newest
	for first > 0 && s.kept[first-1].step == s.kept[first].step-1 {
		first--
	}
	since, at := int64(0), first // the bytes of batches since the newest base, and the batch that is counted next
	for _, step := range slices.Backward(steps) {
		if step < s.kept[first].step-1 || !isFull(s.cfg.Dir, step) {
			continue
		}
		for ; at < len(s.kept) && s.kept[at].step <= step; at++ {
			since += s.kept[at].size
		}
		if len(bases) > 0 && (s.cfg.BatchBytes == 0 || since < s.cfg.BatchBytes/2) {
			continue
		}
		size, err := folderSize(s.Path(step))
		if err != nil {
			return nil, err
		}
		if s.cfg.BatchBytes == 0 || size <= s.cfg.BatchBytes {
			bases, since = append(bases, step), 0
		}
	}
	return bases, nil
}

// folderSize is the size of the files in a folder and its subfolders, in bytes.
func folderSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			size += info.Size()
		}
		return err
	})
	return size, err
}
