package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/streamtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, streamtest.ClientLeak()) }

// station is a broker that can be restarted, with a run in it.
type station struct {
	t      *testing.T
	config broker.Config
	broker *broker.Broker
	run    *streams.Run
}

func newStation(t *testing.T) *station {
	t.Helper()
	s := &station{t: t, config: broker.DefaultConfig()}
	s.config.StoreDir, s.config.Listen, s.config.MaxPayload = t.TempDir(), streamtest.FreeAddress(t), 64<<10
	s.config.MaxBufferedBytes, s.config.SyncAlways = 1<<20, false
	s.start()
	t.Cleanup(func() { s.broker.Shutdown() })
	conn, err := streams.Connect(t.Context(), streams.ConnectConfig{URL: s.broker.URL(), Name: "test"}, nil)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	topology := streams.DefaultTopology()
	topology.MaxTrajectories, topology.MaxTrajectoryBytes, topology.RejectedMaxBytes = 256, 16<<20, 16<<20
	s.run, err = conn.Open(t.Context(), "r", topology)
	require.NoError(t, err)
	return s
}

func (s *station) start() {
	s.t.Helper()
	b, err := broker.Start(s.t.Context(), s.config, nil)
	require.NoError(s.t, err)
	s.broker = b
}

func (s *station) connect() *nats.Conn {
	s.t.Helper()
	nc, err := nats.Connect(s.broker.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	require.NoError(s.t, err)
	s.t.Cleanup(nc.Close)
	return nc
}

func (s *station) publish(cursor uint64, tokens int) *schemas.Trajectory {
	s.t.Helper()
	group := fmt.Sprintf("g%06d-a0", cursor)
	segment := schemas.Segment{Temperature: 1}
	for i := range tokens {
		action := byte(min(i, 1))
		segment.Tokens = append(segment.Tokens, int32(i))
		segment.ActionMask = append(segment.ActionMask, action)
		segment.Logprobs = append(segment.Logprobs, -0.5*float32(action))
		segment.Versions = append(segment.Versions, []int32{schemas.NoVersion, 3}[action])
	}
	t := &schemas.Trajectory{
		Run: "r", ID: group + "-0", Group: group, Cursor: cursor, GroupSize: 4,
		Task: "t", PromptID: "p", Producer: "p1", Segments: []schemas.Segment{segment}, Stop: schemas.StopAnswer,
		StartedAt: time.Now().UTC(), FinishedAt: time.Now().UTC(),
		Turns: []schemas.Turn{{Segment: 0, Start: 1, End: tokens}},
	}
	require.NoError(s.t, s.run.Publish(s.t.Context(), t))
	return t
}

// watched starts a witness.
func (s *station) watched() *witness {
	s.t.Helper()
	nc := s.connect()
	w, err := newWitness(nc, "r")
	require.NoError(s.t, err)
	nc.SetReconnectHandler(func(*nats.Conn) { w.forgetRequests() })
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.watchStreams(ctx) }()
	s.t.Cleanup(func() { cancel(); <-done })
	return w
}

func (s *station) caughtUp(w *witness) *jetstream.StreamInfo {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	info, err := w.catchUp(ctx)
	require.NoError(s.t, err)
	return info
}

