package cli

import (
	"context"
	"log/slog"

	"github.com/weir-rl/weir/internal/assembly"
)

// withoutShown is a log on the terminal without the alarms that the plain lines of a run have already.
type withoutShown struct{ slog.Handler }

// Handle leaves the shown alarms out.
func (h withoutShown) Handle(ctx context.Context, r slog.Record) error {
	if assembly.ShownByProgress(r.Message) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs keeps the alarms out of the derived handler.
func (h withoutShown) WithAttrs(attrs []slog.Attr) slog.Handler {
	return withoutShown{h.Handler.WithAttrs(attrs)}
}

// WithGroup keeps the alarms out of the derived handler.
func (h withoutShown) WithGroup(name string) slog.Handler {
	return withoutShown{h.Handler.WithGroup(name)}
}
