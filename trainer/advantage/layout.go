package advantage

import (
	"cmp"
	"slices"

	"github.com/weir-rl/weir/trainer/stats"
)

// layout maps rows to trajectories and trajectories to groups. It is rebuilt for each batch in memory that is reused.
type layout struct {
	// rows of trajectory k, in step order: order[start[k]:start[k+1]].
	order, start []int
	// of is the trajectory of each row, group the dense group of each trajectory.
	of, group []int
	// members of group g: trajectories[groupStart[g]:groupStart[g+1]].
	trajectories, groupStart []int
	ids                      map[int]int
}

// buildRows reads which rows make up which trajectory.
func (l *layout) buildRows(b *Batch) error {
	rows := b.Rows()
	if err := checkOptional("Trajectory", b.Trajectory, rows); err != nil {
		return err
	}
	if err := checkOptional("Step", b.Step, rows); err != nil {
		return err
	}
	l.of = stats.Resize(l.of, rows)
	n := rows
	if b.Trajectory == nil {
		for i := range rows {
			l.of[i] = i
		}
	} else {
		n = l.denseIDs(b.Trajectory, l.of)
	}
	l.order, l.start = bucketByKey(l.of, n, l.order, l.start)
	if b.Step != nil && b.Trajectory != nil {
		for k := range n {
			slices.SortStableFunc(l.rowsOf(k), func(i, j int) int { return cmp.Compare(b.Step[i], b.Step[j]) })
		}
	}
	return nil
}

// buildGroups reads the trajectories' groups from ids, with an entry for each row.
func (l *layout) buildGroups(ids []int, rows int) error {
	if err := stats.CheckLength("Group", ids, rows); err != nil {
		return err
	}
	n := l.trajectoryCount()
	l.group = stats.Resize(l.group, n)
	for k := range n {
		rows := l.rowsOf(k)
		l.group[k] = ids[rows[0]]
		for _, i := range rows[1:] {
			if ids[i] != l.group[k] {
				return stats.Fault("Group", i, "is %d, its trajectory's first row has %d", ids[i], l.group[k])
			}
		}
	}
	groups := l.denseIDs(l.group, l.group)
	l.trajectories, l.groupStart = bucketByKey(l.group, groups, l.trajectories, l.groupStart)
	return nil
}

// trajectoryCount returns the number of trajectories.
func (l *layout) trajectoryCount() int { return len(l.start) - 1 }

// groupCount returns the number of groups.
func (l *layout) groupCount() int { return len(l.groupStart) - 1 }

// rowsOf are the rows of trajectory k in step order.
func (l *layout) rowsOf(k int) []int { return l.order[l.start[k]:l.start[k+1]] }

// groupMembers returns the trajectories of group g, in the batch's order.
func (l *layout) groupMembers(g int) []int {
	return l.trajectories[l.groupStart[g]:l.groupStart[g+1]]
}

// emptyLast moves the trajectories of group g without an action token behind the others, unless they count too.
func (l *layout) emptyLast(b *Batch, g int, count bool) {
	if count {
		return
	}
	slices.SortStableFunc(l.groupMembers(g), func(i, j int) int {
		return cmp.Compare(l.countEmpty(b, i), l.countEmpty(b, j))
	})
}

// countEmpty returns 1 if trajectory k has no action token, else 0.
func (l *layout) countEmpty(b *Batch, k int) int {
	if lastAction(b, l.rowsOf(k)) < 0 {
		return 1
	}
	return 0
}

// denseIDs writes ids as 0, 1, 2, ... in order of first appearance and returns the number of different ids. in order of first appearance
// and returns how many there are.
func (l *layout) denseIDs(ids, into []int) int {
	if l.ids == nil {
		l.ids = map[int]int{}
	}
	clear(l.ids)
	for i, id := range ids {
		k, ok := l.ids[id]
		if !ok {
			k = len(l.ids)
			l.ids[id] = k
		}
		into[i] = k
	}
	return len(l.ids)
}

// bucketByKey lists the indices of keys by key: the indices of key k are order[start[k]:start[k+1]], rising.
func bucketByKey(keys []int, n int, order, start []int) ([]int, []int) {
	order, start = stats.Resize(order, len(keys)), stats.Resize(start, n+1)
	clear(start)
	for _, k := range keys {
		start[k+1]++
	}
	for k := range n {
		start[k+1] += start[k]
	}
	for i, k := range keys {
		order[start[k]] = i
		start[k]++
	}
	copy(start[1:], start[:n])
	start[0] = 0
	return order, start
}