func TestWitnessSeesEveryMessageOnceOverARestartOfTheBroker(t *testing.T) {
	s := newStation(t)
	w := s.watched()
	s.publish(0, 8)
	require.NoError(t, s.run.CloseGroup(t.Context(), &schemas.GroupClosed{
		Run: "r", Group: "g000000-a0", Cancelled: []int{1}, Producer: "p1", Why: "gone", ClosedAt: time.Now().UTC(),
	}))
	s.caughtUp(w)
	s.broker.Shutdown()
	s.start()
	long := s.publish(1, 20_000) // in parts
	s.publish(2, 8)
	info := s.caughtUp(w)

	seen, _ := w.copyRecords()
	require.Equal(t, "g000000-a0-0", seen[0].ID)
	require.EqualValues(t, 3, seen[0].Oldest)
	require.EqualValues(t, 1, seen[0].Sequence)
	require.Equal(t, "g000002-a0-0", seen[len(seen)-1].ID)
	require.Equal(t, info.State.LastSeq, seen[len(seen)-1].Sequence)
	parts := seen[1 : len(seen)-1]
	require.Greater(t, len(parts), 1)
	for i, p := range parts {
		require.EqualValues(t, 3, p.First, "the marker has sequence 2")
		require.EqualValues(t, 3+i, p.Sequence)
		require.True(t, p.Created.Equal(info.Created))
	}

	// All four are still in the stream: nothing is lost, and the long one counts once.
	r := audit.Check(nil, audit.Bounds{}, &audit.Witness{Seen: seen, Created: info.Created, First: info.State.FirstSeq})
	require.NoError(t, r.Err())
	require.Equal(t, 3, r.Witnessed)
	require.NotEmpty(t, long.ID)

	// A purge that nobody may do is seen.
	stream, err := w.findStream(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Purge(t.Context()))
	info = s.caughtUp(w)
	seen, _ = w.copyRecords()
	r = audit.Check(nil, audit.Bounds{}, &audit.Witness{Seen: seen, Created: info.Created, First: info.State.FirstSeq})
	require.EqualValues(t, len(seen), r.Lost.Count)
}

// A stranger's exact copy counts as the producer's trajectory where that has gone with a store, and only there: the trainer may train on
// it. Altered copies are made of messages that are still there.
func TestAnExactCopyStandsInForAMessageThatWentWithItsStore(t *testing.T) {
	w, err := newWitness(newStation(t).connect(), "r")
	require.NoError(t, err)
	created := time.Unix(100, 0)
	life := w.beginStream(created)
	note := func(sequence uint64, id string, reward float64, header string) {
		trajectory := &schemas.Trajectory{Run: "r", ID: id, Reward: reward}
		data, err := schemas.Marshal(trajectory)
		require.NoError(t, err)
		m := &nats.Msg{Data: data, Header: nats.Header{}}
		if header != "" {
			m.Header.Set(jetstream.MsgIDHeader, header)
		}
		require.True(t, w.noteMessage(sequence, life, &atRest{&jetstream.RawStreamMsg{Data: m.Data, Header: m.Header}}))
	}
	note(1, "kept", 1, "id-kept")
	note(2, "gone", 1, "id-gone")
	note(3, "gone", 1, "")
	require.False(t, w.wasSent(created, 3, "gone"), "its original is there")
	require.True(t, w.wasStranger(created, 3, "gone"), "whether the broker's answer came or not")
	require.False(t, w.wasStranger(created, 2, "gone"))
	_, gone := w.newestSample(0)
	require.False(t, gone)

	w.markLost(&jetstream.StreamInfo{State: jetstream.StreamState{FirstSeq: 1}}, 1) // the stream comes back with its first message
	life = w.beginStream(created)
	newest, gone := w.newestSample(0)
	require.True(t, gone)
	require.Equal(t, "id-gone", newest.Header.Get(jetstream.MsgIDHeader))
	_, gone = w.newestSample(1)
	require.False(t, gone)
	note(3, "gone", 0.5, "")
	require.False(t, w.wasSent(created, 3, "gone"), "it is altered")
	note(4, "kept", 1, "")
	require.False(t, w.wasSent(created, 4, "kept"), "its original outlived the cut")
	note(5, "gone", 1, "")
	require.True(t, w.wasSent(created, 5, "gone"))
	require.False(t, w.wasStranger(created, 5, "gone"))
	note(6, "gone", 1, "")
	require.False(t, w.wasSent(created, 6, "gone"), "the copy at sequence 5 came first")

	w.markLost(&jetstream.StreamInfo{State: jetstream.StreamState{FirstSeq: 1}}, 0)
	created = time.Unix(200, 0)
	life = w.beginStream(created)
	note(1, "kept", 1, "")
	require.True(t, w.wasSent(created, 1, "kept"))
}

