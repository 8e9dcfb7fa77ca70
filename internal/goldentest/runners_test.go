package goldentest

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/trainer/admission"
)

// runners are by file name.
func runners() map[string]func(*golden) error {
	all := map[string]func(*golden) error{"staleness_areal": staleness}
	for _, group := range []map[string]func(*golden) error{advantageRunners(), statsRunners(), lossRunners(), correctionRunners(), primeRunners(), rewardRunners()} {
		maps.Copy(all, group)
	}
	return all
}

// staleness replays the events of a run through the admission controller.
func staleness(c *golden) error {
	limits := admission.Limits{
		Concurrency: int(c.num("max_concurrent_rollouts", 0)),
		Batch:       int(c.num("consumer_batch_size", 0)),
		Eta:         int(c.num("max_staleness", 0)),
		Depth:       admission.FollowEta,
	}
	a, enqueued := admission.Restore(limits, admission.State{}), 0
	// AReaL counts what waits to start apart; Weir's trainer issues at once what it may, so both are counted here.
	c.want("pending_limit", (limits.Pace()+1)*limits.Batch)
	capacity := []int{a.Capacity()}
	var rows []any
	for _, event := range texts(c.Inputs["events"]) {
		name, argument, _ := strings.Cut(event, ":")
		switch name {
		case "enqueued":
			enqueued++
		case "submitted":
			enqueued--
			a.Start(1)
		case "accepted":
			a.Accept()
		case "rejected":
			a.Reject()
		case "version":
			a.SetVersion(a.State().Version + 1)
		case "recovered":
			v, err := strconv.ParseInt(argument, 10, 64)
			if err != nil {
				return err
			}
			a.Recover(v)
		default:
			return fmt.Errorf("unknown event %q", event)
		}
		s := a.State()
		rows = append(rows, []int{enqueued, s.Running, s.Accepted, s.Rejected, int(s.Version)})
		capacity = append(capacity, a.Capacity())
	}
	c.want("capacity", capacity)
	c.want("stats", rows)
	return nil
}
