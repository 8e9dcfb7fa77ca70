package broker_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// Producers alone read and write the journals of tickets. Keys cannot tell which tickets a producer holds.
func TestTheJournalIsTheProducersOwn(t *testing.T) {
	l := lockedBroker(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ticket := streamtest.Ticket(1, 0)
	record := &schemas.JournalRecord{
		Run: "test", Ticket: ticket.ID, Basis: bytes.Repeat([]byte{1}, schemas.JournalKeyBytes), Producer: "p", Delivery: 1,
	}
	require.NoError(t, l.as(t, streams.RoleTrainer).Issue(ctx, ticket))
	producer := l.as(t, streams.RoleProducer)
	require.NoError(t, producer.Journal(ticket).Append(ctx, record))
	taker := producer.Journal(ticket)
	records, _, err := taker.Read(ctx)
	require.NoError(t, err)
	require.Equal(t, []*schemas.JournalRecord{record}, records)
	require.NoError(t, taker.Replace(ctx, record))
	on, err := producer.JournalGoesOn(ctx, streams.JournalName(ticket))
	require.NoError(t, err)
	require.True(t, on)
	for _, role := range []streams.Role{
		streams.RoleTrainer, streams.RoleInference, streams.RoleTools, streams.RoleArchive, streams.RoleViewer,
	} {
		r := l.as(t, role)
		require.ErrorIs(t, r.Journal(ticket).Append(ctx, record), streams.ErrDenied, role)
		_, _, err := r.Journal(ticket).Read(ctx)
		require.ErrorIs(t, err, streams.ErrDenied, role)
	}
}

// The secret from which the keys of agents outside are derived is the producers' own.
func TestTheAgentsSecretIsTheProducersOwn(t *testing.T) {
	l := lockedBroker(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	secret, err := l.as(t, streams.RoleProducer).AgentSecret(ctx)
	require.NoError(t, err)
	again, err := l.as(t, streams.RoleProducer).AgentSecret(ctx)
	require.NoError(t, err)
	require.Equal(t, secret, again)
	for _, role := range []streams.Role{
		streams.RoleTrainer, streams.RoleInference, streams.RoleTools, streams.RoleArchive, streams.RoleViewer,
	} {
		_, err := l.as(t, role).AgentSecret(ctx)
		require.ErrorIs(t, err, streams.ErrDenied, role)
	}
}