// Every stranger's message is refused by the feed, but for those that say nothing wrong by themselves: they are
// the trainer's to refuse.
func TestStrangersMessagesAreRefused(t *testing.T) {
	s := newStation(t)
	w := s.watched()
	honest := s.publish(0, 8)
	s.caughtUp(w)
	nc := s.connect()
	stranger, err := newStranger(nc, "r", s.config.Listen, w)
	require.NoError(t, err)
	feed, err := s.run.Feed(t.Context(), streams.FeedOptions{})
	require.NoError(t, err)
	defer feed.Close()
	d, err := feed.Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, honest.ID, d.Trajectory.ID)

	rng := rand.New(rand.NewPCG(1, 2))
	said := slices.DeleteFunc(forgeryKinds(), func(f forgery) bool { return f.lie })
	for _, f := range said {
		stranger.sendOne(t.Context(), rng, f)
	}
	stranger.breakProtocol(t.Context(), rng)
	require.Equal(t, len(said)+1, Total(stranger.sent), "every kind was sent: %v", stranger.sent)
	require.Equal(t, 1, stranger.known, "the copy with its id")
	last := s.publish(1, 8)
	var kinds []string
	for {
		d, err := feed.Next(t.Context())
		require.NoError(t, err)
		if d.Trajectory != nil && d.Trajectory.ID == last.ID {
			break
		}
		kinds = append(kinds, stranger.kindAt(d.Sequence, time.Time{}, time.Time{}))
	}
	require.Subset(t, []string{"duplicate", "replay", "other_group", "marker", "flipped"}, kinds)
	require.Subset(t, kinds, []string{"duplicate", "replay", "other_group", "marker"})

	refused := map[uint64]bool{}
	for m, err := range s.run.Rejected(t.Context()) {
		require.NoError(t, err)
		require.NotEmpty(t, m.Reason)
		require.NotEmpty(t, m.Detail)
		refused[m.Original] = true
	}
	for sequence := range stranger.stored {
		switch kind := stranger.kindAt(sequence, time.Time{}, time.Time{}); kind {
		case "duplicate", "replay", "other_group", "marker", "flipped":
		default:
			require.True(t, refused[sequence], "%s, sequence %d", kind, sequence)
		}
	}
}

// A stranger's message of a stream that was lost since is not the message that stands at its sequence in the stream after.
func TestAStrangersMessageIsOfTheStreamOfItsTime(t *testing.T) {
	s := &stranger{stored: map[uint64][]forged{7: {{"garbage", time.Unix(150, 0)}, {"nan", time.Unix(250, 0)}}}}
	first, second, third := time.Unix(100, 0), time.Unix(200, 0), time.Unix(300, 0)
	require.Equal(t, "garbage", s.kindAt(7, first, second))
	require.Equal(t, "nan", s.kindAt(7, second, third))
	require.Equal(t, "nan", s.kindAt(7, second, time.Time{}))
	require.Empty(t, s.kindAt(7, third, time.Time{}))
	require.Empty(t, s.kindAt(8, first, second))
}

func TestFillEndsWhenTheStreamIsFull(t *testing.T) {
	s := newStation(t)
	w := s.watched()
	stranger, err := newStranger(s.connect(), "r", s.config.Listen, w)
	require.NoError(t, err)
	n, full := stranger.fillTrajectories(t.Context(), rand.New(rand.NewPCG(1, 1)))
	require.True(t, full)
	require.Equal(t, 256, n)
}

func TestStalledLinkLosesNothing(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := echo.Accept()
		if err != nil {
			return
		}
		_, _ = io.Copy(c, c)
		_ = c.Close()
	}()
	l, err := newLink(echo.Addr().String())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- l.relayUntilEnd(ctx) }()

	c, err := net.Dial("tcp", l.listener.Addr().String())
	require.NoError(t, err)
	sent := bytes.Repeat([]byte("weir"), 64<<10)
	released := make(chan struct{})
	stalled, release := context.WithCancel(t.Context())
	go func() { defer close(released); l.stallFor(stalled, time.Hour) }()
	for held := false; !held; { // until the gate is shut
		select {
		case <-l.openGate():
		default:
			held = true
		}
	}
	go func() { _, _ = c.Write(sent) }()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorContains(t, err, "timeout")
	release()
	<-released
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	back := make([]byte, len(sent))
	_, err = io.ReadFull(c, back)
	require.NoError(t, err)
	require.Equal(t, sent, back)
	require.NoError(t, c.Close())
	<-served
	cancel()
	require.NoError(t, <-ran)
	require.NoError(t, echo.Close())
}

