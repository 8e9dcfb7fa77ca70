package hf

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Newcomer's friction N16: a folder that is missing is named once.
func TestAMissingFolderIsNamedOnce(t *testing.T) {
	t.Parallel()
	_, err := Open("nosuch")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.EqualError(t, err, "open model folder nosuch: stat nosuch: no such file or directory")
}
