package weightsbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/internal/lab/harness"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/streams/weights"
)

// runName is the same on every lane's broker.
const runName = "bench"

// lane is a broker with a publisher, the consumers and a caller.
type lane struct {
	cfg       SwapConfig
	model     []byte // its configuration
	broker    *broker.Broker
	conns     []*streams.Conn
	run       *streams.Run
	weights   *weights.Publisher
	manifests jetstream.KeyValue
	caller    *generate.Client
	taps      []*tap

	// consuming ends with stop.
	consuming *errgroup.Group
	stop      context.CancelFunc

	version int64 // the next
}

func openLane(ctx context.Context, cfg SwapConfig) (_ *lane, err error) {
	l := &lane{cfg: cfg, stop: func() {}, consuming: &errgroup.Group{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.closeLane())
		}
	}()
	if l.model, err = json.Marshal(cfg.Model); err != nil {
		return nil, fmt.Errorf("encode model configuration: %w", err)
	}
	if l.broker, err = broker.Start(ctx, harness.BrokerConfig(cfg.Dir), cfg.Log); err != nil {
		return nil, err
	}
	conn, err := l.connectClient(ctx)
	if err != nil {
		return nil, err
	}
	if l.run, err = conn.Open(ctx, runName, streams.DefaultTopology()); err != nil {
		return nil, err
	}
	config := weights.Config{BaseEvery: cfg.BaseEvery}
	if l.weights, err = weights.NewPublisher(l.run, config); err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn.NATS())
	if err != nil {
		return nil, err
	}
	if l.manifests, err = js.KeyValue(ctx, "WEIR_"+runName+"_WEIGHTS"); err != nil {
		return nil, err
	}
	l.caller = generate.NewClient(l.run, generate.ClientOptions{})
	running, stop := context.WithCancel(ctx)
	l.consuming, running = errgroup.WithContext(running)
	l.stop = stop
	for i := range cfg.Consumers {
		conn, err := l.connectClient(ctx)
		if err != nil {
			return nil, err
		}
		t := &tap{name: fmt.Sprintf("engine-%d", i), applied: make(chan parts, 1)}
		if t.Run, err = conn.Attach(ctx, runName); err != nil {
			return nil, err
		}
		if t.weights, err = weights.NewLoader(t.Run, config); err != nil {
			return nil, err
		}
		l.taps = append(l.taps, t)
		l.consuming.Go(func() error { return l.runConsumer(running, t) })
	}
	return l, nil
}

func (l *lane) connectClient(ctx context.Context) (*streams.Conn, error) {
	conn, err := harness.Connect(ctx, l.broker.URL(), l.cfg.Log)
	if err == nil {
		l.conns = append(l.conns, conn)
	}
	return conn, err
}

// closeLane returns the error of a consumer.
func (l *lane) closeLane() error {
	l.stop()
	err := l.consuming.Wait()
	for _, c := range l.conns {
		c.Close()
	}
	if l.broker != nil {
		l.broker.Shutdown()
	}
	return err
}

func (l *lane) runConsumer(ctx context.Context, t *tap) error {
	c := consumers.DefaultConfig()
	c.Name, c.Slots, c.DrainTimeout = t.name, l.cfg.Callers+4, 0
	return unlessEnded(ctx, consumers.Run(ctx, c, consumers.Deps{
		Run: runName, Stream: t, Weights: t, Sampler: consumers.NewBatcher(c, l.cfg.NewDecoder, nil), Log: l.cfg.Log,
	}))
}

// unlessEnded forgets the error of work whose context has ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// measureRound publishes until n versions have been measured, each when the version before is in use everywhere.
func (l *lane) measureRound(ctx context.Context, n int, m *samples) error {
	group, ctx := errgroup.WithContext(ctx)
	calling, stop := context.WithCancel(ctx)
	defer stop()
	began, sampled := time.Now(), l.sampledTokens()
	for i := range l.cfg.Callers {
		group.Go(func() error { return unlessEnded(calling, l.callUntilEnd(calling, i)) })
	}
	group.Go(func() error {
		defer stop()
		for n > 0 {
			counts, err := l.measureVersion(ctx, m)
			if err != nil {
				return fmt.Errorf("version %d: %w", l.version, err)
			}
			if counts {
				n--
			}
			l.version++
		}
		return nil
	})
	err := group.Wait()
	m.tokens, m.calling = m.tokens+l.sampledTokens()-sampled, m.calling+time.Since(began)
	return err
}

// sampledTokens are the tokens sampled so far.
func (l *lane) sampledTokens() (n int64) {
	for _, t := range l.taps {
		n += t.tokens.Load()
	}
	return n
}

