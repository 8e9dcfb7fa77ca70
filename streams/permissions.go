package streams

import "slices"

// Role is what a connection may do.
type Role string

// The roles.
const (
	RoleAdmin     Role = "admin"     // everything: makes and removes streams
	RoleTrainer   Role = "trainer"   // issues tickets, reads and purges trajectories, publishes weights and control
	RoleProducer  Role = "producer"  // takes tickets, calls generate, publishes trajectories
	RoleInference Role = "inference" // reads weights, serves generate
	RoleViewer    Role = "viewer"    // reads
)

// Roles are all roles.
func Roles() []Role {
	return []Role{RoleAdmin, RoleTrainer, RoleProducer, RoleInference, RoleViewer}
}

// inboxPrefix is where replies to a role arrive, so that no role can listen to another's.
func (r Role) inboxPrefix() string {
	if r == "" {
		return "_INBOX"
	}
	return "_INBOX_" + string(r)
}

// responses are the subjects that the server makes up for the answers to a call from another account. They cannot be guessed.
const responses = "_R_.>"

// permissions are the subjects of a role. What is not allowed is denied.
type permissions struct{ Publish, Subscribe []string }

func permissionsOf(role Role, runs []string) permissions {
	p := permissions{Subscribe: []string{role.inboxPrefix() + ".>"}}
	for _, run := range runs {
		n, err := newNames(run)
		if err != nil {
			continue // Validate has named it
		}
		p.allow(role, n)
	}
	slices.Sort(p.Publish)
	p.Publish = slices.Compact(p.Publish)
	slices.Sort(p.Subscribe)
	p.Subscribe = slices.Compact(p.Subscribe)
	return p
}

func (p *permissions) publish(subjects ...string) { p.Publish = append(p.Publish, subjects...) }

// look lets a role see how a stream is configured and what it holds, in numbers.
func (p *permissions) look(streams ...string) {
	for _, s := range streams {
		p.publish("$JS.API.STREAM.INFO." + s)
	}
}

// read lets a role read a stream's messages by sequence or subject.
func (p *permissions) read(streams ...string) {
	p.look(streams...)
	for _, s := range streams {
		p.publish("$JS.API.DIRECT.GET."+s, "$JS.API.DIRECT.GET."+s+".>")
	}
}

func (p *permissions) allow(role Role, n names) {
	weights, control, shards := "KV_"+n.weights, "KV_"+n.control, "OBJ_"+n.shards
	p.look(n.tickets, n.trajectories, n.rejected, n.events)
	p.publish("$JS.API.CONSUMER.INFO." + n.tickets + "." + durableProducers) // how many tickets wait, and how many are leased
	p.read(control)
	p.Subscribe = append(p.Subscribe, n.storedSubject(">"))
	switch role {
	case RoleTrainer:
		p.read(n.trajectories, n.rejected, n.events, weights, shards)
		p.publish(
			n.ticketSubjects(), n.trajectorySubjects(), n.rejectedSubjects(), n.eventSubject(),
			"$JS.API.DIRECT.GET."+n.tickets, "$JS.API.STREAM.MSG.DELETE."+n.tickets,
			// The one right to make consumers: docs/guarantees.md says what it is worth to a thief.
			"$JS.API.CONSUMER.CREATE."+n.trajectories+".*", "$JS.API.CONSUMER.INFO."+n.trajectories+".*",
			"$JS.API.CONSUMER.DELETE."+n.trajectories+".*", "$JS.API.CONSUMER.MSG.NEXT."+n.trajectories+".*",
			"$JS.API.CONSUMER.RESET."+n.trajectories+".*",
			"$JS.ACK."+n.trajectories+".>",
			"$JS.API.STREAM.PURGE."+n.trajectories,
			"$KV."+n.weights+".>", "$KV."+n.control+".>", "$O."+n.shards+".>",
			"$JS.API.STREAM.PURGE."+shards, "$JS.API.STREAM.MSG.DELETE."+shards,
			n.generateSubject(), n.prefix()+"generate.>",
		)
	case RoleProducer:
		p.look("KV_" + n.released)
		p.publish(
			"$JS.API.CONSUMER.MSG.NEXT."+n.tickets+"."+durableProducers,
			"$JS.ACK."+n.tickets+"."+durableProducers+".>",
			// To end a ticket that a killed broker has forgotten to have handed out.
			"$JS.API.DIRECT.GET."+n.tickets, "$JS.API.STREAM.MSG.DELETE."+n.tickets,
			n.trajectorySubjects(), n.rejectedSubjects(), n.eventSubject(),
			// To count what is given back unworked.
			"$JS.API.DIRECT.GET.KV_"+n.released+".>", "$KV."+n.released+".>",
			n.generateSubject(), n.prefix()+"generate.>",
		)
	case RoleInference:
		p.read(weights, shards)
		p.publish(n.eventSubject())
		p.publish(responses)
		p.Subscribe = append(p.Subscribe, n.generateSubject(), n.prefix()+"generate.>")
	case RoleViewer:
		p.read(n.rejected, n.events, weights)
		p.publish("$JS.API.DIRECT.GET."+n.trajectories, "$JS.API.DIRECT.GET."+n.tickets)
	}
}
