// Package generate is the generate call of a run: producers ask, inference engines answer with sampled tokens. It goes over core
// NATS; no stream stores it.
//
// A request goes to the subject that all engines share in a queue group, or to the subject of a single engine; the chunks of its answer
// come to the caller's inbox, counted from 0. While a call waits or is slow the engine sends empty chunks, so that silence means
// a dead engine. A caller's request to every engine, to cancel a call or to forget an episode, goes to the control subject.
//
// An engine serves with [Serve] until its context ends; a producer calls with a [Client]:
//
//	client := generate.NewClient(run, generate.ClientOptions{})
//	defer client.Close()
//	sampled, err := client.Generate(ctx, &schemas.GenerateRequest{
//		Episode: "g1-0-0", Tokens: context, MaxTokens: 64, Temperature: 1, Seed: 7, StopTokens: schemas.Int32s{end},
//	})
package generate
