package assembly

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// The first Ctrl-C while a model loads ends the command: the loading is not waited for.
func TestLoadingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	interrupted, broken := errors.New("interrupted"), errors.New("broken")
	ctx, end := context.WithCancelCause(t.Context())
	loading, release := make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- doPromptly(ctx, func() error { close(loading); <-release; return nil })
	}()
	<-loading
	end(interrupted)
	require.ErrorIs(t, <-ended, interrupted)
	close(release)
	require.ErrorIs(t, doPromptly(t.Context(), func() error { return broken }), broken)
	require.NoError(t, doPromptly(t.Context(), func() error { return nil }))
}
