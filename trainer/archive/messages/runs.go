package messages

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// ErrTwoRuns is returned, wrapped, where an archive has the messages of two runs of a name, as an archive of a build in which archives had
// no owner may have.
//
// Two runs without owners that gave the same prompts cannot be told apart.
//
// Invariant: no reader reads an archive of two runs of one name as if it were one run's.
var ErrTwoRuns = errors.New("the archive has the messages of two runs")

// runCheck compares the groups of streams that no single owner is known of. A run gives each group a single prompt, also in a stream that
// took the place of a lost stream: another prompt is another run's. A nil runCheck compares nothing.
type runCheck struct {
	// owners are the owners that the streams' newest segments name, by when the streams were made, and runs are the names of their runs.
	owners, runs map[int64]string
	groups       map[string]groupPrompt
}

// groupPrompt is the prompt of a group, and the stream of its first trajectory.
type groupPrompt struct {
	created        int64
	prompt, source string
}

// newRunCheck returns nil where the segments are of a single stream, or all of the same owner: such an archive has a single run.
func newRunCheck(store Segments, segments []listed) (*runCheck, error) {
	c := &runCheck{owners: map[int64]string{}, runs: map[int64]string{}, groups: map[string]groupPrompt{}}
	if len(segments) == 0 || segments[0].created == segments[len(segments)-1].created {
		return nil, nil
	}
	several, first := false, listed{}
	for i, s := range segments {
		if i+1 < len(segments) && segments[i+1].created == s.created {
			continue
		}
		c.owners[s.created] = ""
		err := readSegment(store, s.Name, func(r *segmentReader) error {
			c.owners[s.created], c.runs[s.created] = r.index.Owner, r.index.Run
			return nil
		})
		if err != nil && !isGone(err) && !errors.As(err, new(*Damage)) { // such a segment is judged as that of a build without owners
			return nil, err
		}
		several = several || c.owners[s.created] == ""
		switch owner := c.owners[s.created]; {
		case owner == "":
		case first.Name == "":
			first = s
		case owner != c.owners[first.created]:
			return nil, fmt.Errorf("%w of the name %s: the stream that was made at %s is of the run with the id %s, and that of %s of the run "+
				"with the id %s: move the segments of one of these streams elsewhere, whose names begin with %016x and %016x", ErrTwoRuns,
				c.runs[s.created], time.Unix(0, first.created).UTC(), c.owners[first.created], time.Unix(0, s.created).UTC(), owner,
				uint64(first.created), uint64(s.created))
		}
	}
	if !several {
		return nil, nil
	}
	return c, nil
}

// checkMessage returns an error that wraps ErrTwoRuns where the group of a trajectory had another prompt in another stream, unless both
// streams have the same owner.
func (c *runCheck) checkMessage(created int64, data []byte) error {
	t := new(schemas.Trajectory)
	if schemas.Unmarshal(data, t) != nil || !c.isOfTicket(created, t) {
		return nil //nolint:nilerr // a message that cannot be read is nobody's
	}
	now := groupPrompt{created, t.PromptID, t.Source}
	before, known := c.groups[t.Group]
	if !known {
		c.groups[t.Group] = now
		return nil
	}
	owner, other := c.owners[before.created], c.owners[now.created]
	if before.created == created || owner != "" && owner == other || before.prompt == now.prompt && before.source == now.source {
		return nil
	}
	return fmt.Errorf("%w of the name %s: group %s has prompt %s in the stream that was made at %s, and prompt %s in that of %s: move the "+
		"segments of one of these streams elsewhere, whose names begin with %016x and %016x", ErrTwoRuns, t.Run, t.Group, before.prompt,
		time.Unix(0, before.created).UTC(), now.prompt, time.Unix(0, created).UTC(), uint64(before.created), uint64(created))
}

// isOfTicket reports whether a trajectory of a stream can be that of a ticket of its run, whatever strangers have published there.
func (c *runCheck) isOfTicket(created int64, t *schemas.Trajectory) bool {
	run := c.runs[created]
	return t.Validate() == nil && (run == "" || t.Run == run) && strings.HasPrefix(t.ID, t.Group+"-") &&
		t.Stop != schemas.StopError && t.Stop != schemas.StopCancelled
}

// checkTrajectory returns an error that wraps ErrTwoRuns where a store has messages with the id of a trajectory that are of two runs. It
// reads no other messages.
func checkTrajectory(store Segments, id string) error {
	segments, _, err := listSegments(store)
	if err != nil {
		return err
	}
	check, err := newRunCheck(store, segments)
	if check == nil || err != nil {
		return err
	}
	for _, s := range segments {
		err := readSegment(store, s.Name, func(r *segmentReader) error {
			for _, e := range r.index.Entries {
				if e.ID != id {
					continue
				}
				block, err := r.readBlock(e.Block)
				if err == nil {
					err = check.checkMessage(s.created, e.message(block).Data)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && !isGone(err) && !errors.As(err, new(*Damage)) {
			return err
		}
	}
	return nil
}

// checkOneRun reads a store's messages where several streams have no single owner, and returns an error that wraps ErrTwoRuns where the
// messages are of two runs. Damaged segments are passed over.
func checkOneRun(store Segments) error {
	segments, _, err := listSegments(store)
	if err != nil {
		return err
	}
	check, err := newRunCheck(store, segments)
	if check == nil || err != nil {
		return err
	}
	for m, err := range walkAll(store) {
		switch {
		case errors.As(err, new(*Damage)):
			continue
		case err == nil:
			err = check.checkMessage(m.Created.UnixNano(), m.Data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
