// Package broker is a NATS server in this process: its store, its keys, its health and its metrics. It is the only package that
// links the server; the roles link the client alone, and reach a broker of this process through [streams.Embedded].
//
//	b, err := broker.Start(ctx, broker.DefaultConfig(), log)
//	if err != nil {
//		return err
//	}
//	defer b.Shutdown()
//	conn, err := streams.Connect(ctx, streams.ConnectConfig{Broker: b}, log)
package broker
