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

// EventSettings is the type of the event that tells that a run goes on with other settings than its last step was trained
// with. Message names each.
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

// Changes are the keys that differ from one set of settings to another, sorted. A key that one of them lacks has not
// changed: another build knows other keys.
func Changes(before, now map[string]string) []checkpoint.RecordChange {
	var out []checkpoint.RecordChange
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if was, known := before[key]; known && was != now[key] {
			out = append(out, checkpoint.RecordChange{Key: key, Before: was, After: now[key]})
		}
	}
	return out
}

// compareSettings finds what has changed since the checkpoint, and says so.
func (t *trainer) compareSettings(s *checkpoint.State) {
	t.settings, t.changed = s.Settings, Changes(s.Settings, t.deps.Settings)
	if len(t.changed) == 0 {
		return
	}
	var text []string
	for _, c := range t.changed {
		text = append(text, c.String())
	}
	message := strings.Join(text, "; ")
	t.deps.Log.Info("the run goes on with other settings", "after_step", s.Step, "changed", message)
	t.deps.Observer(schemas.Event{
		Run: t.deps.Stream.Run(), Type: EventSettings, At: t.deps.Now().UTC(), Role: "trainer", Step: s.Step, PolicyVersion: s.Step, Message: message,
	})
}
