package trainer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// EventSettings is the type of the event for a run that goes on with other settings than its last step was trained with. Message names each
// change.
const EventSettings schemas.EventType = "settings_changed"

// settingsHash names settings: 12 hexadecimal digits; "" for none.
func settingsHash(settings map[string]string) string {
	if len(settings) == 0 {
		return ""
	}
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(h, "%q %q\n", key, settings[key])
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// Changes are the keys that differ from one set of settings to another, sorted. A key that either set lacks has not changed: another build
// has other keys. Where an algorithm was replaced by another, only the name counts as changed: their own keys are not comparable.
func Changes(before, now map[string]string) []checkpoint.RecordChange {
	var out []checkpoint.RecordChange
	changed := func(key string) bool { return before[key] != now[key] }
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if strings.HasPrefix(key, "trainer.loss.options.") && changed("trainer.loss.name") ||
			ownKeyOfEstimator(key) && changed("trainer.advantage.name") {
			continue
		}
		if was, known := before[key]; known && was != now[key] {
			out = append(out, checkpoint.RecordChange{Key: key, Before: was, After: now[key]})
		}
	}
	return out
}

// ownKeyOfEstimator reports whether a key below trainer.advantage belongs to a single estimator.
func ownKeyOfEstimator(key string) bool {
	name, in := strings.CutPrefix(key, "trainer.advantage.")
	return in && name != "name" && name != "bootstrap" && name != "tokens" && !strings.HasPrefix(name, "normalize")
}

// settings compares the settings of a run's steps.
type settings struct {
	// inForce are the settings of the last step; changed are the changes for the next step.
	inForce map[string]string
	changed []checkpoint.RecordChange
}

// compareSettings finds the settings that have changed since the checkpoint, and reports them.
func (s *settings) compareSettings(c *checkpoint.State, deps Deps) {
	s.inForce = c.Settings
	s.changed = Changes(c.Settings, deps.Settings)
	if len(s.changed) == 0 {
		return
	}
	var text []string
	for _, change := range s.changed {
		text = append(text, change.String())
	}
	message := strings.Join(text, "; ")
	deps.Log.Info("the run goes on with other settings", "after_step", c.Step, "changed", message)
	deps.Observer(schemas.Event{
		Run: deps.Stream.Name(), Type: EventSettings, At: deps.Now().UTC(), Role: "trainer", Step: c.Step, PolicyVersion: c.Step, Message: message,
	})
}
