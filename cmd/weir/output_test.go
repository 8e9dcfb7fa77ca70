package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// JSON on a terminal steers it no more than text does, and says the same as before.
func TestJSONHoldsNoControlCharacter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune{0x1b, 0x7f, 0x9b, 0x202e, 0xE0001, '<', '"', '\\', '\n'}))).Draw(t, "text")
		var out bytes.Buffer
		require.NoError(t, writeJSON(&out, map[string]string{"text": text}))
		for i, r := range out.String() {
			require.True(t, unicode.IsGraphic(r) || r == '\n' && i == out.Len()-1, "%q", out.String())
		}
		var back map[string]string
		require.NoError(t, json.Unmarshal(out.Bytes(), &back))
		require.Equal(t, text, back["text"])
	})
}
