package weights_test

import (
	"testing"

	"github.com/weir-rl/weir/streams/streamtest"
)

func TestMain(m *testing.M) { streamtest.Main(m) }
