package assembly

import (
	"context"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// Visit opens a run to look at it: at the named broker, else at the one that its folder on this machine names. The
// streams of an embedded broker that has ended are read where they lie, and up is false. Call leave at the end.
func (s *Run) Visit(ctx context.Context, role streams.Role) (run *streams.Run, up bool, leave func(), err error) {
	own := s.restingBroker(ctx) // a large store takes a while to open
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if own != nil {
		role = streams.RoleAdmin
	} else if url := NotedBroker(s.Config.Folder()); url != "" && s.Config.Broker.URL == "" {
		s.Config.Broker.URL = url
	}
	stop := func() {
		if own != nil {
			own.Shutdown()
		}
	}
	conn, err := s.connectBroker(ctx, own, role)
	if err != nil {
		stop()
		return nil, false, nil, err
	}
	leave = func() { conn.Close(); stop() }
	run, err = conn.Attach(ctx, s.Config.Run.Name)
	if err != nil {
		err = ExplainAbsent(ctx, conn, s.BrokerURL(), err)
		leave()
		return nil, false, nil, err
	}
	return run, own == nil, leave, nil
}

// restingBroker serves the streams of the run's embedded broker to this process alone, nil if it has none here or
// some process holds them.
func (s *Run) restingBroker(ctx context.Context) *broker.Broker {
	if s.Config.Broker.URL != "" || s.Config.Broker.Cluster.Name != "" {
		return nil
	}
	if _, err := os.Stat(s.Config.Broker.StoreDir); err != nil {
		return nil
	}
	if shared, _ := filepath.Glob(filepath.Join(s.Config.Broker.StoreDir, "jetstream", "*", "_js_")); len(shared) > 0 {
		return nil // one of a cluster's: alone it does not know what the others agreed on
	}
	own, err := broker.Start(ctx, broker.Config{
		StoreDir: s.Config.Broker.StoreDir, SyncAlways: true, MaxPayload: s.Config.Broker.MaxPayload,
		MaxBufferedBytes: s.Config.Broker.MaxBufferedBytes,
	}, nil)
	if err != nil {
		s.Log.Debug("the streams are not at rest", "err", err)
		return nil
	}
	return own
}
