package broker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
)

// attempt is one thing that a thief does with a role's key: a request, with an answer that is to go to the thief or, worse, to a
// subject of somebody else.
type attempt struct {
	subject, reply, body string
	header               nats.Header
}

func (a attempt) String() string {
	return fmt.Sprintf("%s -> %s %.80s %v", a.subject, a.reply, a.body, a.header)
}

// thief is a connection with a stolen key, on a broker that serves the runs test and, for other keys, other.
type thief struct {
	t     *testing.T
	role  streams.Role
	nc    *nats.Conn
	admin jetstream.JetStream
}

// everything is what the broker holds, as text: each stream's configuration, messages and consumers. Nothing else that a thief
// could change lasts.
func (th *thief) everything() map[string]string {
	th.t.Helper()
	held := make(map[string]string)
	lister := th.admin.ListStreams(th.t.Context())
	for info := range lister.Info() {
		config, err := json.Marshal(info.Config)
		require.NoError(th.t, err)
		text := fmt.Sprintf("%s\nfrom %d to %d, %d messages, %d deleted", config, info.State.FirstSeq, info.State.LastSeq, info.State.Msgs, info.State.NumDeleted)
		stream, err := th.admin.Stream(th.t.Context(), info.Config.Name)
		require.NoError(th.t, err)
		consumers := stream.ListConsumers(th.t.Context())
		for c := range consumers.Info() {
			text += fmt.Sprintf("\nconsumer %s, delivered %d, acked %d, pending %d", c.Name, c.Delivered.Stream, c.AckFloor.Stream, c.NumAckPending)
		}
		require.NoError(th.t, consumers.Err())
		held[info.Config.Name] = text
	}
	require.NoError(th.t, lister.Err())
	return held
}

// make carries an attempt out and waits until the broker has handled it, and whatever it set off: what it sends to itself goes
// through queues of its own, so a round trip through each stream follows.
func (th *thief) make(a attempt) {
	th.t.Helper()
	require.NoError(th.t, th.nc.PublishMsg(&nats.Msg{Subject: a.subject, Reply: a.reply, Header: a.header, Data: []byte(a.body)}))
	require.NoError(th.t, th.nc.Flush())
}

// The subjects that a thief would have the broker send something to.
func targets() []string {
	return []string{
		"$JS.API.STREAM.DELETE.WEIR_test_TICKETS", "$JS.API.STREAM.DELETE.WEIR_test_EVENTS", "$JS.API.STREAM.DELETE.KV_WEIR_test_CONTROL",
		"$JS.API.STREAM.PURGE.WEIR_test_TICKETS", "$JS.API.STREAM.PURGE.KV_WEIR_test_WEIGHTS", "$JS.API.STREAM.PURGE.OBJ_WEIR_test_SHARDS",
		"$JS.API.STREAM.DELETE.WEIR_other_TRAJECTORIES", "$JS.API.STREAM.PURGE.WEIR_other_TICKETS",
		"$JS.API.CONSUMER.DELETE.WEIR_test_TICKETS.producers", "$JS.API.CONSUMER.MSG.NEXT.WEIR_test_TICKETS.producers",
		"$JS.API.CONSUMER.RESET.WEIR_test_TRAJECTORIES.trainer", "$JS.API.CONSUMER.MSG.NEXT.WEIR_other_TICKETS.producers",
		"$KV.WEIR_test_CONTROL.control", "$KV.WEIR_test_CONTROL.trainer", "$KV.WEIR_test_CONTROL.keep", "$KV.WEIR_test_WEIGHTS.manifest", "$KV.WEIR_other_CONTROL.control",
		"$O.WEIR_test_SHARDS.M.x", "weir.test.tickets.echo.g9-0.0", "weir.other.events", "weir.other.tickets.echo.g9-0.0",
		"weir.test.generate.all.control", "weir.test.stored.events", "_INBOX_trainer.x",
		"$JS.ACK.WEIR_test_TICKETS.producers.1.1.1.1.1", "$SYS.REQ.SERVER.PING",
	}
}

