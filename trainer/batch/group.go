package batch

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weir-rl/weir/schemas"
)

// Group is an issued group.
type Group struct {
	// Index counts groups in the order of issue, from 0.
	Index uint64
	// Cursor is the prompt's position, Attempt how often the prompt had been issued before.
	Cursor  uint64
	Attempt int
	// Size is the number of tickets.
	Size int
	// HasBaseline is set if the last ticket asks for a greedy rollout that is not trained on: the others are compared with its return.
	HasBaseline bool
	// MinVersion is the oldest version that may sample for the group's tickets.
	MinVersion int64
	// Trunks is how many samples are issued first, with the baseline if there is a baseline; 0 is all. The others are issued when no trunk
	// is awaited any more: see Assembler.Trunks.
	Trunks int
	// Ticket has the fields that all tickets of the group share; sample, id, seed and the baseline's temperature differ. With nil the
	// samples are not checked against their tickets.
	Ticket *schemas.Ticket
}

// Refused names samples of an open group whose messages were refused.
type Refused struct {
	Group   string `json:"group"`
	Samples []int  `json:"samples"`
}

// Source is the data set or the kind of question that the prompt is of; "" where that is not known.
func (g Group) Source() string {
	if g.Ticket == nil {
		return ""
	}
	return g.Ticket.Prompt.Source
}

// ID is the group's name on the wire.
func (g Group) ID() string { return GroupID(g.Cursor, g.Attempt) }

// Greedy reports whether a sample is the group's baseline.
func (g Group) Greedy(sample int) bool { return g.HasBaseline && sample == g.Size-1 }

// First reports whether a sample is issued when the group is opened.
func (g Group) First(sample int) bool { return g.Trunks == 0 || sample < g.Trunks || g.Greedy(sample) }

// Member is a delivered trajectory of a group.
type Member struct {
	Sequence   uint64
	Trajectory *schemas.Trajectory
	// Oldest and Newest are the policy versions of its oldest and newest sampled tokens.
	Oldest, Newest int64
	// Reward is the outcome reward with its shaping, Return that and the process rewards together.
	Reward, Return float64
	// Shaping is the part of Reward that Config.Shape added.
	Shaping float64
	// PassedOver is set if the selection took other members of the group: the step uses this member up and does not train on it.
	PassedOver bool
}

// NewMember is the member of a delivered trajectory; shape, which may be nil, gives what is added to its reward.
func NewMember(d schemas.Delivery, shape func(*schemas.Trajectory) float64) Member {
	m := Member{
		Sequence: d.Sequence, Trajectory: d.Trajectory,
		Oldest: d.Trajectory.OldestVersion(), Newest: d.Trajectory.NewestVersion(),
		Reward: d.Trajectory.Reward,
	}
	if shape != nil {
		m.Shaping = shape(d.Trajectory)
		m.Reward += m.Shaping
	}
	m.Return = m.Reward
	for _, turn := range d.Trajectory.Turns {
		m.Return += turn.Credit()
	}
	return m
}

// Staleness is how many versions the member's oldest token is behind the trainer, split into the versions that passed while it was sampled
// and the versions that passed while it waited.
func (m Member) Staleness(version int64) (inFlight, inQueue int64) {
	return m.Newest - m.Oldest, version - m.Newest
}

// openGroup is a group and its messages so far.
type openGroup struct {
	Group
	members   map[int]Member
	cancelled map[int]bool
	// refused are the cancelled samples that no pending message names: their message was refused, or ended.
	refused map[int]bool
	markers []schemas.Delivery
	ready   bool
	// lost is set once samples of the group were given up.
	lost bool
	// unawaited is set once Take no longer waits for the group.
	unawaited bool
	// branched is set once the samples that waited for the trunks are issued.
	branched bool
	// opening is Config.Opening of the ticket; nil until it was called.
	opening []int32
	// chosen are the samples of a ready group, with PassedOver set on each that is not trained on; rows counts the rows of the others.
	chosen []Member
	rows   int
}

func newAssembly(g Group) *openGroup {
	return &openGroup{Group: g, members: map[int]Member{}, cancelled: map[int]bool{}, refused: map[int]bool{}}
}

func (g *openGroup) isComplete() bool { return len(g.members)+len(g.cancelled) == g.Size }

// isIssued reports whether a sample's ticket is issued: a sample without a ticket cannot be lost.
func (g *openGroup) isIssued(sample int) bool { return g.branched || g.First(sample) }

func (g *openGroup) refuseSample(sample int) { g.cancelled[sample], g.refused[sample] = true, true }

// overruleCancel notes that a sample has come, cancelled or not. The markers that cancelled it end: read again before the sample, they
// would complete the group without the sample. The other samples that they cancelled are kept as refused.
func (g *openGroup) overruleCancel(sample int, e *Effects) {
	delete(g.cancelled, sample)
	delete(g.refused, sample)
	g.markers = slices.DeleteFunc(g.markers, func(d schemas.Delivery) bool {
		if !slices.Contains(d.Closed.Cancelled, sample) {
			return false
		}
		for _, s := range d.Closed.Cancelled {
			if g.cancelled[s] {
				g.refuseSample(s)
			}
		}
		e.addSettled(d.Sequence)
		return true
	})
}

// sortedSamples returns the members without the baseline, by sample.
func (g *openGroup) sortedSamples() []Member {
	return slices.DeleteFunc(g.sortedMembers(), func(m Member) bool { return g.Greedy(m.Trajectory.Sample) })
}

// greedyMember returns the greedy member; nil when there is none, or not yet.
func (g *openGroup) greedyMember() *Member {
	if m, ok := g.members[g.Size-1]; ok && g.HasBaseline {
		return &m
	}
	return nil
}

// sortedMembers returns the members by sample, the baseline last.
func (g *openGroup) sortedMembers() []Member {
	out := make([]Member, 0, len(g.members))
	for _, s := range slices.Sorted(maps.Keys(g.members)) {
		out = append(out, g.members[s])
	}
	return out
}

// refuseUnusable takes out the members that a trainer at the version may not use.
func (g *openGroup) refuseUnusable(version int64, eta int, e *Effects) (stale int) {
	for _, m := range g.sortedMembers() {
		var reason schemas.Reason
		var detail string
		switch {
		case m.Newest > version:
			reason, detail = schemas.ReasonForeign, fmt.Sprintf("sampled by version %d, which version %d does not know", m.Newest, version)
		case version-m.Oldest > int64(eta):
			reason, detail = schemas.ReasonStale, fmt.Sprintf("oldest token of version %d, trainer at %d, bound %d", m.Oldest, version, eta)
			stale++
		default:
			continue
		}
		e.addRejected(m.Sequence, m.Trajectory.ID, reason, detail)
		delete(g.members, m.Trajectory.Sample)
		g.refuseSample(m.Trajectory.Sample)
	}
	return stale
}
