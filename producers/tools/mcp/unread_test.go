//go:build unix

package mcp

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Finding A2 of the agents' review, at a server: one that does not read what it is told holds a call no longer than the call's time.
func TestAServerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	served := byCommand(t, false, nil)
	open(t, served, "e")
	pid, err := call(t.Context(), served["process"], "e", "{}")
	require.NoError(t, err)
	process, err := strconv.Atoi(pid)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(process, syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = call(ctx, served["echo"], "e", `{"text": "`+strings.Repeat("x", 1<<20)+`"}`) // more than a pipe holds
	require.ErrorIs(t, err, context.DeadlineExceeded)
	got, err := call(t.Context(), served["count"], "e", "{}")
	require.NoError(t, err)
	require.Equal(t, "(the server was started anew; what it kept is gone)\n1", got)
}
