package streams

import (
	"slices"
	"strings"
	"time"
)

// Role stands for the rights of a connection.
type Role string

// The roles.
const (
	RoleAdmin     Role = "admin"     // everything: makes and removes streams
	RoleTrainer   Role = "trainer"   // issues tickets, evaluation tickets among them, reads and purges trajectories, publishes weights and control
	RoleProducer  Role = "producer"  // takes tickets, calls generate, publishes trajectories, answers evaluation tickets
	RoleInference Role = "inference" // reads weights, serves generate
	RoleTools     Role = "tools"     // serves the tools of episodes
	RoleArchive   Role = "archive"   // reads trajectories, says how far it has kept them
	RoleViewer    Role = "viewer"    // reads
)

// Roles are all roles.
func Roles() []Role {
	return []Role{RoleAdmin, RoleTrainer, RoleProducer, RoleInference, RoleTools, RoleArchive, RoleViewer}
}

// inboxPrefix begins the subjects of the replies to a role, so that no role can listen to the replies of another.
func (r Role) inboxPrefix() string {
	if r == "" {
		return "_INBOX"
	}
	return "_INBOX_" + string(r)
}

// ReplyPrefix begins the reply subjects that a broker makes up for requests from another account. They cannot be guessed.
const ReplyPrefix = "_R_."

// Permissions are the subjects that a role may use, each list sorted. A subject that is not allowed is denied.
type Permissions struct {
	// Requests are the subjects that the role may send to and that are answered or stored where the streams are.
	Requests []string
	// Calls are the subjects of the inference engines, the tool workers and of evaluation tickets that the role may send to: [ServedBy]
	// says which role answers.
	Calls []string
	// Replies are the subjects at which the role answers requests.
	Replies []string
	// Subscribe are the subjects that the role may listen to.
	Subscribe []string
}

// PermissionsOf are the permissions of a role other than the admin, which may do everything, in runs whose names are legal.
func PermissionsOf(role Role, runs ...string) Permissions {
	p := Permissions{Subscribe: []string{role.inboxPrefix() + ".>"}}
	for _, run := range runs {
		p.allowRole(role, namesOfRun(run))
	}
	for _, list := range []*[]string{&p.Requests, &p.Calls, &p.Replies, &p.Subscribe} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return p
}

// StoredSubjects are the subjects at which the broker tells every role of the messages that it has stored in these runs.
func StoredSubjects(runs ...string) []string {
	var all []string
	for _, run := range runs {
		all = append(all, namesOfRun(run).storedSubject(">"))
	}
	return all
}

// JetStream's own subjects have another name in the accounts of the roles: every account has the usual names already, answered
// by a JetStream of its own that is off.
const (
	jetStreamAPI = "$JS.API"
	importedAPI  = "_WEIR.API"
)

// ImportedSubject is the name of a subject in the account of a role.
func ImportedSubject(subject string) string {
	if rest, found := strings.CutPrefix(subject, jetStreamAPI+"."); found {
		return importedAPI + "." + rest
	}
	return subject
}

// Answer is how a request is answered.
type Answer struct {
	// Many is whether several messages may come.
	Many bool
	// Within is the longest time until the next message: after it the broker forgets the request.
	Within time.Duration
}

// AnswerTo is how a request to a subject is answered.
func AnswerTo(subject string) Answer {
	switch {
	case strings.HasPrefix(subject, "$JS.API.CONSUMER.MSG.NEXT."): // with a heartbeat every second
		return Answer{Many: true, Within: 10 * time.Second}
	case strings.HasPrefix(subject, "$JS.API.DIRECT.GET."):
		return Answer{Many: true, Within: readStall}
	case ServedBy(subject) != RoleAdmin: // kept alive by a message every second
		return Answer{Many: true, Within: 30 * time.Second}
	}
	return Answer{Within: attemptTimeout}
}

func (p *Permissions) allowPublish(subjects ...string) { p.Requests = append(p.Requests, subjects...) }

// allowCalls lets a role call the engines and the tool workers.
func (p *Permissions) allowCalls(n names) {
	p.Calls = append(p.Calls, n.generateSubject(), n.generateSubjects(), n.toolsSubject(), n.toolsSubjects())
}

// ServedBy is the role that answers the messages to a subject; the admin's account holds the streams.
func ServedBy(subject string) Role {
	token := strings.Split(subject, ".")
	if len(token) >= 3 && token[0] == "weir" {
		switch token[2] {
		case callGenerate:
			return RoleInference
		case callTools:
			return RoleTools
		case callEvaluate:
			return RoleProducer
		}
	}
	return RoleAdmin
}

