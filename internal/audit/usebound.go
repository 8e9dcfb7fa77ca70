package audit

import (
	"maps"
	"slices"
	"strconv"

	"github.com/weir-rl/weir/trainer/checkpoint"
)

// reuseKey is the setting that bounds how many steps may train on a trajectory.
const reuseKey = "trainer.reuse"

// useBound bounds how many steps may train on a trajectory. The bound is known at the end alone, because a later line may note that the
// setting was greater before.
type useBound struct {
	most int
	// again are the uses after the first, by their number.
	again map[int]*List
}

func newUseBound(most int) useBound { return useBound{max(1, most), map[int]*List{}} }

// noteChange takes a change of a setting.
func (b *useBound) noteChange(c checkpoint.RecordChange) {
	if c.Key != reuseKey {
		return
	}
	for _, value := range []string{c.Before, c.After} {
		if n, err := strconv.Atoi(value); err == nil {
			b.most = max(b.most, n)
		}
	}
}

// addUse takes a use after the first.
func (b *useBound) addUse(number int, format string, args ...any) {
	if b.again[number] == nil {
		b.again[number] = &List{}
	}
	b.again[number].addLine(format, args...)
}

// reportOver adds the uses beyond the bound to a list.
func (b *useBound) reportOver(to *List) {
	for _, number := range slices.Sorted(maps.Keys(b.again)) {
		if number <= b.most {
			continue
		}
		over := b.again[number]
		for _, line := range over.First {
			to.addLine("%s: bound %d", line, b.most)
		}
		to.Count, to.More = to.Count+over.More, to.More+over.More
	}
}

// stepBits are the bits of a table's number that hold a step, plus one; those above count the uses.
const stepBits = 26

// addUse is encodeUse of one use more, in a step.
func addUse(before uint32, step int64) uint32 {
	uses, _ := decodeUse(before)
	return encodeUse(uses+1, step)
}

// encodeUse is a table's number for a trajectory: how often it was used, at most 63 times, and in which step last.
func encodeUse(uses int, step int64) uint32 {
	return uint32(min(uses, 1<<(32-stepBits)-1))<<stepBits | uint32(step+1)&(1<<stepBits-1)
}

// decodeUse is the inverse of encodeUse; 0 uses for the number 0.
func decodeUse(n uint32) (uses int, last int64) {
	return int(n >> stepBits), int64(n&(1<<stepBits-1)) - 1
}

// firstUse is 1 for the first use of a trajectory, else 0.
func firstUse(before int) int {
	if before == 0 {
		return 1
	}
	return 0
}