// measureVersion publishes a version and waits until it is in use. It does not count where deltas are measured and this
// was a whole version.
func (l *lane) measureVersion(ctx context.Context, m *samples) (counts bool, err error) {
	group, ctx := errgroup.WithContext(ctx)
	var answered, taken time.Time
	var published time.Duration
	if l.cfg.Callers > 0 {
		group.Go(func() (err error) {
			answered, err = l.askForVersion(ctx)
			return err
		})
	}
	var stored *schemas.Manifest
	group.Go(func() (err error) {
		published, taken, stored, err = l.publishVersion(ctx)
		return err
	})
	ended, got := make([]time.Time, len(l.taps)), make([]parts, len(l.taps))
	for i, t := range l.taps {
		group.Go(func() error {
			select {
			case got[i] = <-t.applied:
				ended[i] = time.Now()
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}
	if err := group.Wait(); err != nil {
		return false, err
	}
	if l.cfg.BaseEvery > 1 && stored.Base == schemas.NoBase && l.version > 0 {
		return false, nil
	}
	for i, p := range got {
		p.notice = l.taps[i].noticedAt().Sub(taken)
		if l.cfg.Callers > 0 {
			ended[i] = answered
		}
		p.total = ended[i].Sub(taken)
		p.first = p.total - p.notice - p.load - p.decode - p.prepare - p.wait - p.pause
		m.parts = append(m.parts, p)
	}
	m.publish = append(m.publish, published)
	for _, s := range stored.Shards {
		m.stored += s.Size
	}
	return true, nil
}

// publishVersion returns how long it took, when the broker took the manifest, and the manifest as it was stored.
func (l *lane) publishVersion(ctx context.Context) (took time.Duration, taken time.Time, stored *schemas.Manifest, err error) {
	// Forth and back: 0 1 2 1 0 1 2 ...
	last := int64(len(l.cfg.Versions) - 1)
	at := l.version % (2 * last)
	version := l.cfg.Versions[min(at, 2*last-at)]
	m := &schemas.Manifest{
		Run: runName, Version: l.version, Base: schemas.NoBase, DType: "bfloat16", PublishedAt: time.Now(),
		Config: l.model, ConfigHash: schemas.ContentHash(l.model), TokenizerHash: schemas.ContentHash(nil),
	}
	shards := map[string][]byte{}
	for _, file := range version {
		file = markVersion(file, l.version)
		name := schemas.ContentHash(file)
		shards[name] = file
		m.Shards = append(m.Shards, schemas.Shard{
			Hash: name, Size: int64(len(file)), Encoding: schemas.EncodingSafetensors, FullHash: name,
		})
	}
	began := time.Now()
	if err := l.weights.Publish(ctx, m, shards); err != nil {
		return 0, time.Time{}, nil, err
	}
	took = time.Since(began)
	entry, err := l.manifests.Get(ctx, "manifest")
	if err != nil {
		return 0, time.Time{}, nil, fmt.Errorf("ask when the manifest was stored: %w", err)
	}
	stored, err = l.run.LatestManifest(ctx)
	return took, entry.Created(), stored, err
}

// askForVersion waits for a token of the version that is about to be published.
func (l *lane) askForVersion(ctx context.Context) (time.Time, error) {
	got, err := l.caller.Generate(ctx, &schemas.GenerateRequest{
		Episode: fmt.Sprintf("wants-%d", l.version), Tokens: l.makePrompt(int(l.version)), MaxTokens: 1, Temperature: 1,
		Last: true, MinVersion: l.version,
	})
	if err != nil {
		return time.Time{}, err
	}
	answered := time.Now()
	if got.Versions[0] != int32(l.version) {
		return answered, fmt.Errorf("who waited for version %d got a token of version %d", l.version, got.Versions[0])
	}
	return answered, nil
}

// callUntilEnd generates until ctx ends.
func (l *lane) callUntilEnd(ctx context.Context, i int) error {
	for n := 0; ctx.Err() == nil; n++ {
		_, err := l.caller.Generate(ctx, &schemas.GenerateRequest{
			Episode: fmt.Sprintf("call-%d", i), Tokens: l.makePrompt(i + n), MaxTokens: callTokens, Temperature: 1,
			Seed: uint64(n), Last: true,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// The callers' prompts and answers, in tokens.
const (
	promptTokens = 16
	callTokens   = 48
)

func (l *lane) makePrompt(seed int) []int32 {
	out := make([]int32, promptTokens)
	for i := range out {
		out[i] = int32((seed*31 + i*17) % l.cfg.Model.VocabSize)
	}
	return out
}

// markVersion is a file whose last numbers tell the version in their lowest bits: a file that was published before is not
// the same again, and so is stored.
func markVersion(file []byte, version int64) []byte {
	out := slices.Clone(file)
	for bit := range min(16, len(out)/2) {
		low := &out[len(out)-2*(bit+1)]
		*low = *low&^1 | byte(version>>bit)&1
	}
	return out
}