func TestProcessTellsWhatWasAskedForFromWhatWasNot(t *testing.T) {
	ended := make(chan error, 1)
	p := &process{
		name: "sh", command: "/bin/sh", logPath: filepath.Join(t.TempDir(), "log"),
		exited: func(_ *process, err error) { ended <- err },
	}
	p.args = []string{"-c", "echo one; exec sleep 600"}
	require.NoError(t, p.startChild(""))
	require.True(t, p.killChild())
	require.False(t, p.killChild(), "it is dead")
	require.Empty(t, ended, "nobody is told of what was asked for")

	p.args = []string{"-c", "echo last words; exit 3"}
	require.NoError(t, p.startChild(""))
	require.ErrorContains(t, <-ended, "exit status 3")
	require.Contains(t, p.lastWords(), "last words")

	p.args = []string{"-c", `test "$WEIR_CHAOS_KILL_AFTER" = ack:2 && kill -9 $$`}
	require.NoError(t, p.startChild("ack:2"))
	require.True(t, killedItself(<-ended))
	require.Equal(t, "ack:2", p.armedStage())

	p.args = []string{"-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done"}
	require.NoError(t, p.startChild(""))
	require.Eventually(t, func() bool { return bytes.Contains([]byte(p.lastWords()), []byte("ready")) }, time.Minute, 5*time.Millisecond)
	require.NoError(t, p.stopChild(t.Context(), time.Minute))
	require.NoError(t, p.stopChild(t.Context(), time.Second), "it has ended")
}

func TestReportSaysWhatWentWrong(t *testing.T) {
	r := &Report{Kills: map[string]int{"broker": 2, "trainer after ack": 1}, Audit: &audit.Report{}, Steps: 9}
	var out bytes.Buffer
	r.Print(&out)
	require.NoError(t, r.Err())
	require.Contains(t, out.String(), "kills         broker=2 trainer_after_ack=1\n")
	require.Contains(t, out.String(), "\nchaos: kills=3 lost=0 twice=0 stale_over_bound=0 prompts_skipped=0 steps_missing=0 contradicted=0 hostile_trained=0 tools_twice=0 trouble=0 steps=9 effective=n/a\n")

	r.Audit.Lost, r.HostileTrained, r.Trouble = audit.List{Count: 1, First: []string{"g-0, sequence 4"}}, []string{"junk"}, []string{"broker ended by itself"}
	out.Reset()
	r.Print(&out)
	require.ErrorContains(t, r.Err(), "lost=1")
	require.ErrorContains(t, r.Err(), "1 strangers' messages were trained on")
	require.ErrorContains(t, r.Err(), "1 times trouble")
	for _, text := range []string{"LOST          g-0, sequence 4\n", "TROUBLE       broker ended by itself\n", "kills=3 lost=1 "} {
		require.Contains(t, out.String(), text)
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	_, err := Run(t.Context(), Config{Mode: "odd", Engine: "steam"})
	require.EqualError(t, err, "mode: unknown \"odd\" (valid: processes, embedded)\nengine: unknown \"steam\" (valid: native, torch, vllm, sglang)\nminutes: 0: must be positive\nevery: 0s: must be positive")
}

func TestWorkersAreToldByTheirCommandLines(t *testing.T) {
	for want, arguments := range map[string][]string{
		kindRank: {"/usr/bin/python3", "-u", "-c", "import json", "weir: trainer, rank 1 of 2"}, kindSampler: {"python3", "-u", "-c", "x", "weir: sampler"},
		kindServer: {"/bin/weir", StandIn, "vllm", "/dir"}, "": {"/bin/weir", "trainer", "--config", "x"},
	} {
		require.Equal(t, want, kindOf(arguments))
	}
	require.Empty(t, kindOf(nil), "a process that has ended")
	c := Config{Mode: ModeProcesses, Engine: EngineTorch, Kills: []string{"trainer/rank", "inference/sampler", "inference/server"}}
	require.ErrorContains(t, c.Validate(), `"inference/server": no role is named so; there are broker, trainer, inference, producer-1, producer-2, trainer/rank, inference/sampler`)
	c.Mode, c.Kills = ModeEmbedded, []string{"up/rank", "up/sampler"}
	require.NotContains(t, c.Validate().Error(), "kill")
}
