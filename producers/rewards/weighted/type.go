// Package weighted is a reward that compares the answer with the accepted ones and looks at how it was come to: a sum of
// components, each by its weight.
package weighted

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/rewards"
)

// Name is the type's in a configuration.
const Name = "weighted"

// Type is the reward's [rewards.Type].
func Type() rewards.Type { return rewards.NewType(Name, DefaultConfig, openReward) }

// openReward makes the reward. Weights for a source that no question is of, and costs of a tool that the task does not have, are refused:
// nothing would read them.
func openReward(_ context.Context, cfg Config, o rewards.Opening) (producers.Reward, error) {
	for _, source := range slices.Sorted(maps.Keys(cfg.BySource)) {
		if !slices.Contains(o.Sources, source) {
			return nil, fmt.Errorf("by_source.%s: no question is of this source; there are %s", source, strings.Join(o.Sources, ", "))
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(cfg.Costs)) {
		if len(o.Tools) > 0 && !slices.Contains(o.Tools, tool) {
			return nil, fmt.Errorf("costs.%s: the task has no such tool; it has %s", tool, strings.Join(o.Tools, ", "))
		}
	}
	return New(cfg)
}

// Unread says why nothing depends on a key, "" if something does.
func (c *Config) Unread(key string) string {
	if strings.HasPrefix(key, "length_target.") && c.Length == 0 {
		return "length is 0"
	}
	return ""
}
