package tools

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers"
)

func TestFinishAnswers(t *testing.T) {
	tool, err := FinishType().Open(t.Context(), Opening{})
	require.NoError(t, err)
	require.Equal(t, FinishName, tool.Spec().Name)
	require.Nil(t, FinishType().Config())
	for said, want := range map[string]string{" helsinki \n": "helsinki", "": "", "{\"a\": 1}": "{\"a\": 1}"} {
		o, err := tool.Call(t.Context(), producers.Call{Arguments: said})
		require.NoError(t, err)
		require.True(t, o.Done)
		require.Equal(t, want, *o.Answer)
	}
}
