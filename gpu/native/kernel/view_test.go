package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAViewHasTheBitsOfACopyAndFollowsItsMatrix(t *testing.T) {
	t.Parallel()
	for _, m := range []int{1, 7, 130} {
		const k, n = 70, 200
		b, a := make([]float32, n*k), make([]float32, m*k)
		for i := range b {
			b[i] = float32(i%13)/7 - 0.8
		}
		for i := range a {
			a[i] = float32(i%11)/5 - 1
		}
		v := ViewNT(b, k, n)
		require.False(t, v.BF16())
		for range 2 {
			want, got := make([]float32, m*n), make([]float32, m*n)
			MatMulPacked(want, a, repacked(b, k, n), m, false)
			NewPool(3).MatMulPacked(got, a, v, m, false)
			require.Equal(t, want, got)
			row := make([]float32, k)
			v.Row(row, 5)
			require.Equal(t, b[5*k:6*k], row)
			b[9] += 3
		}
	}
	require.Panics(t, func() { ViewNT(make([]float32, 5), 2, 3) })
}
