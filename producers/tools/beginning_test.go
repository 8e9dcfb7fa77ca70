package tools

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABeginningTakesEverythingAndKeepsTheFirst(t *testing.T) {
	t.Parallel()
	b := NewBeginning(8)
	require.Empty(t, b.Bytes())
	for _, text := range []string{"", "\n one", " two", " three"} {
		n, err := b.Write([]byte(text))
		require.NoError(t, err)
		require.Equal(t, len(text), n)
	}
	require.Equal(t, "one tw", string(b.Bytes()))
	b.Bytes()[0] = 'x'
	require.Equal(t, "one tw", string(b.Bytes()), "what is returned is a copy")
}
