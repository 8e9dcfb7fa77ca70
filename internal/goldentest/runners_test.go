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
	a := admission.New(admission.Limits{
		Concurrency: int(c.num("max_concurrent_rollouts", 0)),
		Batch:       int(c.num("consumer_batch_size", 0)),
		Eta:         int(c.num("max_staleness", 0)),
		Depth:       admission.FollowEta,
	})
	c.want("pending_limit", a.PendingLimit())
	capacity := []int{a.Capacity()}
	var rows []any
	for _, event := range texts(c.Inputs["events"]) {
		name, argument, _ := strings.Cut(event, ":")
		switch name {
		case "enqueued":
			a.Enqueue()
		case "submitted":
			a.Submit()
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
		rows = append(rows, []int{s.Enqueued, s.Running, s.Accepted, s.Rejected, int(s.Version)})
		capacity = append(capacity, a.Capacity())
	}
	c.want("capacity", capacity)
	c.want("stats", rows)
	return nil
}
