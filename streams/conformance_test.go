package streams_test

import (
	"testing"

	"github.com/weir-rl/weir/streams/streamtest"
)

func TestConformanceEmbedded(t *testing.T) { streamtest.Run(t, streamtest.Embedded) }

func TestConformanceProcess(t *testing.T) { streamtest.Run(t, streamtest.Process) }

func TestConformanceCluster(t *testing.T) { streamtest.Run(t, streamtest.Cluster) }