// allowInfo lets a role read how a stream is configured and how many messages and bytes it holds.
func (p *Permissions) allowInfo(streams ...string) {
	for _, s := range streams {
		p.allowPublish("$JS.API.STREAM.INFO." + s)
	}
}

// allowRead lets a role read a stream's messages by sequence or subject.
func (p *Permissions) allowRead(streams ...string) {
	p.allowInfo(streams...)
	for _, s := range streams {
		p.allowPublish("$JS.API.DIRECT.GET."+s, "$JS.API.DIRECT.GET."+s+".>")
	}
}

func (p *Permissions) allowRole(role Role, n names) {
	weights, control, shards := "KV_"+n.weights, "KV_"+n.control, "OBJ_"+n.shards
	p.allowInfo(n.tickets, n.trajectories, n.rejected, n.events, n.journal, "KV_"+n.released)
	p.allowPublish("$JS.API.CONSUMER.INFO." + n.tickets + "." + durableProducers) // how many tickets wait, and how many are leased
	p.allowRead(control)
	p.Subscribe = append(p.Subscribe, n.storedSubject(">"))
	switch role {
	case RoleTrainer:
		p.allowRead(n.trajectories, n.rejected, n.events, weights, shards)
		p.allowPublish(
			n.ticketSubjects(), n.trajectorySubjects(), n.rejectedSubjects(), n.eventSubject(),
			// The only right to make consumers: docs/guarantees.md describes how a thief could use it.
			"$JS.API.CONSUMER.CREATE."+n.trajectories+".*", "$JS.API.CONSUMER.INFO."+n.trajectories+".*",
			"$JS.API.CONSUMER.DELETE."+n.trajectories+".*", "$JS.API.CONSUMER.MSG.NEXT."+n.trajectories+".*",
			"$JS.API.CONSUMER.RESET."+n.trajectories+".*",
			"$JS.ACK."+n.trajectories+".>",
			"$JS.API.STREAM.PURGE."+n.trajectories,
			"$KV."+n.weights+".>", "$KV."+n.control+".>", "$O."+n.shards+".>",
			"$JS.API.STREAM.PURGE."+shards, "$JS.API.STREAM.MSG.DELETE."+shards,
		)
		p.allowCalls(n)
		p.Calls = append(p.Calls, n.evaluationsSubject(), n.evaluationsSubjects())
	case RoleProducer:
		p.allowPublish(
			"$JS.API.CONSUMER.MSG.NEXT."+n.tickets+"."+durableProducers,
			"$JS.ACK."+n.tickets+"."+durableProducers+".>",
			// To end a ticket of whose delivery a killed broker has lost the record.
			"$JS.API.DIRECT.GET."+n.tickets, "$JS.API.STREAM.MSG.DELETE."+n.tickets,
			n.trajectorySubjects(), n.rejectedSubjects(), n.eventSubject(),
			// To count the tickets that are given back unworked.
			"$JS.API.DIRECT.GET.KV_"+n.released+".>", "$KV."+n.released+".>",
			// To remove the fences of journals that have ended.
			"$JS.API.STREAM.PURGE.KV_"+n.released,
			// The journals of all tickets: keys cannot tell which tickets a producer holds.
			n.journalSubjects(),
		)
		p.allowRead(n.journal)
		p.allowCalls(n)
		p.Replies = append(p.Replies, ReplyPrefix+">")
		p.Subscribe = append(p.Subscribe, n.evaluationsSubject(), n.evaluationsSubjects())
	case RoleInference:
		p.allowRead(weights, shards)
		p.allowPublish(n.eventSubject())
		p.Replies = append(p.Replies, ReplyPrefix+">")
		p.Subscribe = append(p.Subscribe, n.generateSubject(), n.generateSubjects())
	case RoleTools:
		p.allowPublish(n.eventSubject())
		p.Replies = append(p.Replies, ReplyPrefix+">")
		p.Subscribe = append(p.Subscribe, n.toolsSubject(), n.toolsSubjects())
	case RoleArchive:
		p.allowRead(n.trajectories)
		p.allowPublish(n.eventSubject(), keySubject(n.control, archiveKey))
	case RoleViewer:
		p.allowRead(n.rejected, n.events, weights)
		p.allowInfo(shards)
		p.allowPublish("$JS.API.DIRECT.GET."+n.trajectories, "$JS.API.DIRECT.GET."+n.tickets)
	}
}
