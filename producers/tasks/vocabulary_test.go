package tasks

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNewTokenizerCoversTheDataSet(t *testing.T) {
	d := dataset(2)
	d.Passages = []Passage{{"x", "Sweden has (two) words."}}
	tok, err := NewTokenizer(d, "nothing found.")
	require.NoError(t, err)
	for i, token := range SpecialTokens() {
		id, ok := tok.ID(token)
		require.True(t, ok)
		require.EqualValues(t, i, id)
	}
	for _, text := range []string{"sweden has (two) words.", "?", "!", "Nothing found."} {
		require.NotContains(t, tok.Encode(text), tok.Unknown(), text)
	}
}
