package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/fault"
)

func newModelCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "model folder", Short: "Say what a model folder is, and what it needs of memory", Args: cobra.ExactArgs(1),
		Long: `Model opens a folder in Hugging Face's layout as a run would, and says what is in it: the family, the shapes, how the
weights are stored, the tokenizer, the chat template, the tokens that end an answer, and the memory that training and
decoding take with the engine that model.engine names. What weir does not read is named, and the exit status is 1.
A folder that is called export needs a path: ./export.`,
		Example: "  weir model Qwen2.5-0.5B-Instruct\n  weir model Qwen3-0.6B --tokens 4096 -o json\n  weir model export mine my-model",
	}
	format := outputFlag(cmd)
	tokens := cmd.Flags().Int("tokens", 2048, "the tokens of a pass in training, and of all sequences in decoding")
	verify := cmd.Flags().Bool("verify", false, "read every number too, and refuse one that is not finite")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *tokens < 1 {
			return fault.Usagef("--tokens %d: must be positive", *tokens)
		}
		cfg, _, err := a.loadConfig(cmd)
		if err != nil {
			return err
		}
		backend, err := cfg.Backend()
		if err != nil {
			return err
		}
		folder, err := hf.Open(args[0])
		if err != nil {
			return err
		}
		defer func() { _ = folder.Close() }() // read only
		if *verify {
			if err := folder.Check(cmd.Context(), folder.Config.Layout()); err != nil {
				return err
			}
		}
		about, faults := describeModel(args[0], folder)
		about.Machine = a.memory.Bytes
		if cfg.Model.Engine != config.EngineNative || folder.Config.Transformers == nil {
			about.addMemory(backend, *tokens)
		}
		if format.isJSON() {
			if err := a.printJSON(about); err != nil {
				return err
			}
			return faults
		}
		return errors.Join(about.printModel(a), faults)
	}
	cmd.AddCommand(newModelExportCommand(a))
	return cmd
}

// modelAbout is the answer of weir model.
type modelAbout struct {
	Folder       string           `json:"folder"`
	Family       string           `json:"family"`
	Parameters   int64            `json:"parameters"`
	Vocabulary   int              `json:"vocabulary"`
	Hidden       int              `json:"hidden"`
	Intermediate int              `json:"intermediate"`
	Layers       int              `json:"layers"`
	Heads        int              `json:"heads"`
	KVHeads      int              `json:"kv_heads"`
	HeadDim      int              `json:"head_dim"`
	Tied         bool             `json:"tied_embeddings"`
	MaxPositions int              `json:"max_positions"`
	RopeTheta    float64          `json:"rope_theta"`
	RopeScaling  *gpu.RopeScaling `json:"rope_scaling,omitempty"`
	// Numbers counts the stored numbers by type.
	Numbers    map[string]int64 `json:"numbers"`
	Files      []hf.StoredFile  `json:"files"`
	Beside     []string         `json:"beside_the_weights"`
	Tokenizer  string           `json:"tokenizer,omitempty"`
	Tokens     int              `json:"tokenizer_tokens,omitempty"`
	Template   string           `json:"chat_template,omitempty"`
	StopTokens []stopToken      `json:"stop_tokens"`
	Memory     *modelMemory     `json:"memory,omitempty"`
	Machine    int64            `json:"machine_bytes,omitempty"`
	Faults     []string         `json:"faults,omitempty"`

	config gpu.Config
}

type stopToken struct {
	ID   int32  `json:"id"`
	Text string `json:"text,omitempty"`
}

// modelMemory is the memory that the model takes with so many tokens.
type modelMemory struct {
	Tokens   int        `json:"tokens"`
	Training gpu.Memory `json:"training"`
	Decoding gpu.Memory `json:"decoding"`
}

