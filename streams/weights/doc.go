// Package weights publishes the weights of policy versions and reads them, as shards that are named by their hashes and a manifest that
// names the shards.
//
//	publisher, err := weights.NewPublisher(run, weights.DefaultConfig()) // run is a *streams.Run
//	published, err := publisher.PublishFrom(ctx, manifest, weights.FileSource(paths))
//
//	loader, err := weights.NewLoader(run, weights.DefaultConfig())
//	err = run.FollowWeights(ctx, func(m *schemas.Manifest) error {
//		shards, err := loader.Load(ctx, m)
//		...
//	})
//
// A publisher plans a version, stores its shards, and announces the manifest. Shards lie in the run's object store, or in a folder that
// all machines share; versions between two whole versions may be deltas.
package weights
