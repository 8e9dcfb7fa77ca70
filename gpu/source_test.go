package gpu

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// counting fills tensors with 1, 2, 3, ...
type counting struct{ broken error }

func (c counting) ReadPart(_ context.Context, _ string, at int, data []float32) error {
	for i := range data {
		data[i] = float32(at + i + 1)
	}
	return c.broken
}

func (c counting) StoredAs(string) DType { return Float32 }

func TestNumbersComeFromMemoryOrFromTheSource(t *testing.T) {
	w := &Weights{Tensors: []Tensor{{Name: "a", Shape: []int{2}, Data: []float32{7, 8}}, {Name: "b", Shape: []int{3}}}, Source: counting{}}
	var room []float32
	got, err := w.Numbers(t.Context(), w.Tensors[0], &room)
	require.NoError(t, err)
	require.Equal(t, []float32{7, 8}, got)
	require.Nil(t, room)
	got, err = w.Numbers(t.Context(), w.Tensors[1], &room)
	require.NoError(t, err)
	require.Equal(t, []float32{1, 2, 3}, got)
	require.Same(t, &room[0], &got[0], "the room is used")

	for i, want := range [][]float32{{8}, {2, 3}} {
		got, err = w.Part(t.Context(), w.Tensors[i], 1, len(want), &room)
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, err = w.Part(t.Context(), w.Tensors[i], 1, len(want)+1, &room)
		require.ErrorIs(t, err, ErrMismatch)
	}

	whole, err := w.Resident(t.Context())
	require.NoError(t, err)
	require.Equal(t, []float32{1, 2, 3}, whole.Tensors[1].Data)
	require.Nil(t, w.Tensors[1].Data)
	again, err := whole.Resident(t.Context())
	require.NoError(t, err)
	require.Same(t, whole, again)

	broken := errors.New("the disk")
	w.Source = counting{broken}
	_, err = w.Resident(t.Context())
	require.ErrorIs(t, err, broken)
	w.Source = nil
	_, err = w.Numbers(t.Context(), w.Tensors[1], &room)
	require.ErrorIs(t, err, ErrMismatch)
}
