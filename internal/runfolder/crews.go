package runfolder

import (
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
)

// crews are the roles of a run that a step needs beside its trainer, each with the newest word of any of its workers. The zero value has
// heard of none.
type crews struct{ inference, producer crewHeard }

type crewHeard struct {
	at    time.Time
	again time.Duration // the longest time within which a worker promised its next word; 0 where none promised any
}

// noteHeard takes in that a worker of a role is there.
func (c *crews) noteHeard(e *schemas.Event) {
	var of *crewHeard
	switch e.Role {
	case "inference":
		of = &c.inference
	case "producer":
		of = &c.producer
	default:
		return
	}
	of.at, of.again = e.At, max(of.again, promisedAgain(e))
}

// describeSilent names a role that was there, and of which no worker has kept its promises to tell of itself; "" where there is none.
func (c *crews) describeSilent(now time.Time) string {
	for _, crew := range []struct {
		crewHeard
		name string
	}{{c.inference, "inference consumer"}, {c.producer, "producer"}} {
		if crew.again > 0 && now.Sub(crew.at) > promises*crew.again {
			return fmt.Sprintf(", and no %s has told of itself since %s: start one, or see its log", crew.name, Ago(crew.at, now))
		}
	}
	return ""
}
