package streams

import (
	"fmt"
	"os"
	"strconv"
)

// maxName bounds a run, task, group, producer or engine name, in bytes.
const maxName = 64

// CheckName fails with [ErrName] where a name cannot be a token of a subject and part of a stream name: letters, digits, '_' and '-', 1
// to 64 bytes. what is the kind of name, for the error.
func CheckName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w: %s is empty", ErrName, what)
	}
	if len(name) > maxName {
		return fmt.Errorf("%w: %s %.20q...: %d bytes, at most %d", ErrName, what, name, len(name), maxName)
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return fmt.Errorf("%w: %s %q: only letters, digits, '_' and '-' are allowed", ErrName, what, name)
		}
	}
	return nil
}

// CheckRunName is [CheckName] of the name of a run.
func CheckRunName(run string) error { return CheckName("run", run) }

// WorkerName is a legal name that is unique among the processes of a run: the kind of worker, the machine's name and the process id.
// kind is short and itself a legal name.
func WorkerName(kind string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return workerName(kind, host, os.Getpid())
}

// workerName leaves out the beginning of a host's name that is too long: machines of the same kind differ at the end.
func workerName(kind, host string, process int) string {
	name := []byte(host)
	for i, c := range name {
		if CheckName("host", string(c)) != nil {
			name[i] = '-'
		}
	}
	end := "-" + strconv.Itoa(process)
	room := maxName - len(kind) - len("-") - len(end)
	return kind + "-" + string(name[max(0, len(name)-room):]) + end
}

// names are the streams, buckets and subjects of a run. Names given to its methods must have passed
// CheckName.
type names struct {
	run                                     string
	tickets, trajectories, rejected, events string // streams
	journal                                 string // a stream, which older runs lack
	weights, control, shards, released      string // buckets
}

// durableProducers is the only consumer of TICKETS: all producers share it.
const durableProducers = "producers"

func newNames(run string) (names, error) {
	if err := CheckRunName(run); err != nil {
		return names{}, err
	}
	return namesOfRun(run), nil
}

// namesOfRun is newNames of a run whose name is legal.
func namesOfRun(run string) names {
	stream := func(s string) string { return "WEIR_" + run + "_" + s }
	return names{
		run:          run,
		tickets:      stream("TICKETS"),
		trajectories: stream("TRAJECTORIES"),
		rejected:     stream("REJECTED"),
		events:       stream("EVENTS"),
		journal:      stream("JOURNAL"),
		weights:      stream("WEIGHTS"),
		control:      stream("CONTROL"),
		shards:       stream("SHARDS"),
		released:     stream("RELEASED"),
	}
}

func (n names) subjectPrefix() string { return "weir." + n.run + "." }

// ticketSubject carries the group and the sample, so that a ticket that cannot be read can still be closed, and
// a ticket that is outstanding cannot be issued again.
func (n names) ticketSubject(task, group string, sample int) string {
	return n.subjectPrefix() + "tickets." + task + "." + group + "." + strconv.Itoa(sample)
}
func (n names) ticketSubjects() string { return n.subjectPrefix() + "tickets.*.*.*" }

// releasedKey is the key of RELEASED that counts for the ticket of a subject; "" where the subject is not that of a ticket.
func (n names) releasedKey(ticket string) string {
	group, sample, ok := sampleOf(ticket)
	if !ok || CheckName("group", group) != nil {
		return ""
	}
	return ticketKey(group, sample)
}

// ticketKey stands for a ticket in the keys of RELEASED and in the subject of its journal.
func ticketKey(group string, sample int) string { return group + "." + strconv.Itoa(sample) }

func (n names) trajectorySubjects() string { return n.subjectPrefix() + "trajectories.*.*" }

func (n names) rejectedSubject(reason string) string { return n.subjectPrefix() + "rejected." + reason }
func (n names) rejectedSubjects() string             { return n.subjectPrefix() + "rejected.*" }
func (n names) eventSubject() string                 { return n.subjectPrefix() + "events" }

// journalSubject has the records of a ticket.
func (n names) journalSubject(group string, sample int) string {
	return n.subjectPrefix() + "journal." + ticketKey(group, sample)
}
func (n names) journalSubjects() string { return n.subjectPrefix() + "journal.*.*" }

// storedSubject is the subject of the broker's notices that it has stored a message, without the data: "events", or a bucket and a key.
func (n names) storedSubject(what string) string { return n.subjectPrefix() + "stored." + what }

// The third token of the subjects of calls, which no stream stores.
const (
	callGenerate = "generate"
	callTools    = "tools"
	callEvaluate = "evaluations"
)

// generateSubject is shared by all engines in a queue group; with the additions of package generate it reaches a single engine, or each.
func (n names) generateSubject() string  { return n.subjectPrefix() + callGenerate }
func (n names) generateSubjects() string { return n.subjectPrefix() + callGenerate + ".>" }

// toolsSubject is shared by all tool workers in a queue group; with an addition it reaches a single worker, or each.
func (n names) toolsSubject() string  { return n.subjectPrefix() + callTools }
func (n names) toolsSubjects() string { return n.subjectPrefix() + callTools + ".>" }

// evaluationsSubject is shared by all producers in a queue group; with an addition it reaches each.
func (n names) evaluationsSubject() string  { return n.subjectPrefix() + callEvaluate }
func (n names) evaluationsSubjects() string { return n.subjectPrefix() + callEvaluate + ".>" }

// trajectorySubject carries the oldest policy version of the tokens; "none" where nothing was sampled.
func (n names) trajectorySubject(oldest int64, producer string) string {
	version := "none"
	if oldest >= 0 {
		version = strconv.FormatInt(oldest, 10)
	}
	return n.subjectPrefix() + "trajectories." + version + "." + producer
}
