package compare

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/internal/filelock"
)

// lockName is the file in a comparison's folder that the process which trains its runs holds.
const lockName = "compare.lock"

// lockFolder takes the folder of the plan for this process: of two that train the same runs each would take the other's for failed.
func (p *Plan) lockFolder() (unlock func(), err error) {
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the runs: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(p.Dir, lockName), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("take the folder of the runs: %w", err)
	}
	if !filelock.HoldOpen(f) {
		_ = f.Close() // nothing was written
		const taken = "%s: another weir compare trains the runs there: wait for it, or name another --dir; --report reports them so far"
		return nil, fmt.Errorf(taken, p.Dir)
	}
	return func() { _ = f.Close() }, nil
}
