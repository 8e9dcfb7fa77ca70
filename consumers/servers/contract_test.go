package servers_test

import (
	"testing"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/samplertest"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/internal/fakeserver/fakemodel"
)

// A Pool of either kind of server, in each of its wire formats, keeps every Sampler's contract.
func TestEveryWireFormatKeepsTheContract(t *testing.T) {
	t.Parallel()
	one := func(change func(*fakeserver.Options)) []fakeserver.Options {
		o := good()
		change(&o)
		return []fakeserver.Options{o}
	}
	for name, f := range map[string]struct {
		kind    fakeserver.Kind
		swap    consumers.SwapMode
		options []fakeserver.Options
	}{
		"vllm, spans, recompute":         {fakeserver.VLLM, consumers.SwapRecompute, one(func(*fakeserver.Options) {})},
		"vllm, spans, keep":              {fakeserver.VLLM, consumers.SwapKeep, one(func(*fakeserver.Options) {})},
		"vllm, spans, drain":             {fakeserver.VLLM, consumers.SwapDrain, one(func(*fakeserver.Options) {})},
		"vllm, older log-probabilities":  {fakeserver.VLLM, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.OldLogprobs = true })},
		"vllm, without spans":            {fakeserver.VLLM, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.NoSpans = true })},
		"vllm, without the token route":  {fakeserver.VLLM, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.NoTokenRoute = true })},
		"vllm, not streamed":             {fakeserver.VLLM, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.Whole = true })},
		"vllm, three servers":            {fakeserver.VLLM, consumers.SwapRecompute, []fakeserver.Options{good(), good(), good()}},
		"vllm, keys":                     {fakeserver.VLLM, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.APIKey = "k" })},
		"sglang, spans, recompute":       {fakeserver.SGLang, consumers.SwapRecompute, one(func(*fakeserver.Options) {})},
		"sglang, spans, keep":            {fakeserver.SGLang, consumers.SwapKeep, one(func(*fakeserver.Options) {})},
		"sglang, incremental":            {fakeserver.SGLang, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.Incremental = true })},
		"sglang, one label":              {fakeserver.SGLang, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.NoSpans = true })},
		"sglang, no label":               {fakeserver.SGLang, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.NoSpans, o.NoLabel = true, true })},
		"sglang, older paths":            {fakeserver.SGLang, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.OldPaths, o.NoSpans = true, true })},
		"sglang, not streamed":           {fakeserver.SGLang, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.Whole = true })},
		"sglang, three servers and keys": {fakeserver.SGLang, consumers.SwapRecompute, keyed(good(), good(), good())},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			samplertest.Run(t, func(t *testing.T) *samplertest.Rig {
				w := newWorld(t, f.kind, func(c *consumers.Config) {
					c.Swap = f.swap
					c.Server.APIKey, c.Server.AdminAPIKey = f.options[0].APIKey, f.options[0].AdminAPIKey
				}, f.options...)
				return &samplertest.Rig{Sampler: w.Pool, Config: fakemodel.Config(), Snapshot: w.snapshot, Logprobs: w.oracle.Logprobs}
			})
		})
	}
}

func keyed(options ...fakeserver.Options) []fakeserver.Options {
	for i := range options {
		options[i].APIKey, options[i].AdminAPIKey = "caller", "admin"
	}
	return options
}
