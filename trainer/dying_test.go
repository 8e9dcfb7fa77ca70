package trainer

import (
	"context"
	"strings"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/enginetest"
)

// dying is an engine whose process may end when it has written a model.
type dying struct {
	*enginetest.Bigram
	crash func(point string) error
}

func (e dying) Export(ctx context.Context, dir string, o gpu.ExportOptions) (gpu.Pending, error) {
	pending, err := e.Bigram.Export(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	if strings.Contains(dir, "publish") {
		return pending, e.crash("within publish")
	}
	return pending, e.crash("within save")
}
