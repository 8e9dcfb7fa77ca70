package loss

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A loss corrects for tokens of another policy by its ratio to that policy, or by a correction.
func TestWhichLossesCorrectForAnotherPolicy(t *testing.T) {
	t.Parallel()
	want := map[string]bool{
		"ppo": false, "gspo": false, "gmpo": false, "sapo": false, "clip_cov": false, "kl_cov": false, "reinforce": false, "gpg": false,
		"decoupled_ppo": true, "m2po": true, "cispo": true, "tis": true, "masked_is": true, "dppo": true, "ipo": true, "ref_kl": true,
		"cross_entropy": true,
	}
	for name := range stockBuilders() {
		corrects, listed := want[name]
		require.True(t, listed, name)
		require.Equal(t, corrects, Config{Name: name}.Corrects(), name)
	}
}