// attempts are what a thief tries whatever the role.
func attempts() (all []attempt) {
	const inbox = "mine"
	add := func(subject, body string) { all = append(all, attempt{subject: subject, reply: inbox, body: body}) }
	streamsOf := []string{
		"WEIR_test_TICKETS", "WEIR_test_TRAJECTORIES", "WEIR_test_REJECTED", "WEIR_test_EVENTS", "WEIR_test_JOURNAL", "KV_WEIR_test_WEIGHTS",
		"KV_WEIR_test_CONTROL", "OBJ_WEIR_test_SHARDS", "WEIR_other_TICKETS", "WEIR_other_EVENTS",
	}
	for _, api := range []string{"$JS.API.", "_WEIR.API."} {
		for _, s := range streamsOf {
			add(api+"STREAM.DELETE."+s, "")
			add(api+"STREAM.PURGE."+s, "")
			add(api+"STREAM.UPDATE."+s, `{"name":"`+s+`","max_msgs":1,"subjects":["mine.>"]}`)
			add(api+"STREAM.SNAPSHOT."+s, `{"deliver_subject":"mine"}`)
			add(api+"STREAM.MSG.DELETE."+s, `{"seq":1}`)
			add(api+"CONSUMER.DELETE."+s+".producers", "")
			add(api+"CONSUMER.RESET."+s+".trainer", "")
			add(api+"CONSUMER.PAUSE."+s+".producers", `{"pause_until":"2100-01-01T00:00:00Z"}`)
			add(api+"CONSUMER.UNPIN."+s+".producers", `{"group":"x"}`)
			add(api+"CONSUMER.DURABLE.CREATE."+s+".evil", `{"stream_name":"`+s+`","config":{"durable_name":"evil","ack_policy":"none","deliver_subject":"mine"}}`)
			add(api+"CONSUMER.CREATE."+s, `{"stream_name":"`+s+`","config":{"ack_policy":"none","deliver_subject":"mine"}}`)
			for _, to := range []string{"$JS.API.CONSUMER.MSG.NEXT.WEIR_test_TICKETS.producers", "_INBOX_trainer.x", "weir.test.events"} {
				add(api+"CONSUMER.CREATE."+s+".evil",
					`{"stream_name":"`+s+`","config":{"name":"evil","ack_policy":"explicit","headers_only":true,"deliver_policy":"all","deliver_subject":"`+to+`"}}`)
			}
		}
		add(api+"STREAM.CREATE.EVIL", `{"name":"EVIL","subjects":["evil.>"]}`)
		add(api+"STREAM.CREATE.EVIL", `{"name":"EVIL","mirror":{"name":"WEIR_test_TICKETS"}}`)
		add(api+"STREAM.CREATE.EVIL", `{"name":"EVIL","sources":[{"name":"WEIR_test_TRAJECTORIES"}]}`)
		add(api+"STREAM.RESTORE.EVIL", `{"config":{"name":"EVIL"},"state":{}}`)
		add(api+"STREAM.TEMPLATE.CREATE.EVIL", `{}`)
		add(api+"STREAM.LEADER.STEPDOWN.WEIR_test_TICKETS", "")
		add(api+"CONSUMER.LEADER.STEPDOWN.WEIR_test_TICKETS.producers", "")
		add(api+"META.LEADER.STEPDOWN", "")
		add(api+"SERVER.REMOVE", `{"peer":"x"}`)
		add(api+"ACCOUNT.PURGE.$G", "")
	}
	for _, s := range []string{
		"$KV.WEIR_test_CONTROL.control", "$KV.WEIR_test_CONTROL.trainer", "$KV.WEIR_test_CONTROL.keep", "$KV.WEIR_test_WEIGHTS.manifest", "$KV.WEIR_test_WEIGHTS.trainer",
		"$O.WEIR_test_SHARDS.M.x", "$O.WEIR_test_SHARDS.C.x", "weir.test.tickets.echo.g9-0.0", "weir.other.tickets.echo.g9-0.0",
		"weir.other.trajectories.0.x", "weir.other.events", "weir.other.rejected.stale", "$KV.WEIR_other_CONTROL.control",
		"$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.PING.CONNZ", "$SYS.ACCOUNT.$G.CONNECT", "$JSC.R.x", "$NRG.V.x", "$GR.x", "_GR_.x", "$LDS.x",
		"$JS.ACK.WEIR_test_TRAJECTORIES.trainer.1.1.1.1.1", "$JS.ACK.WEIR_other_TICKETS.producers.1.1.1.1.1", "_INBOX_trainer.x", "_INBOX.x",
	} {
		add(s, "x")
	}
	// An answer that goes where the key may not.
	for _, to := range targets() {
		for _, from := range []attempt{
			{subject: "STREAM.INFO.WEIR_test_TICKETS"},
			{subject: "DIRECT.GET.KV_WEIR_test_CONTROL", body: `{"seq":1000}`},
			{subject: "DIRECT.GET.KV_WEIR_test_CONTROL", body: `{"seq":1}`},
			{subject: "CONSUMER.INFO.WEIR_test_TICKETS.producers"},
		} {
			for _, api := range []string{"$JS.API.", "_WEIR.API."} {
				all = append(all, attempt{subject: api + from.subject, reply: to, body: from.body})
			}
		}
		all = append(all, attempt{subject: "weir.test.generate", reply: to, body: "x"}, attempt{subject: "weir.test.events", reply: to, header: nats.Header{"Nats-Expected-Stream": {"none"}}})
	}
	// Headers by which a publisher tells a stream what to do, on the subjects that some role may write to; in streams that
	// allow them these would remove or schedule messages.
	for _, s := range []string{"weir.test.trajectories.0.x", "weir.test.rejected.stale", "weir.test.events"} {
		for name, value := range map[string]string{
			"Nats-Rollup": "all", "Nats-TTL": "1s", "Nats-Schedule": "@every 1s", "Nats-Incr": "+1",
			"Nats-Marker-Reason": "Purge", "Nats-Expected-Last-Sequence": "999", "Nats-Expected-Stream": "none",
		} {
			h := nats.Header{name: {value}}
			if name == "Nats-Schedule" {
				h.Set("Nats-Schedule-Target", "weir.test.tickets.echo.g9-0.0")
			}
			all = append(all, attempt{subject: s, reply: inbox, body: "x", header: h})
		}
		rollup := nats.Header{"Nats-Rollup": {"sub"}}
		all = append(all, attempt{subject: s, reply: inbox, body: "x", header: rollup},
			attempt{subject: s, reply: inbox, body: "x", header: nats.Header{"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"7"}}})
	}
	return all
}

// reached are the streams that a role's key may add to, and by MSG.DELETE and ACK take from: docs/guarantees.md names these
// powers. What an attempt may do beyond that is nothing.
func reached(role streams.Role) map[string]string {
	switch role {
	case streams.RoleProducer:
		return map[string]string{
			"WEIR_test_TRAJECTORIES": "adds", "WEIR_test_REJECTED": "adds", "WEIR_test_EVENTS": "adds", "WEIR_test_TICKETS": "takes",
		}
	case streams.RoleInference, streams.RoleTools, streams.RoleArchive:
		return map[string]string{"WEIR_test_EVENTS": "adds"}
	}
	return nil
}

// Defect F5: a key of a role that reads could have the broker publish for it, by a consumer that delivers elsewhere or by a
// request whose answer goes elsewhere, and so take tickets, stop a run or remove its streams.
func TestAStolenKeyDoesNoMoreThanItsRole(t *testing.T) {
	require.Greater(t, len(attempts()), 120)
	for _, role := range streams.Roles()[1:] {
		t.Run(string(role), func(t *testing.T) {
			l := lockedBroker(t)
			admin := l.connect(t, streams.RoleAdmin)
			prepare(t, l, admin)
			js, err := jetstream.New(admin.NATS())
			require.NoError(t, err)
			th := &thief{t: t, role: role, nc: l.connect(t, role).NATS(), admin: js}
			th.nc.SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
			before := th.everything()
			for i, a := range attempts() {
				if role == streams.RoleTrainer && strings.Contains(a.subject, ".CONSUMER.CREATE.WEIR_test_TRAJECTORIES") {
					continue // docs/guarantees.md says what a thief may do with this one
				}
				th.make(a)
				// The whole is compared now and then, and once more when something is found, so that the attempt can be named.
				if i%64 == 63 {
					th.unharmed(before, a)
				}
			}
			th.unharmed(before, attempt{subject: "all"})
			th.hearsNothing()
			if role != streams.RoleTrainer {
				control, err := l.admin.Control(t.Context())
				require.NoError(t, err)
				require.Equal(t, 2, control.Eta)
			}
		})
	}
}

// prepare fills two runs, the other of which no key but the admin's is for.
func prepare(t *testing.T, l *locked, admin *streams.Conn) {
	t.Helper()
	topology := streams.DefaultTopology()
	topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 16<<20, 8<<20
	_, err := admin.Open(t.Context(), "other", topology)
	require.NoError(t, err)
	for eta := 1; eta <= 2; eta++ {
		require.NoError(t, tell(t.Context(), l.admin, &schemas.Control{Run: "test", Eta: eta, At: time.Unix(1, 0).UTC()}))
	}
	manifest, shards := streamtest.Weights("test", 0, []byte("weights"))
	require.NoError(t, streamtest.PublishWeights(t.Context(), l.admin, manifest, shards))
	require.NoError(t, l.admin.Issue(t.Context(), streamtest.Ticket(1, 0), streamtest.Ticket(1, 1)))
	require.NoError(t, l.admin.Publish(t.Context(), streamtest.Trajectory(1, 0, 9, 0)))
	require.NoError(t, l.admin.Emit(t.Context(), &schemas.Event{Run: "test", Type: schemas.EventWorkerJoined, Role: "producer", Worker: "p", At: time.Unix(1, 0).UTC()}))
	feed, err := l.admin.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	_, err = feed.Next(t.Context())
	require.NoError(t, err)
	t.Cleanup(feed.Close)
}

// unharmed fails where more has changed than the role may change.
func (th *thief) unharmed(before map[string]string, last attempt) {
	th.t.Helper()
	// What the broker sends to itself goes through queues: a request through each of its parts comes after it.
	ctx, cancel := context.WithTimeout(th.t.Context(), time.Minute)
	defer cancel()
	_, err := th.admin.AccountInfo(ctx)
	require.NoError(th.t, err)
	now := th.everything()
	require.Len(th.t, now, len(before), "streams, up to %s", last)
	for name, was := range before {
		if th.role == streams.RoleTrainer && !strings.Contains(name, "_other_") {
			continue // the run is its own
		}
		is := now[name]
		switch reached(th.role)[name] {
		case "adds":
			configWas, stateWas, _ := strings.Cut(was, "\n")
			configIs, stateIs, _ := strings.Cut(is, "\n")
			require.Equal(th.t, configWas, configIs, "up to %s", last)
			var first, lastSeq, messages, deleted, f, ls, m, d int
			scan(th.t, stateWas, &first, &lastSeq, &messages, &deleted)
			scan(th.t, stateIs, &f, &ls, &m, &d)
			require.Equal(th.t, max(first, min(f, 1)), max(f, first), "%s: nothing goes, up to %s", name, last)
			require.Equal(th.t, ls-lastSeq, m-messages, "%s: nothing goes, up to %s", name, last)
			require.Equal(th.t, deleted, d)
		case "takes":
			config, _, _ := strings.Cut(was, "\n")
			require.Equal(th.t, config, strings.SplitN(is, "\n", 2)[0])
			require.Contains(th.t, is, "consumer producers")
			require.NotContains(th.t, is, "evil")
		default:
			require.Equal(th.t, was, is, "%s, up to %s", name, last)
		}
	}
}

func scan(t *testing.T, text string, first, last, messages, deleted *int) {
	t.Helper()
	_, err := fmt.Sscanf(text, "from %d to %d, %d messages, %d deleted", first, last, messages, deleted)
	require.NoError(t, err, text)
}

// hearsNothing fails where the thief may listen to what is not its role's.
func (th *thief) hearsNothing() {
	th.t.Helper()
	denied := make(chan error, 64)
	th.nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })
	for _, subject := range []string{
		">", "*.>", "weir.>", "weir.test.>", "weir.test.tickets.>", "weir.test.trajectories.>", "weir.test.rejected.>", "weir.test.events",
		"weir.other.>", "weir.other.stored.>", "weir.*.stored.>", "$KV.>", "$KV.WEIR_test_CONTROL.>", "$O.>", "$JS.>", "$JS.API.>", "$JS.ACK.>",
		"$JS.EVENT.>", "$SYS.>", "_INBOX.>", "_INBOX_admin.>", "_R_.>", "_WEIR.API.>",
	} {
		_, err := th.nc.SubscribeSync(subject)
		require.NoError(th.t, err)
		require.ErrorIs(th.t, <-denied, nats.ErrPermissionViolation, subject)
	}
}
