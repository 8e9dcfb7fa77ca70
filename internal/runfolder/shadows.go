package runfolder

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/schemas"
)

// ShadowsFolder is the folder of a run's shadows: each has a folder of its name, which is laid out as a run's.
const ShadowsFolder = "shadows"

// ShadowNow is how a shadow stands.
type ShadowNow struct {
	Name string `json:"name"`
	// Step is the last step that it has learnt; -1 where there is none. Metrics are the numbers of that step.
	Step    int64              `json:"step"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Shadows lists the shadows of a run's folder by name, as their files have them.
func Shadows(dir string) ([]ShadowNow, error) {
	entries, err := os.ReadDir(filepath.Join(dir, ShadowsFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []ShadowNow
	for _, e := range entries {
		of := filepath.Join(dir, ShadowsFolder, e.Name())
		if !e.IsDir() || !Is(of) {
			continue
		}
		records, err := report.ReadMetrics(filepath.Join(of, MetricsFile))
		if err != nil {
			return nil, err
		}
		now := ShadowNow{Name: e.Name(), Step: -1}
		for _, r := range records {
			if r.Type == string(schemas.EventStepDone) && r.Step > now.Step {
				now.Step, now.Metrics = r.Step, r.Metrics
			}
		}
		out = append(out, now)
	}
	return out, nil
}
