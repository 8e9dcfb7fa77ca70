package producers_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weir-rl/weir/streams/streamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, streamtest.ClientLeak()) }
