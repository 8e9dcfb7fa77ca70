package table

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// endless is a text without end that counts what is read of it.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	e.read += len(p)
	return len(p), nil
}

// Finding A17 of the agents' review: a row within a JSON array was held whole, however long, where a line is refused.
func TestARowOfAnArrayIsBoundedAsALineIs(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]string{
		"an array": `[{"question": "q"}, {"question": "q", "x": "`, "lines": `{"question": "q"}` + "\n" + `{"question": "q", "x": "`, "between rows": `[{"question": "q"},`,
	} {
		rest := &endless{}
		from := io.Reader(rest)
		if name == "between rows" {
			from = blank{rest}
		}
		rows := 0
		err := readJSON("f", io.MultiReader(strings.NewReader(begin), from), func(_ Row, err error) bool {
			require.NoError(t, err, name)
			rows++
			return true
		})
		require.ErrorContains(t, err, "longer than 67108864 bytes", name)
		require.Equal(t, 1, rows, name)
		require.LessOrEqual(t, rest.read, 2*maxRowBytes, name)
	}
}

// blank is white space in the place of a text.
type blank struct{ io.Reader }

func (b blank) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	for i := range p[:n] {
		p[i] = ' '
	}
	return n, err
}

// The bound is a row's and not the array's.
func TestAnArrayMayBeLongerThanARow(t *testing.T) {
	t.Parallel()
	row := `{"x": "` + strings.Repeat("a", 10<<20) + `"},`
	rows := 0
	err := readJSON("f", strings.NewReader("["+strings.Repeat(row, 9)+`{"x": "b"}]`), func(_ Row, err error) bool {
		require.NoError(t, err)
		rows++
		return true
	})
	require.NoError(t, err)
	require.Equal(t, 10, rows)
}

// Finding 12a.13: a long row that came in small pieces was looked through again for each piece, for minutes, and nothing ended that.
func TestALongRowIsReadInLargePiecesUntilTheEndOfItsContext(t *testing.T) {
	t.Parallel()
	never := func() error { return nil }
	piece := make([]byte, 1<<20)
	n, err := (&filling{iotest.OneByteReader(&endless{}), never}).Read(piece)
	require.NoError(t, err)
	require.Len(t, piece, n)
	n, err = (&filling{strings.NewReader("end"), never}).Read(piece)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, "end", string(piece[:n]))
	for name, begin := range map[string]string{"an array": `[{"question": "q"}, `, "a line": `{"question": "q"}` + "\n"} {
		ctx, cancel := context.WithCancel(t.Context())
		rest := &endless{}
		stop := readFunc(func(p []byte) (int, error) {
			if rest.read > 1<<20 {
				cancel()
			}
			return blank{rest}.Read(p[:min(len(p), 1<<10)])
		})
		err := readJSON("f", &filling{io.MultiReader(strings.NewReader(begin), stop), func() error { return ctx.Err() }}, func(Row, error) bool { return true })
		require.ErrorIs(t, err, context.Canceled, name)
		require.LessOrEqual(t, rest.read, 2<<20, name)
	}
}

// readFunc is a function in the place of a reader.
type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
