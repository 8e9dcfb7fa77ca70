package child_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/internal/child"
)

func TestHeadAndTailKeepTheEndsOfTheOutput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(0, 12).Draw(t, "most")
		head, tail, all := child.NewHead(most), child.NewTail(most), ""
		for _, text := range rapid.SliceOf(rapid.StringN(0, 8, 20)).Draw(t, "writes") {
			for _, w := range []interface{ Write([]byte) (int, error) }{head, tail} {
				n, err := w.Write([]byte(text))
				require.NoError(t, err)
				require.Equal(t, len(text), n)
			}
			all += text
		}
		require.Equal(t, all[:min(most, len(all))], string(head.Bytes()))
		require.Equal(t, all[max(0, len(all)-most):], string(tail.Bytes()))
	})
}

func TestTailLinesLeavesTheEndOfALineOut(t *testing.T) {
	t.Parallel()
	tail := child.NewTail(10)
	_, _ = tail.Write([]byte("one\ntwo\n"))
	require.Equal(t, "one\ntwo", tail.Lines(), "all of it was kept")
	_, _ = tail.Write([]byte("three\n"))
	require.Equal(t, "three", tail.Lines(), "of two the end is left")
	head := child.NewHead(5)
	_, _ = head.Write([]byte("\n a b c"))
	require.Equal(t, "a b", head.Text())
}
