package chat

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Transformers 5 keeps further templates in a folder: that named tool_use is the one for tools.
func TestTheTemplateForToolsComesFromTheFolderOfFurtherOnes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "additional_chat_templates"), 0o755))
	source := published(t)[qwen25].Template
	plain := "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "chat_template.jinja"), []byte(plain), 0o600))
	c, err := Open(dir, codecOf(t), nil)
	require.NoError(t, err)
	require.Error(t, c.Tools())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "additional_chat_templates", "tool_use.jinja"), []byte(source), 0o600))
	c, err = Open(dir, codecOf(t), nil)
	require.NoError(t, err)
	require.NoError(t, c.Tools())
	ids, err := c.Prompt([]Message{{Role: User, Content: "a"}}, nil)
	require.NoError(t, err)
	require.Equal(t, "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n", c.codec.Decode(ids))
}
