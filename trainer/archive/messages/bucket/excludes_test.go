package bucket

import (
	"bytes"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/archive/messages/storetest"
)

// ignoring is a store that writes over an object although it is told not to.
func ignoring(w http.ResponseWriter, r *http.Request, pass http.Handler) {
	r.Header.Del("If-None-Match")
	pass.ServeHTTP(w, r)
}

// Stores answer a put that must not write over an object in many ways: where one of them has not refused it, the run is told.
func TestWhetherAStoreRefusesToWriteOverAnObjectIsFoundOut(t *testing.T) {
	t.Parallel()
	refusing := func(status int, code string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.Header.Get("If-None-Match") != "" {
				answer(status, code)(w, r, pass)
				return
			}
			pass.ServeHTTP(w, r)
		}
	}
	for name, test := range map[string]struct {
		door     func(http.ResponseWriter, *http.Request, http.Handler)
		excludes bool
	}{
		"refuses":                      {nil, true},
		"refuses as not modified":      {refusing(http.StatusNotModified, ""), true},
		"refuses as a conflict":        {refusing(http.StatusConflict, "ConditionalRequestConflict"), true},
		"ignores the header":           {ignoring, false},
		"does not know the header":     {refusing(http.StatusNotImplemented, "NotImplemented"), false},
		"does not take the header":     {refusing(http.StatusBadRequest, "InvalidArgument"), false},
		"does not take such a request": {refusing(http.StatusBadRequest, "InvalidRequest"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			b := s.open(t, "run")
			s.setDoor(test.door)
			excludes, err := b.Excludes()
			require.NoError(t, err)
			require.Equal(t, test.excludes, excludes)
			require.Empty(t, storetest.Names(t, b))

			var log bytes.Buffer
			spool, err := messages.OpenSpool(messages.Folder{Dir: t.TempDir()}, s.open(t, "run"), messages.SpoolConfig{Bytes: 64 << 20},
				slog.New(slog.NewTextHandler(&log, nil)))
			require.NoError(t, err)
			if name != "refuses as not modified" && name != "refuses as a conflict" { // nobody has written a mark there
				for range 2 { // it is told at the first start alone
					have, err := spool.Claim("0123456789abcdef0123456789abcdef", true)
					require.NoError(t, err)
					require.Equal(t, "0123456789abcdef0123456789abcdef", have)
				}
				told := 1
				if test.excludes {
					told = 0
				}
				require.Equal(t, told, bytes.Count(log.Bytes(), []byte("If-None-Match")))
				require.Equal(t, told, bytes.Count(log.Bytes(), []byte("s3://kept/a/prefix/run/")))
			}
			require.NoError(t, spool.Close())
		})
	}
}

// The fault that was left of 14.1: a bucket without a put that does not write over an object could be begun twice at once, and both runs sent
// their segments there.
func TestOfTwoRunsThatBeginAtOnceASingleOneSends(t *testing.T) {
	t.Parallel()
	const first, second = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	s := newServer(t)
	sent := map[string]chan error{first: make(chan error, 10), second: make(chan error, 10)}
	spools := map[string]*messages.Spool{}
	for id := range sent {
		spool, err := messages.OpenSpool(messages.Folder{Dir: t.TempDir()}, s.open(t, "run"), messages.SpoolConfig{
			Bytes: 64 << 20, Sent: func(err error) { sent[id] <- err },
		}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		spools[id] = spool
	}
	owner := func(id string) messages.Owner { return messages.Owner{Run: "run", ID: id} }
	open := func(id string, life time.Time) *messages.Archive {
		a, err := messages.Open(spools[id], messages.Config{Bytes: 1 << 30, Dir: "s3://kept"}, owner(id), messages.Life{Created: life}, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		return a
	}
	var early *messages.Archive
	s.setDoor(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut { // the first has read that there is no mark, and the second is faster
			s.setDoor(ignoring)
			early = open(second, time.Unix(1700000001, 0))
		}
		ignoring(w, r, pass)
	})
	late := open(first, time.Unix(1700000000, 0))
	var stream storetest.Stream
	stream.Publish(t, 1)
	for _, a := range []*messages.Archive{early, late} {
		_, err := a.Keep(t.Context(), &stream, 1)
		require.NoError(t, err)
	}
	require.NoError(t, <-sent[first])
	require.ErrorIs(t, <-sent[second], messages.ErrOtherRun)
	for _, spool := range spools {
		require.NoError(t, spool.Close())
	}
	require.NoError(t, early.Close())
	require.NoError(t, late.Close())
	require.Len(t, storetest.Names(t, s.open(t, "run")), 2, "the mark and a segment")
}
