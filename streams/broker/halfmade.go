package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
)

// The server's two files that describe a stream. It writes them in this order when the stream is made.
const (
	streamDescription = "meta.inf"
	streamChecksum    = "meta.sum"
)

// sweepHalfMade removes the streams that a killed broker was about to make: they have a description, and no checksum of it. The server
// ignores such a stream at each start, and does not mend it when the stream is made again, so that every message in it is gone at
// the next start. The server confirms that a stream is made only after it has written both, so nothing confirmed is removed.
func sweepHalfMade(store string, log *slog.Logger) error {
	descriptions, err := filepath.Glob(filepath.Join(store, "jetstream", "*", "streams", "*", streamDescription))
	if err != nil {
		return err
	}
	for _, d := range descriptions {
		dir := filepath.Dir(d)
		if _, err := os.Stat(filepath.Join(dir, streamChecksum)); !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return err
			}
			continue
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
		log.Info("removed a stream that was not made whole", "stream", filepath.Base(dir))
	}
	return nil
}
