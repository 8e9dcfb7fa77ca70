package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type inner struct {
	Eta     int           `koanf:"eta"`
	Seed    uint64        `koanf:"seed"`
	Rate    float64       `koanf:"rate"`
	Timeout time.Duration `koanf:"timeout"`
	On      bool          `koanf:"on"`
	Names   []string      `koanf:"names"`
}

type sample struct {
	Name    string             `koanf:"name"`
	Trainer inner              `koanf:"trainer"`
	Weights map[string]float64 `koanf:"weights"`

	Sources map[string]map[string]float64 `koanf:"sources"`
}

func defaults() *sample {
	return &sample{Name: "d", Trainer: inner{Eta: 1, Rate: 0.5, Timeout: time.Second}}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLaterSourcesWin(t *testing.T) {
	t.Parallel()
	first := writeFile(t, "name: file\ntrainer:\n  eta: 2\n  rate: 0.25\n  timeout: 30s\nweights:\n  em: 1\n")
	second := writeFile(t, "trainer:\n  eta: 3\n")
	cfg := defaults()
	origins, err := Load(cfg, Sources{
		Files:   []string{first, second},
		Environ: []string{"WEIR_TRAINER__RATE=0.125", "WEIR_GOLDEN_DIR=/x", "HOME=/root"},
		Flags:   map[string]string{"trainer.eta": "4", "trainer.on": "true", "trainer.names": "a,b"},
	})
	require.NoError(t, err)
	require.Equal(t, &sample{Name: "file", Weights: map[string]float64{"em": 1}, Trainer: inner{
		Eta: 4, Rate: 0.125, Timeout: 30 * time.Second, On: true, Names: []string{"a", "b"},
	}}, cfg)
	require.Equal(t, "--trainer.eta", origins["trainer.eta"])
	require.Equal(t, "WEIR_TRAINER__RATE", origins["trainer.rate"])
	require.Equal(t, first, origins["trainer.timeout"])
}

// A flag and a variable give a list with commas between its items, of numbers too: pages 2,3 of the task ledger was refused.
func TestListsComeWithCommas(t *testing.T) {
	t.Parallel()
	type lists struct {
		Pages []int     `koanf:"pages"`
		Rates []float64 `koanf:"rates"`
		Names []string  `koanf:"names"`
	}
	var got struct {
		Task lists `koanf:"task"`
	}
	_, err := Load(&got, Sources{Environ: []string{"WEIR_TASK__RATES=0.5,1"}, Flags: map[string]string{"task.pages": "2,3", "task.names": "a"}})
	require.NoError(t, err)
	require.Equal(t, lists{Pages: []int{2, 3}, Rates: []float64{0.5, 1}, Names: []string{"a"}}, got.Task)
	_, err = Load(&got, Sources{Flags: map[string]string{"task.pages": "2,x"}})
	require.ErrorContains(t, err, "task.pages (from --task.pages): cannot use 2,x: want a list, each entry a whole number")
}

func TestEveryFaultIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "trainer:\n  etta: 2\n  timeout: soon\neta: 3\n")
	_, err := Load(defaults(), Sources{
		Files:   []string{path, "missing.yaml"},
		Environ: []string{"WEIR_TRAINER__RATE=much", "WEIR_TRANER__ETA=1"},
		Flags:   map[string]string{"trainer.eta": "1.5x"},
	})
	require.Error(t, err)
	for _, want := range []string{
		"trainer.etta (from " + path + "): unknown key; did you mean trainer.eta?",
		"eta (from " + path + "): unknown key; did you mean trainer.eta?",
		"trainer.timeout (from " + path + "): cannot use soon: want a duration such as 30s",
		"trainer.rate (from WEIR_TRAINER__RATE): cannot use much: want a number",
		"traner.eta (from WEIR_TRANER__ETA): unknown key; did you mean trainer.eta?",
		"trainer.eta (from --trainer.eta): cannot use 1.5x: want a whole number",
		"missing.yaml",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestKeysAndValues(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"name", "sources.*", "trainer.eta", "trainer.names", "trainer.on", "trainer.rate", "trainer.seed", "trainer.timeout", "weights.*"},
		Keys(defaults()))
	require.Equal(t, "1s", Values(defaults())["trainer.timeout"])
	_, err := Get(defaults(), "trainer.rat")
	require.EqualError(t, err, "trainer.rat: unknown key; did you mean trainer.rate?")
	_, err = Get(defaults(), "bogus_and_far_from_all")
	require.EqualError(t, err, "bogus_and_far_from_all: unknown key") // Defect N19: not "did you mean ?"
	_, err = Get(defaults(), "trainer")
	require.EqualError(t, err, "trainer: a section, which has no value; its keys stand below it, such as trainer.eta")
}

