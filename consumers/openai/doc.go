// Package openai serves the policy over HTTP as the OpenAI API does. [API] is the handler over any [Generator]:
//
//	api := openai.New(cfg, generator, tokenizer, nil, log).WithChat(template)
//	err := api.Serve(ctx, 5*time.Second, func(address string) { fmt.Println("serving on", address) })
//
// A request goes through these steps: its body is read and its settings are checked (request.go); its messages or its text become
// token ids (tools.go, completions.go); a generate call runs for each answer (choices.go, generate.go); an answer ends at its stops
// (stop.go); the sampled tokens are written as a whole body or as server-sent events (chat.go, completions.go). The parts that this server
// and the gateway of producers have in common are in internal/openai.
package openai
