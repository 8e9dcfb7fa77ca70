package assembly

import (
	"context"
	"os"
	"path/filepath"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// Visit opens a run to look at it: at the named broker, else at the broker that its folder on this machine names. The streams of an
// embedded broker that has ended are read where they lie, and up is false. Call leave at the end.
func (k *Connector) Visit(ctx context.Context, role streams.Role) (run *streams.Run, up bool, leave func(), err error) {
	own := k.restingBroker(ctx) // a large store takes a while to open
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if own != nil {
		role = streams.RoleAdmin
	} else if url := NotedBroker(k.cfg.Folder()); url != "" && k.cfg.Broker.URL == "" {
		k.cfg.Broker.URL = url
	}
	stop := func() {
		if own != nil {
			own.Shutdown()
		}
	}
	conn, err := k.connectBroker(ctx, own, role)
	if err != nil {
		stop()
		return nil, false, nil, err
	}
	leave = func() { conn.Close(); stop() }
	run, err = conn.Attach(ctx, k.cfg.Run.Name)
	if err != nil {
		err = ExplainAbsent(ctx, conn, k.URL(), err)
		leave()
		return nil, false, nil, err
	}
	return run, own == nil, leave, nil
}

// restingBroker serves the streams of the run's embedded broker to this process alone, nil if it has none here or
// some process holds them.
func (k *Connector) restingBroker(ctx context.Context) *broker.Broker {
	if k.cfg.Broker.URL != "" || k.cfg.Broker.Cluster.Name != "" {
		return nil
	}
	if _, err := os.Stat(k.cfg.Broker.StoreDir); err != nil {
		return nil
	}
	if shared, _ := filepath.Glob(filepath.Join(k.cfg.Broker.StoreDir, "jetstream", "*", "_js_")); len(shared) > 0 {
		return nil // a broker of a cluster: alone it does not know the streams of the others
	}
	own, err := broker.Start(ctx, broker.Config{
		StoreDir: k.cfg.Broker.StoreDir, SyncAlways: true, MaxPayload: k.cfg.Broker.MaxPayload,
		MaxBufferedBytes: k.cfg.Broker.MaxBufferedBytes,
	}, nil)
	if err != nil {
		k.log.Debug("the streams are not at rest", "err", err)
		return nil
	}
	return own
}
