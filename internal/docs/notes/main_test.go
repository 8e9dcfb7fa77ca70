package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNotesAreCountedByVersion(t *testing.T) {
	t.Parallel()
	const rule = `{"arguments":"rule ( )","observation":"count red ."}`
	samples := filepath.Join(t.TempDir(), "s.jsonl")
	require.NoError(t, os.WriteFile(samples, []byte(strings.Join([]string{
		`{"version":1,"exact_match":1,"turns":[` + rule + `,{"arguments":"notepad . add_facts ( red ) ; turn ( )"}]}`,
		`{"version":1,"exact_match":0,"turns":[` + rule + `,{"arguments":"notepad . add_facts ( blue )"}]}`,
		`{"version":1,"exact_match":0,"turns":[{"arguments":"notepad . add_facts ( red )"},` + rule + `]}`,
		`{"version":2,"exact_match":0,"turns":[` + rule + `,{"arguments":"turn ( )"}]}`,
	}, "\n")), 0o600))
	picture := filepath.Join(t.TempDir(), "p.png")
	var out strings.Builder
	require.NoError(t, writeShares([]string{picture, samples}, &out))
	require.Equal(t, "version 1: 1 of 3 episodes note the rule, 3 note anything, 1 answer right\n"+
		"version 2: 0 of 1 episodes note the rule, 0 note anything, 0 answer right\n", out.String())
	require.FileExists(t, picture)
	require.ErrorContains(t, writeShares([]string{picture}, &out), "want the picture's name")
	require.ErrorContains(t, writeShares([]string{picture, "nowhere.jsonl"}, &out), "nowhere.jsonl")
}