// describeModel describes a model folder. A file beside the weights that cannot be used is a fault.
func describeModel(dir string, folder *hf.Folder) (*modelAbout, error) {
	c := folder.Config
	m := &modelAbout{
		Folder: dir, Family: hf.FamilyName(c), Vocabulary: c.VocabSize, Hidden: c.HiddenSize, Intermediate: c.IntermediateSize,
		Layers: c.NumLayers, Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.AttentionDim(), Tied: c.TieEmbeddings,
		MaxPositions: c.MaxPositions, config: c, RopeTheta: c.RopeTheta, RopeScaling: c.RopeScaling, Numbers: map[string]int64{}, Files: folder.Stored(),
	}
	for _, t := range c.Layout() {
		if t.Name != gpu.ValueHeadTensor {
			m.Parameters += int64(t.Elements())
		}
	}
	for _, f := range m.Files {
		for dtype, n := range f.Numbers {
			m.Numbers[dtype] += n
		}
	}
	var faults []error
	files, err := hf.OpenFiles(dir)
	if err != nil {
		faults = append(faults, err)
	}
	m.Beside = files.Carried()
	faults = append(faults, m.describeText(dir, folder)...)
	for _, fault := range faults {
		m.Faults = append(m.Faults, fault.Error())
	}
	return m, errors.Join(faults...)
}

// addMemory adds the memory that the model takes, as far as its engine estimates it.
func (m *modelAbout) addMemory(backend gpu.Backend, tokens int) {
	estimator, ok := backend.(gpu.MemoryEstimator)
	if !ok {
		return
	}
	c := m.config
	m.Memory = &modelMemory{
		Tokens: tokens, Training: estimator.TrainingMemory(c, tokens),
		Decoding: estimator.DecodingMemory(c, gpu.DecoderOptions{Slots: 1, MaxTokens: tokens, DType: m.decoderDType()}, int64(tokens), false),
	}
}

// decoderDType is the type in which a decoder keeps the matrices: bfloat16 where that loses nothing.
func (m *modelAbout) decoderDType() gpu.DType {
	if n := m.Numbers["BF16"]; n*100 > m.Parameters*99 {
		return gpu.BFloat16
	}
	return gpu.Float32
}

// builtBy names the library that builds the model where that is not Weir.
func (m *modelAbout) builtBy() string {
	if m.config.Transformers == nil {
		return ""
	}
	return " (built by Transformers, with model.engine torch)"
}

// printModel writes the answer for people.
func (m *modelAbout) printModel(a *app) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("family", "%s%s, %s parameters", m.Family, m.builtBy(), shortCount(m.Parameters))
	row("shape", "%d layers of %d, feed-forward %d, %d heads of %d over %d for keys and values", m.Layers, m.Hidden, m.Intermediate, m.Heads, m.HeadDim, m.KVHeads)
	tied := "a head of its own"
	if m.Tied {
		tied = "the head is the embeddings"
	}
	row("vocabulary", "%d, %s", m.Vocabulary, tied)
	scaled := ""
	if m.RopeScaling != nil {
		scaled = fmt.Sprintf(", slowed %g times beyond %d (llama3)", m.RopeScaling.Factor, m.RopeScaling.OriginalMaxPositions)
	}
	if m.config.Transformers == nil {
		row("positions", "%d, rope_theta %g%s", m.MaxPositions, m.RopeTheta, scaled)
	} else {
		row("positions", "%d", m.MaxPositions)
	}
	var stored []string
	for _, dtype := range sortedKeys(m.Numbers) {
		stored = append(stored, fmt.Sprintf("%s numbers as %s", shortCount(m.Numbers[dtype]), dtype))
	}
	size, tensors := int64(0), 0
	for _, f := range m.Files {
		size, tensors = size+f.Size, tensors+f.Tensors
	}
	row("weights", "%d tensors in %d files, %s bytes: %s", tensors, len(m.Files), shortCount(size), strings.Join(stored, ", "))
	row("beside them", "%s", strings.Join(m.Beside, ", "))
	if m.Tokenizer != "" {
		row("tokenizer", "%s, %d tokens", m.Tokenizer, m.Tokens)
	}
	row("chat template", "%s", orNone(m.Template))
	var stops []string
	for _, s := range m.StopTokens {
		stops = append(stops, strings.TrimSpace(fmt.Sprintf("%d %s", s.ID, s.Text)))
	}
	row("stop tokens", "%s", orNone(strings.Join(stops, ", ")))
	if m.Memory != nil {
		row("to train", "%s (passes of %d tokens)", m.Memory.Training.Text(), m.Memory.Tokens)
		row("to decode", "%s (%d tokens in the cache)", m.Memory.Decoding.Text(), m.Memory.Tokens)
	}
	if m.Machine > 0 {
		row("this machine", "%.1f GB", float64(m.Machine)/1e9)
	}
	return w.Flush()
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

// shortCount is a number as people say it: 494M, 7.6B.
func shortCount(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.2fB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", float64(n)/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.1fk", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for key := range m {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}
