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
	later := func(change func(*fakeserver.Options)) []fakeserver.Options {
		return one(func(o *fakeserver.Options) {
			o.Release = fakeserver.Later
			change(o)
		})
	}
	for name, f := range map[string]struct {
		kind    fakeserver.Kind
		swap    consumers.SwapMode
		options []fakeserver.Options
	}{
		// The releases that were read, vLLM of 2026-08-17 and SGLang of 2026-08-18.
		"vllm, recompute":                {fakeserver.VLLM, consumers.SwapRecompute, one(func(*fakeserver.Options) {})},
		"vllm, keep":                     {fakeserver.VLLM, consumers.SwapKeep, one(func(*fakeserver.Options) {})},
		"vllm, older log-probabilities":  {fakeserver.VLLM, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.OldLogprobs = true })},
		"vllm, without the token route":  {fakeserver.VLLM, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.NoTokenRoute = true })},
		"vllm, not streamed":             {fakeserver.VLLM, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.Whole = true })},
		"vllm, three servers":            {fakeserver.VLLM, consumers.SwapRecompute, []fakeserver.Options{good(), good(), good()}},
		"vllm, keys":                     {fakeserver.VLLM, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.APIKey = "k" })},
		"sglang, recompute":              {fakeserver.SGLang, consumers.SwapRecompute, one(func(*fakeserver.Options) {})},
		"sglang, keep":                   {fakeserver.SGLang, consumers.SwapKeep, one(func(*fakeserver.Options) {})},
		"sglang, no label":               {fakeserver.SGLang, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.NoLabel = true })},
		"sglang, not streamed":           {fakeserver.SGLang, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.Whole = true })},
		"sglang, three servers and keys": {fakeserver.SGLang, consumers.SwapRecompute, keyed(good(), good(), good())},
		// An SGLang of July 2026.
		"sglang, earlier":              {fakeserver.SGLang, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.Release = fakeserver.Earlier })},
		"sglang, earlier, older paths": {fakeserver.SGLang, consumers.SwapKeep, one(func(o *fakeserver.Options) { o.Release, o.OldPaths = fakeserver.Earlier, true })},
		// A vLLM of September 2026, an SGLang after 2026-08-24.
		"vllm, later, recompute":     {fakeserver.VLLM, consumers.SwapRecompute, later(func(*fakeserver.Options) {})},
		"vllm, later, keep":          {fakeserver.VLLM, consumers.SwapKeep, later(func(*fakeserver.Options) {})},
		"vllm, later, drain":         {fakeserver.VLLM, consumers.SwapDrain, later(func(*fakeserver.Options) {})},
		"vllm, later, no scale-out":  {fakeserver.VLLM, consumers.SwapKeep, later(func(o *fakeserver.Options) { o.NoTokenRoute = true })},
		"vllm, later, without spans": {fakeserver.VLLM, consumers.SwapKeep, later(func(o *fakeserver.Options) { o.NoSpans = true })},
		"sglang, later, recompute":   {fakeserver.SGLang, consumers.SwapRecompute, later(func(*fakeserver.Options) {})},
		"sglang, later, keep":        {fakeserver.SGLang, consumers.SwapKeep, later(func(*fakeserver.Options) {})},
		"sglang, later, incremental": {fakeserver.SGLang, consumers.SwapKeep, later(func(o *fakeserver.Options) { o.Incremental = true })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			samplertest.Run(t, func(t *testing.T) *samplertest.Rig {
				w := newWorld(t, f.kind, func(c *consumers.Config) {
					c.Swap = f.swap
					c.Server.APIKey, c.Server.AdminAPIKey = f.options[0].APIKey, f.options[0].AdminAPIKey
				}, f.options...)
				return &samplertest.Rig{Sampler: w.Pool, Config: fakemodel.Config(), Snapshot: w.snapshot, Logprobs: w.oracle.Logprobs, Reserved: reserved[f.kind]}
			})
		})
	}
}

// reserved is how many positions at a context's end a kind has no use for.
var reserved = map[fakeserver.Kind]int{fakeserver.SGLang: 6}

func keyed(options ...fakeserver.Options) []fakeserver.Options {
	for i := range options {
		options[i].APIKey, options[i].AdminAPIKey = "caller", "admin"
	}
	return options
}
