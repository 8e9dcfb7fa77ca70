package producers_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

// The failure of a part names the part, and has not the word by which a producer knows to try again; the service's own words stay.
func TestAPartsFailureIsInPlainWords(t *testing.T) {
	t.Parallel()
	away := fmt.Errorf("ask for the reward: %w", fmt.Errorf("%w: http://reward: answered 503: unavailable: the disk", producers.ErrUnavailable))
	failed := &producers.PartError{Part: producers.PartReward, Name: "judge", Err: away}
	require.EqualError(t, failed, "reward judge: ask for the reward: http://reward: answered 503: unavailable: the disk")
	require.ErrorIs(t, failed, producers.ErrUnavailable)
	own := &producers.PartError{Part: producers.PartTool, Err: errors.New("unavailable: its own words")}
	require.EqualError(t, own, "tool: unavailable: its own words")
}
