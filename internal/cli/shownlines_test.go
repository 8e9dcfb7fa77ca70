package cli

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Row 5: an alarm that the plain lines of a run have is not in the log on the terminal too; other warnings are.
func TestAnAlarmIsNotAlsoALineOfTheLog(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(withoutShown{slog.NewTextHandler(&out, nil)}).With("producer", "p1")
	log.Error("episodes fail", "task", "crates")
	log.WithGroup("g").Warn("the agent goes on asking after its episode ended")
	require.Empty(t, out.String())
	log.Warn("lease lost")
	require.Equal(t, 1, strings.Count(out.String(), "lease lost"))
}
