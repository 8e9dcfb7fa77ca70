package archive

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/weir-rl/weir/schemas"
)

// maxFrame bounds a frame once decompressed.
const maxFrame = 1 << 30

// ErrGone is returned for an entry's data when its segment was removed to make room, or its end was lost in a crash.
var ErrGone = errors.New("the archive does not hold it any more")

// OpenLines opens the lines of a segment. A segment that was removed is ErrGone.
func OpenLines(dir string, segment int) (*os.File, error) {
	f, err := os.Open(linesPath(dir, segment))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrGone
	}
	return f, err
}

// ReadLines reads the lines of a segment from an offset on, and returns the offset after the last whole line. A segment that
// was removed is ErrGone.
func ReadLines(dir string, segment int, offset int64) (lines []byte, next int64, err error) {
	f, err := OpenLines(dir, segment)
	if err != nil {
		return nil, offset, err
	}
	defer f.Close()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, offset, err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, offset, err
	}
	end := len(data)
	for end > 0 && data[end-1] != '\n' {
		end--
	}
	return data[:end], offset + int64(end), nil
}

// ReadNumbers reads a step's numbers for the tokens of a trajectory that was trained on.
func ReadNumbers(dir string, segment int, e *Entry) ([]Numbers, error) {
	data, err := readRaw(dir, segment, e)
	if err != nil {
		return nil, err
	}
	return readNumbers(data)
}

// ReadTrajectory reads a trajectory that was not trained on.
func ReadTrajectory(dir string, segment int, e *Entry) (*schemas.Trajectory, error) {
	data, err := readRaw(dir, segment, e)
	if err != nil {
		return nil, err
	}
	t := new(schemas.Trajectory)
	if err := schemas.Unmarshal(data, t); err != nil {
		return nil, fmt.Errorf("read trajectory %s of the archive: %w", e.ID, err)
	}
	return t, nil
}

// readRaw returns the decompressed bytes of an entry.
func readRaw(dir string, segment int, e *Entry) ([]byte, error) {
	if len(e.Frame) != 2 || e.Size <= 0 || e.At < 0 || e.Frame[1] < 0 || e.Frame[1] > maxFrame {
		return nil, ErrGone
	}
	f, err := os.Open(binPath(dir, segment))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, e.Frame[1])
	if _, err := f.ReadAt(data, e.Frame[0]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxFrame))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	if data, err = decoder.DecodeAll(data, nil); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGone, err)
	}
	if e.At > len(data) || e.Size > len(data)-e.At {
		return nil, ErrGone
	}
	return data[e.At : e.At+e.Size], nil
}
