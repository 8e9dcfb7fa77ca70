package servers_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/schemas"
)

// A server that would sample at another temperature than the call's is not asked (finding 15b.4).
func TestACallColderThanItsServerSamplesIsRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, kind fakeserver.Kind) {
		w := newWorld(t, kind, nil, good())
		w.run()
		w.swap(0)
		w.fit(1)
		for i, temperature := range []float32{0, 0.0005, 0.001, 0.009, 0.01, 1} {
			req := ask(fmt.Sprint("e", i), 4)
			req.Temperature = temperature
			got, err := w.generate(req)
			require.NoError(t, err)
			coldest := map[fakeserver.Kind]float32{fakeserver.VLLM: 0.01, fakeserver.SGLang: 0.001}[kind]
			if temperature == 0 || temperature >= coldest {
				require.NotEqual(t, schemas.GenerateError, got.last.Stop, "%g: %s", temperature, got.last.Error)
				continue
			}
			require.Equal(t, schemas.GenerateError, got.last.Stop, temperature)
			require.Contains(t, got.last.Error, fmt.Sprintf("temperature is %g: must be 0, or between %g and 1000", temperature, coldest))
		}
	})
}
