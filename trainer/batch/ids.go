package batch

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/schemas"
)

// GroupID names the group of the prompt at a cursor, issued for the attempt-th time: "g000012-a0".
func GroupID(cursor uint64, attempt int) string { return fmt.Sprintf("g%06d-a%d", cursor, attempt) }

// TicketID names a sample of a group, and so its trajectory: "g000012-a0-3".
func TicketID(cursor uint64, attempt, sample int) string {
	return fmt.Sprintf("%s-%d", GroupID(cursor, attempt), sample)
}

// ParseGroupID is the inverse of GroupID; ok is false for anything that GroupID does not write.
func ParseGroupID(id string) (cursor uint64, attempt int, ok bool) {
	rest, found := strings.CutPrefix(id, "g")
	if !found {
		return 0, 0, false
	}
	c, a, found := strings.Cut(rest, "-a")
	if !found {
		return 0, 0, false
	}
	cursor, err := strconv.ParseUint(c, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	attempt, err = strconv.Atoi(a)
	if err != nil || attempt < 0 || GroupID(cursor, attempt) != id {
		return 0, 0, false
	}
	return cursor, attempt, true
}

// ParseTicketID is the inverse of TicketID; ok is false for anything that TicketID does not write.
func ParseTicketID(id string) (cursor uint64, attempt, sample int, ok bool) {
	at := strings.LastIndexByte(id, '-')
	if at < 0 {
		return 0, 0, 0, false
	}
	sample, err := strconv.Atoi(id[at+1:])
	if err != nil || sample < 0 || strconv.Itoa(sample) != id[at+1:] {
		return 0, 0, 0, false
	}
	cursor, attempt, ok = ParseGroupID(id[:at])
	return cursor, attempt, sample, ok
}

// Seed mixes the run's seed with the place of a ticket, or of a choice about its group.
func Seed(seed, cursor uint64, attempt, sample int) uint64 {
	x := seed
	for _, v := range []uint64{cursor, uint64(attempt), uint64(sample)} {
		x = schemas.MixSeed(x + v)
	}
	return x
}
