package messages

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
)

// ticketStream is a stream of the trajectories of a run's first tickets; prompt names the prompt of a cursor.
func ticketStream(t *testing.T, from, n int, prompt func(cursor int) string) *memoryStream {
	t.Helper()
	stream := &memoryStream{messages: map[uint64]Message{}}
	for cursor := from; cursor < from+n; cursor++ {
		group := fmt.Sprintf("g%06d-a0", cursor)
		of := &schemas.Trajectory{
			Run: "r", ID: group + "-0", Group: group, Cursor: uint64(cursor), GroupSize: 1, Task: "t", PromptID: prompt(cursor), Producer: "p",
			Stop: schemas.StopAnswer, StartedAt: born, FinishedAt: born,
			Segments: []schemas.Segment{{
				Tokens: schemas.Int32s{1, 2}, ActionMask: schemas.Bytes{0, 1}, Logprobs: schemas.Float32s{0, -1}, Versions: schemas.Runs{-1, 0},
				Temperature: 1,
			}},
		}
		require.NoError(t, of.Validate())
		data, err := schemas.Marshal(of)
		require.NoError(t, err)
		stream.publish(data)
	}
	return stream
}

// keepTickets keeps a stream of tickets that was made at a time.
func keepTickets(t *testing.T, store Store, owner Owner, created time.Time, stream *memoryStream) {
	t.Helper()
	a, err := openQuiet(store, Config{Bytes: 1 << 30}, owner, created)
	require.NoError(t, err)
	defer a.Close()
	_, err = a.Keep(t.Context(), stream, uint64(len(stream.messages)))
	require.NoError(t, err)
}

// Finding 14.1, its rest: an archive of a build without owners that two runs of one name share was read as if it were one run's, but for
// training from the log.
//
// Invariant: no reader reads an archive of two runs of one name as if it were one run's.
func TestInvariantNoReaderReadsTwoRunsAsOne(t *testing.T) {
	t.Parallel()
	later := born.Add(time.Hour)
	of := func(run string) func(int) string { return func(cursor int) string { return fmt.Sprint(run, cursor) } }
	nobody, owner := Owner{Run: "r"}, Owner{Run: "r", ID: ownID, Inside: true}
	for name, test := range map[string]struct {
		first, second Owner
		stream        *memoryStream
		two           bool
	}{
		"two runs": {nobody, nobody, ticketStream(t, 0, 9, of("second")), true},
		"two runs, of which the second has an id":        {nobody, owner, ticketStream(t, 0, 9, of("second")), true},
		"a run that went on with the same prompts":       {nobody, nobody, ticketStream(t, 4, 9, of("first")), false},
		"a run that went on with further prompts":        {nobody, nobody, ticketStream(t, 5, 9, of("second")), false},
		"a run with an id, whose prompts came otherwise": {owner, owner, ticketStream(t, 0, 9, of("second")), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := Folder{Dir: t.TempDir()}
			keepTickets(t, store, test.first, born, ticketStream(t, 0, 5, of("first")))
			keepTickets(t, store, test.second, later, test.stream)
			readers := map[string]func() error{
				"all": func() error {
					for _, err := range All(store) {
						return err
					}
					return nil
				},
				"lookup": func() error {
					l, err := OpenLookup(store)
					if err == nil {
						l.Close()
					}
					return err
				},
				"find": func() error {
					_, err := Find(store, "g000004-a0-0")
					return err
				},
				"verify": func() error {
					found, err := Verify(store)
					require.NoError(t, err)
					for _, d := range found.Damage {
						return fmt.Errorf("%w %w", ErrTwoRuns, d)
					}
					return nil
				},
			}
			for reader, read := range readers {
				err := read()
				if !test.two {
					require.NoError(t, err, reader)
					continue
				}
				require.ErrorIs(t, err, ErrTwoRuns, reader)
				for _, want := range []string{
					"two runs of the name r", "prompt first", "prompt second", born.UTC().String(), later.UTC().String(), "move the segments",
				} {
					require.ErrorContains(t, err, want, reader)
				}
			}
			_, err := Find(store, "g000000-a0-0")
			require.Equal(t, test.two, err != nil)
		})
	}
}

// Finding 16b.6: two runs that each have an id are two runs, though they gave the same prompts, as the same command with another learning
// rate does. Their segments may lie in a bucket that lets two runs begin at the same moment.
func TestTwoOwnersAreTwoRunsWhateverTheirPrompts(t *testing.T) {
	t.Parallel()
	of := func(cursor int) string { return fmt.Sprint("same", cursor) }
	store := Folder{Dir: t.TempDir()}
	keepTickets(t, store, Owner{Run: "r", ID: ownID, Inside: true}, born, ticketStream(t, 0, 5, of))
	require.NoError(t, store.Remove(markName))
	keepTickets(t, store, Owner{Run: "r", ID: otherID, Inside: true}, born.Add(time.Hour), ticketStream(t, 0, 9, of))
	_, err := OpenLookup(store)
	require.ErrorIs(t, err, ErrTwoRuns)
	require.ErrorContains(t, err, ownID)
	require.ErrorContains(t, err, otherID)
	for _, err := range All(store) {
		require.ErrorIs(t, err, ErrTwoRuns)
		break
	}
	_, err = Find(store, "g000004-a0-0")
	require.ErrorIs(t, err, ErrTwoRuns)
}
