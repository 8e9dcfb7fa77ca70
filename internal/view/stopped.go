package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/runfolder"
)

const (
	// goneFor is how long a role may have no worker before it alarms, where its last worker left in order: a restart takes a while.
	goneFor = time.Minute
	// lostFor is how long a lost worker alarms while others of its role are there.
	lostFor = 24 * time.Hour
)

// holding describes the loss of a role: whole is the loss with its last worker, part the loss with a worker of several.
type holding struct {
	role, name string
	whole      func(s *runfolder.Streams) string
	part       string
}

var holdings = []holding{
	{runfolder.RoleTrainer, "trainer", func(*runfolder.Streams) string {
		return "no step is done and no version is published; the others work until the tickets that are issued are done"
	}, "the newest trainer holds the run"},
	{runfolder.RoleInference, "inference consumer", func(*runfolder.Streams) string {
		return "no token is sampled: every episode waits at its next call of the policy"
	}, "the others sample in its place, so that episodes take longer"},
	{runfolder.RoleProducer, "producer", func(s *runfolder.Streams) string {
		if s.Tickets == nil {
			return "no ticket is worked on"
		}
		return fmt.Sprintf("no ticket is worked on: %d wait, and %d that were leased come back when a producer asks", s.Tickets.Waiting, s.Tickets.Leased)
	}, "its tickets go to the others when their leases lapse, and fewer are worked on at once"},
	{runfolder.RoleTools, "tool worker", func(*runfolder.Streams) string {
		return "calls of the tools that are placed on workers wait, and then fail"
	}, "the sessions that it had are lost, and the others open new ones"},
	{runfolder.RoleArchive, "archive", func(*runfolder.Streams) string {
		return "messages are not kept: with trainer.archive.required the run waits, else they are lost once the stream is half full"
	}, "the newest keeps the messages"},
}

// startCommand starts a worker of a role.
func (h holding) startCommand() string { return "weir " + h.role }

// roleAlarms are the alarms about workers that stopped, of a run whose broker answers.
func (f *shownRun) roleAlarms(ctx context.Context, seen *runfolder.Streams, state runfolder.State) []Alarm {
	run, err := f.folder.Broker(ctx)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if tickets, err := run.TicketCounts(ctx); err == nil {
		seen.Tickets = &runfolder.TicketsNow{Waiting: tickets.Waiting, Leased: tickets.Leased, Takers: tickets.Takers, Redelivered: tickets.Redelivered}
	}
	return findStoppedRoles(seen, state)
}

// findStoppedRoles finds the roles of a run that goes on of which no worker is there any more, and the workers that stopped without a goodbye. A
// worker that was replaced does not alarm.
func findStoppedRoles(s *runfolder.Streams, state runfolder.State) []Alarm {
	switch {
	case s.Down != "", s.Done, state == runfolder.StateFinished, state == runfolder.StateDraining:
		return nil
	}
	var out []Alarm
	trainer := slices.ContainsFunc(s.Workers, func(w runfolder.Worker) bool {
		return w.Role == runfolder.RoleTrainer && w.State == runfolder.WorkerHere
	})
	for _, h := range holdings {
		here, lost, left := h.countWorkers(s)
		switch {
		case here > 0 && len(lost) > 0:
			out = append(out, h.alarmFew(s, here, lost))
		case here > 0:
		case len(lost) > 0:
			out = append(out, h.alarmNone(s, describeLost(lost, s.Clock), fmt.Sprintf("Look at its machine and at the end of its log, and start one again: %s, with the run's configuration and broker.", h.startCommand())))
		case left == nil || s.Clock.Sub(left.Since) < goneFor:
		case h.role == runfolder.RoleTrainer || trainer && state != runfolder.StatePaused:
			out = append(out, h.alarmNone(s, fmt.Sprintf("the last one, %s, left %s, and the run is not at its end", left.Name, runfolder.Ago(left.Since, s.Clock)), fmt.Sprintf("Start one: %s, with the run's configuration and broker. A run that is to rest is paused or drained: weir control.", h.startCommand())))
		}
	}
	return out
}

// countWorkers counts the workers of a role that are here, and returns the workers that were lost and not replaced, the newest first, and the last that
// left, nil where none has.
func (h holding) countWorkers(s *runfolder.Streams) (here int, lost []runfolder.Worker, left *runfolder.Worker) {
	var came []time.Time
	for i := range s.Workers {
		w := &s.Workers[i]
		switch {
		case w.Role != h.role:
		case w.State == runfolder.WorkerSilent:
			lost = append(lost, *w)
		case w.State == runfolder.WorkerHere:
			here++
			came = append(came, w.Joined)
		case left == nil || w.Since.After(left.Since):
			left = w
		}
	}
	slices.SortFunc(came, time.Time.Compare)
	slices.SortFunc(lost, func(a, b runfolder.Worker) int { return cmp.Or(a.Heard.Compare(b.Heard), cmp.Compare(a.Name, b.Name)) })
	lost = slices.DeleteFunc(lost, func(w runfolder.Worker) bool { // each is replaced by the first that came after it
		at := slices.IndexFunc(came, func(at time.Time) bool { return at.After(w.Heard) })
		if at >= 0 {
			came = slices.Delete(came, at, at+1)
		}
		return at >= 0 || here > 0 && s.Clock.Sub(w.Heard) > lostFor
	})
	slices.Reverse(lost)
	return here, lost, left
}

// alarmNone is the alarm that no worker of a role is there.
func (h holding) alarmNone(s *runfolder.Streams, why, do string) Alarm {
	return Alarm{levelAlarm, "no " + h.name + " is there", fmt.Sprintf("%s: %s", why, h.whole(s)), do, "streams"}
}

// alarmFew tells that a role has lost workers.
func (h holding) alarmFew(s *runfolder.Streams, here int, lost []runfolder.Worker) Alarm {
	title := "a " + h.name + " stopped"
	if h.role == runfolder.RoleInference {
		title = "an " + h.name + " stopped"
	}
	return Alarm{
		levelWarn, title,
		fmt.Sprintf("%s; %d of this role are there: %s", describeLost(lost, s.Clock), here, h.part),
		fmt.Sprintf("Look at its machine and at the end of its log, and start it again: %s. To have fewer, stop one by SIGTERM: that one says goodbye.", h.startCommand()), "streams",
	}
}

// describeLost names lost workers, the newest first, and when the newest was last heard of.
func describeLost(lost []runfolder.Worker, now time.Time) string {
	const most = 3
	var all []string
	for _, w := range lost[:min(most, len(lost))] {
		all = append(all, w.Name)
	}
	text := strings.Join(all, ", ")
	if more := len(lost) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s stopped without a goodbye, last heard of %s", text, runfolder.Ago(lost[0].Heard, now))
}

// findKilled finds that the process that had the run's broker, and with it every role of weir up, ended without taking back its note of where
// the broker is.
func findKilled(s *Summary, noted string) (Alarm, bool) {
	if s.State != runfolder.StateStopped && s.State != runfolder.StateEmpty || s.Up || noted == "" {
		return Alarm{}, false
	}
	return Alarm{
		levelAlarm, "the run was killed",
		fmt.Sprintf("its folder still names the broker at %s, which does not answer: weir up ended without a goodbye, or its machine did, and trainer, producers and inference with it; %s", noted, s.Detail),
		"Look at the end of weir.log in the run's folder, then start the run by the same command: it goes on from its newest checkpoint.", "",
	}, true
}
