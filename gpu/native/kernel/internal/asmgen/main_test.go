package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheAssemblyIsWhatTheGeneratorWrites(t *testing.T) {
	for name, want := range assemblyFiles() {
		got, err := os.ReadFile(filepath.Join("..", "..", name))
		require.NoError(t, err)
		require.True(t, want == string(got), "%s is not what asmgen writes: run go generate in gpu/native/kernel", name)
	}
}