func TestAValueIsNeverChangedToFit(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ yaml, want string }{
		{"trainer:\n  eta: 4.7\n", "trainer.eta (from FILE): cannot use 4.7: want a whole number"},
		{"trainer:\n  eta: true\n", "trainer.eta (from FILE): cannot use true: want a whole number"},
		{"trainer:\n  eta: \"\"\n", `trainer.eta (from FILE): cannot use "": want a whole number`},
		{"trainer:\n  seed: -1\n", "trainer.seed (from FILE): cannot use -1: want a whole number, not below 0"},
		{"trainer:\n  rate: yes\n", "trainer.rate (from FILE): cannot use yes: want a number"},
		{"trainer:\n  rate: .nan\n", "trainer.rate (from FILE): cannot use NaN: want a number"}, // Defect N16: no bound refuses it
		{"trainer:\n  rate: \"-inf\"\n", "trainer.rate (from FILE): cannot use -inf: want a number"},
		{"trainer:\n  timeout: 30\n", "trainer.timeout (from FILE): cannot use 30: want a duration such as 30s"},
		{"trainer:\n  on: 1\n", "trainer.on (from FILE): cannot use 1: want true or false"},
		{"name: 0012\n", "name (from FILE): cannot use 10: want text; put it in quotes"},
		{"trainer: 5\n", "trainer (from FILE): a section, which has no value; its keys stand below it, such as trainer.eta"},
		{"name: (hidden)\n", "name (from FILE): was not written down; remove the line, and give the value as WEIR_NAME"},
	} {
		path := writeFile(t, tc.yaml)
		_, err := Load(defaults(), Sources{Files: []string{path}})
		require.ErrorContains(t, err, strings.ReplaceAll(tc.want, "FILE", path), tc.yaml)
	}
	cfg := defaults()
	_, err := Load(cfg, Sources{Files: []string{writeFile(t, "trainer:\n  eta: 4.0\n  timeout: 0\n  rate: 2\n  names: [a]\n")}})
	require.NoError(t, err)
	require.Equal(t, inner{Eta: 4, Rate: 2, Names: []string{"a"}}, cfg.Trainer)
}

func TestMapsTakeEntriesFromEverywhere(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	cfg.Weights = map[string]float64{"em": 1, "f1": 1}
	path := writeFile(t, "weights:\n  f1: 2\nsources:\n  1:\n    em: 1\n    f1: 0.5\n  2n: {em: 2}\n")
	origins, err := Load(cfg, Sources{
		Files: []string{path}, Environ: []string{"WEIR_SOURCES__2N__LENGTH=3"}, Flags: map[string]string{"sources.2n.em": "4"},
	})
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"em": 1, "f1": 2}, cfg.Weights)
	require.Equal(t, map[string]map[string]float64{"1": {"em": 1, "f1": 0.5}, "2n": {"em": 4, "length": 3}}, cfg.Sources)
	require.Equal(t, "--sources.2n.em", origins["sources.2n.em"])

	text, err := YAML(cfg)
	require.NoError(t, err)
	again := defaults()
	_, err = Load(again, Sources{Files: []string{writeFile(t, string(text))}})
	require.NoError(t, err)
	require.Equal(t, cfg.Weights, again.Weights)
	require.Equal(t, cfg.Sources, again.Sources)

	_, err = Load(defaults(), Sources{Flags: map[string]string{"sources.2n": "much"}})
	require.ErrorContains(t, err, "sources (from --sources.2n): cannot use map[2n:much]: want entries, each with entries, each with a number")
	_, err = Load(defaults(), Sources{Flags: map[string]string{"sources.2n.em": "much"}})
	require.ErrorContains(t, err, "sources (from --sources.2n.em): cannot use map[2n:map[em:much]]")
	_, err = Load(defaults(), Sources{Files: []string{writeFile(t, "trainer:\n  names: [{}]\n")}})
	require.ErrorContains(t, err, "cannot use [map[]]: want a list, each entry text")
}

func TestAnEmptyVariableIsNoNumber(t *testing.T) {
	t.Parallel()
	_, err := Load(defaults(), Sources{Environ: []string{"WEIR_TRAINER__ETA=", "WEIR_TRAINER__ON="}})
	require.ErrorContains(t, err, `trainer.eta (from WEIR_TRAINER__ETA): cannot use "": want a whole number`)
	require.ErrorContains(t, err, `trainer.on (from WEIR_TRAINER__ON): cannot use "": want true or false`)
}

func TestAVariableWithTooFewUnderscoresIsAFault(t *testing.T) {
	t.Parallel()
	_, err := Load(defaults(), Sources{Environ: []string{"WEIR_TRAINER_ETA=9", "WEIR_TRAINER=x"}})
	require.EqualError(t, err, "trainer.eta (from WEIR_TRAINER_ETA): two underscores stand for a dot: write WEIR_TRAINER__ETA")
}

func TestFaultsSayWhereTheirValueCameFrom(t *testing.T) {
	t.Parallel()
	err := Trace(errors.Join(errors.New("trainer.eta: -1: must not be negative"), errors.New("name: must be set")),
		map[string]string{"trainer.eta": "run.yaml"})
	require.EqualError(t, err, "trainer.eta (from run.yaml): -1: must not be negative\nname: must be set")
	require.NoError(t, Trace(nil, nil))
}

func TestWhatARunHasWrittenIsTheFirstFileWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	cfg := defaults()
	origins, err := Load(cfg, Sources{
		Written: writeFile(t, "name: (hidden)\ntrainer:\n  eta: 7\n  rate: 0.25\n"),
		Files:   []string{writeFile(t, "trainer:\n  eta: 8\n")},
	})
	require.NoError(t, err)
	require.Equal(t, &sample{Name: "d", Trainer: inner{Eta: 8, Rate: 0.25, Timeout: time.Second}}, cfg)
	require.NotContains(t, origins, "name")
}
