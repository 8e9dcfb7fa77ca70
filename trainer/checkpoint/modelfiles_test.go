package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
)

// A checkpoint of a model that came from a folder has the folder's files as they were, the configuration among them.
func TestACheckpointKeepsTheModelsFilesAsTheyWere(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	own := sample(0).Policy.(*network)
	_, err := hf.Export(t.Context(), source, own.config, own.tensors, gpu.ExportOptions{DType: gpu.BFloat16})
	require.NoError(t, err)
	config, err := os.ReadFile(filepath.Join(source, "config.json"))
	require.NoError(t, err)
	config = append(bytes.ReplaceAll(config, []byte("  "), []byte("\t")), '\n', '\n') // laid out as nobody writes it
	require.NoError(t, os.WriteFile(filepath.Join(source, "config.json"), config, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(source, "chat_template.jinja"), []byte("{{ x }}"), 0o600))
	files, err := hf.OpenFiles(source)
	require.NoError(t, err)

	s := open(t, t.TempDir())
	c := sample(1)
	c.Tokenizer, c.Files = []byte(`{"added_tokens":[]}`), files
	require.NoError(t, s.Save(t.Context(), c))
	for _, name := range files.Names() {
		want, _ := files.Get(name)
		got, err := os.ReadFile(filepath.Join(s.Path(1), name))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), name)
	}
	equal(t, c.Policy.(*network), read(t, s.Path(1), c.Policy.(*network).steps))
	require.NoError(t, verifyFolder(s.Path(1), 1, "config.json", "source.json"))
	require.NoError(t, os.WriteFile(filepath.Join(s.Path(1), "chat_template.jinja"), []byte("{{ y }}"), 0o600))
	require.ErrorContains(t, verifyFolder(s.Path(1), 1), "chat_template.jinja")
}
