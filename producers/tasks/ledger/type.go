package ledger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/agents/notebook"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// Name is the type's in a configuration.
const Name = "ledger"

// Config says which ledgers there are.
type Config struct {
	// Pages are the numbers of pages, each 1 to 20; a ledger of each is as frequent. Defaults to 2, 4 and 6.
	Pages []int `koanf:"pages"`
	// Ledgers are drawn for each number of pages in training, 1 to 1048576. Defaults to 3000.
	Ledgers int `koanf:"ledgers"`
	// HeldOut are drawn for each number of pages in validation and as many in the test, 1 to 10000. Defaults to 100.
	HeldOut int `koanf:"held_out"`
	// Seed draws other ledgers, and divides the colours of rules otherwise. Defaults to 1.
	Seed uint64 `koanf:"seed"`
	// Plain is for an agent that calls tools and writes no code (tools.starlark.single_calls): it demonstrates a call in each cell, and
	// gives the function count(colour), which adds a row to a sum and returns the sum, since such cells have no variables. Defaults to
	// false.
	Plain bool `koanf:"plain"`
	// Demo says how the demonstrations of the cold start are made.
	Demo DemoConfig `koanf:"demo"`
}

// DefaultConfig is as the fields say.
func DefaultConfig() Config {
	return Config{Pages: []int{2, 4, 6}, Ledgers: 3000, HeldOut: 100, Seed: 1, Demo: DefaultDemoConfig()}
}

// Validate reports every fault.
func (c Config) Validate() error {
	faults := []error{
		check.That(len(c.Pages) > 0, "pages", "none: give the numbers of pages, such as [2, 4, 6]"),
		check.Between("ledgers", c.Ledgers, 1, 1<<20),
		check.Between("held_out", c.HeldOut, 1, 10_000),
		check.That(!c.Plain || c.Demo.SumUp == 0, "plain", "true: no summary is demonstrated in single calls: leave demo.sum_up 0"),
		check.Section("demo", c.Demo.Validate()),
	}
	for _, n := range c.Pages {
		faults = append(faults, check.Between("pages", n, 1, 20))
	}
	return check.All(faults...)
}

// Type is the task's [tasks.Task].
func Type() tasks.Presetter {
	return tasks.WithPreset(tasks.New(Name, DefaultConfig, openTask), preset)
}

// preset is a run that learns the task. The context holds a single page, and an episode of six pages has a cell to spare.
func preset() tasks.Preset {
	return tasks.Preset{
		Agent: "notebook", Tools: []string{"starlark"}, Reward: "weighted",
		Settings: map[string]any{
			"model.max_positions": 64, "model.heads": 4, "model.kv_heads": 4, "trainer.limits.max_turns": 10, "trainer.limits.max_tokens": 64,
			"agents.notebook.trim": "hard", "agents.notebook.keep": 0, "agents.notebook.turn_tokens": 26,
			"trainer.steps": 60, "trainer.batch_groups": 32, "trainer.minibatches": 2, "trainer.cold_start.steps": 1500,
		},
	}
}

// The numbers of entries. The greatest of them are in the test and in demonstrations alone.
const (
	highest  = 98
	ordinary = 49
)

// How many colours there are, and how many of them are rules in validation and in the test alone.
const (
	colourCount  = 96
	heldOutRules = 16
)

// shuffledColours returns 96 words in an order of the seed's.
func shuffledColours(seed uint64) []string {
	all := strings.Fields(`red blue green pink gold grey black white brown amber azure beige coral cream cyan ebony fawn hazel ivory jade khaki lemon lilac
		lime mauve mint navy ochre olive onyx opal peach pearl plum rose ruby rust sage sand scarlet sepia silver slate tan taupe teal topaz umber violet
		wine ash bronze buff carmine cerise cherry claret cobalt copper crimson denim ecru emerald flax garnet ginger grape henna indigo iris jasmine
		lavender linen magenta maroon melon moss mustard orange orchid pewter pine poppy puce purple quartz raven russet saffron salmon sapphire sienna
		smoke straw tawny tomato turquoise`)
	all = all[:colourCount]
	rand.New(rand.NewPCG(seed, 11)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// wording are the words of the language that cells and their outputs are written in.
const wording = "( ) , . ; : = + * - [ ] s 0 sum the rule over pages page at count no more was said turn row submit notepad add_facts facts error takes arguments undefined no such colour page is open"

// newTokenizer has each colour and each number to 99 as a word. No product or sum is a word.
func newTokenizer(colours, further []string) (*tokenizer.Tokenizer, error) {
	words := strings.Fields(wording)
	for i := range 100 {
		words = append(words, fmt.Sprint(i))
	}
	words = append(words, colours...)
	for _, text := range further {
		words = append(words, tokenizer.LowerWords(text)...)
	}
	slices.Sort(words)
	return tokenizer.New(tokenizer.Config{
		Special: append([]string{tasks.TokenPad, tasks.TokenUnknown, tasks.TokenBegin}, notebook.Tags()...),
		Words:   slices.Compact(words), Unknown: tasks.TokenUnknown, Lowercase: true,
	})
}

// openTask makes the task. The colours of rules are divided by split; all of them are on pages, and in the demonstrations.
func openTask(_ context.Context, cfg Config, o tasks.Opening) (*tasks.Setup, error) {
	all := shuffledColours(cfg.Seed)
	values := map[string]any{}
	for _, colour := range all {
		values[colour] = colour
	}
	data := &tasks.Dataset{Name: o.Name, Questions: map[tasks.Split][]schemas.Prompt{
		tasks.Validation: cfg.drawQuestions(tasks.Validation, all[:heldOutRules], all, ordinary, cfg.HeldOut),
		tasks.Test:       cfg.drawQuestions(tasks.Test, all[heldOutRules:2*heldOutRules], all, highest, cfg.HeldOut),
		tasks.Train:      cfg.drawQuestions(tasks.Train, all[2*heldOutRules:], all, ordinary, cfg.Ledgers),
	}}
	if err := data.Validate(); err != nil {
		return nil, err
	}
	s := &tasks.Setup{
		Data: data, Tokenizer: o.Tokenizer, Worlds: []tasks.World{functions{values, cfg.Plain}}, Phrase: tasks.AsQuestion,
		Demonstrations: tasks.NewScripted(script{cfg.Demo, all, cfg.Pages, cfg.Plain}.demonstrationAt),
		About:          func(source string) string { return "a ledger of " + source },
		HeldOut:        " about colours\nthat no training question counts",
	}
	if s.Tokenizer == nil {
		tok, err := newTokenizer(all, o.Texts)
		if err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
		s.Tokenizer = tok
	}
	return s, nil
}
