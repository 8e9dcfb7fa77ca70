package native_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
	"github.com/weir-rl/weir/gpu/native"
	"github.com/weir-rl/weir/internal/fulltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for name, threads := range map[string]int{"one thread": 1, "three threads": 3} {
		t.Run(name, func(t *testing.T) {
			enginetest.Run(t, func(t testing.TB, cfg gpu.Config) gpu.Engine {
				e, err := native.New(cfg, native.Options{Seed: 1, Threads: threads})
				require.NoError(t, err)
				return e
			})
		})
	}
}

func TestAgreesWithTheMachinesPyTorch(t *testing.T) {
	fulltest.Need(t, "starts Python")
	b := native.Backend{Options: native.Options{Threads: 2}}
	enginetest.RunTorch(t, func(t testing.TB, cfg gpu.Config) gpu.Engine {
		e, err := b.New(cfg)
		require.NoError(t, err)
		return e
	}, b.NewDecoder)
}

func TestDecoderConformance(t *testing.T) {
	for name, threads := range map[string]int{"one thread": 1, "three threads": 3} {
		t.Run(name, func(t *testing.T) {
			enginetest.RunDecoder(t, native.Backend{Options: native.Options{Threads: threads}}.NewDecoder)
		})
	}
}
