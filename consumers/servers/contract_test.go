package servers_test

import (
	"testing"

	"github.com/weir-rl/weir/consumers"
	"github.com/weir-rl/weir/consumers/samplertest"
	"github.com/weir-rl/weir/internal/fakeserver"
	"github.com/weir-rl/weir/internal/fakeserver/fakemodel"
)

// A Pool of either kind of server, in the wire formats of each release that differs, keeps every Sampler's contract.
func TestEveryWireFormatKeepsTheContract(t *testing.T) {
	t.Parallel()
	one := func(change func(*fakeserver.Options)) []fakeserver.Options {
		o := good()
		change(&o)
		return []fakeserver.Options{o}
	}
	of := func(release fakeserver.Release, change func(*fakeserver.Options)) []fakeserver.Options {
		return one(func(o *fakeserver.Options) {
			o.Release = release
			if change != nil {
				change(o)
			}
		})
	}
	for name, f := range map[string]struct {
		kind    fakeserver.Kind
		swap    consumers.SwapMode
		options []fakeserver.Options
	}{
		"vllm 0.27.0, recompute":               {fakeserver.VLLM, consumers.SwapRecompute, of(fakeserver.VLLM27, nil)},
		"vllm 0.27.0, keep":                    {fakeserver.VLLM, consumers.SwapKeep, of(fakeserver.VLLM27, nil)},
		"vllm 0.27.0, without the token route": {fakeserver.VLLM, consumers.SwapKeep, of(fakeserver.VLLM27, func(o *fakeserver.Options) { o.NoTokenRoute = true })},
		"vllm 0.27.0, not streamed":            {fakeserver.VLLM, consumers.SwapKeep, of(fakeserver.VLLM27, func(o *fakeserver.Options) { o.Whole = true })},
		"vllm 0.27.0, three servers":           {fakeserver.VLLM, consumers.SwapRecompute, []fakeserver.Options{good(), good(), good()}},
		"vllm 0.27.0, keys":                    {fakeserver.VLLM, consumers.SwapKeep, of(fakeserver.VLLM27, func(o *fakeserver.Options) { o.APIKey = "k" })},
		"vllm 0.30.0, no scale-out":            {fakeserver.VLLM, consumers.SwapKeep, of(fakeserver.VLLM30, func(o *fakeserver.Options) { o.NoTokenRoute = true })},
		"vllm 0.32.0, recompute":               {fakeserver.VLLM, consumers.SwapRecompute, of(fakeserver.VLLM32, nil)},
		"vllm 0.32.0, without spans":           {fakeserver.VLLM, consumers.SwapKeep, of(fakeserver.VLLM32, func(o *fakeserver.Options) { o.NoSpans = true })},
		"vllm 0.33.0, keep":                    {fakeserver.VLLM, consumers.SwapKeep, of(fakeserver.VLLM33, nil)},
		"vllm 0.33.0, drain":                   {fakeserver.VLLM, consumers.SwapDrain, of(fakeserver.VLLM33, nil)},
		"sglang, older paths":                  {fakeserver.SGLang, consumers.SwapKeep, of(fakeserver.SGLang10, func(o *fakeserver.Options) { o.OldPaths = true })},
		"sglang 0.5.10, keep":                  {fakeserver.SGLang, consumers.SwapKeep, of(fakeserver.SGLang10, nil)},
		"sglang 0.5.17, keep":                  {fakeserver.SGLang, consumers.SwapKeep, of(fakeserver.SGLang17, nil)},
		"sglang 0.5.18, recompute":             {fakeserver.SGLang, consumers.SwapRecompute, of(fakeserver.SGLang18, nil)},
		"sglang 0.5.18, keep":                  {fakeserver.SGLang, consumers.SwapKeep, of(fakeserver.SGLang18, nil)},
		"sglang 0.5.18, no label":              {fakeserver.SGLang, consumers.SwapKeep, of(fakeserver.SGLang18, func(o *fakeserver.Options) { o.NoLabel = true })},
		"sglang 0.5.18, not streamed":          {fakeserver.SGLang, consumers.SwapKeep, of(fakeserver.SGLang18, func(o *fakeserver.Options) { o.Whole = true })},
		"sglang 0.5.18, three servers, keys":   {fakeserver.SGLang, consumers.SwapRecompute, keyed(good(), good(), good())},
		"sglang 0.5.19, recompute":             {fakeserver.SGLang, consumers.SwapRecompute, of(fakeserver.SGLang19, nil)},
		"sglang 0.5.23, keep":                  {fakeserver.SGLang, consumers.SwapKeep, of(fakeserver.SGLang23, nil)},
		"sglang 0.5.23, incremental":           {fakeserver.SGLang, consumers.SwapKeep, of(fakeserver.SGLang23, func(o *fakeserver.Options) { o.Incremental = true })},
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
