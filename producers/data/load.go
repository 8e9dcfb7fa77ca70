package data

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers/data/table"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// maxFaults is how many bad rows are reported before the rest is left unread.
const maxFaults = 10

// The ways to take a row with a fault.
const (
	// FaultRefuse refuses the data set, naming the rows.
	FaultRefuse = "refuse"
	// FaultSkip leaves the row out and counts it.
	FaultSkip = "skip"
)

// Config sets a data set's files and their reading.
type Config struct {
	// Files are JSONL, JSON and Parquet files (JSON also compressed by gzip or zstd), whose rows name their split or are
	// divided. TrainFiles, ValidationFiles and TestFiles are files of a single split, whatever their rows name. Default to
	// none.
	Files           []string `koanf:"files"`
	TrainFiles      []string `koanf:"train_files"`
	ValidationFiles []string `koanf:"validation_files"`
	TestFiles       []string `koanf:"test_files"`
	// Schema is the layout of the columns: auto, verl, hotpotqa, gsm8k, math or plain; auto finds out row by row. Defaults to auto.
	Schema string `koanf:"schema"`
	// Columns name the column of a role, with dots for a field inside an object, such as answer: reward_model.ground_truth. The
	// roles are question, prompt, answer, id, source, split, ability, difficulty, pass_rate, tools, world, tests, entry, group
	// and meta_NAME. If a role is not named, the schema's column is used.
	Columns map[string]string `koanf:"columns"`
	// Source is that of rows which name none; "" is the file's name without its ending. Defaults to "".
	Source string `koanf:"source"`
	// Faults decides about a row with a fault: refuse refuses the data set, skip leaves the row out and counts it. Defaults to
	// refuse.
	Faults string `koanf:"faults"`
	// Dedupe leaves a single row of each question: none, exact (the same words) or normalized (the same but for case,
	// punctuation and space). A question of test or validation is left out of train. Defaults to exact.
	Dedupe string `koanf:"dedupe"`
	// PassRates is a JSONL file with measured pass rates, `{"id", "pass_rate"}`, or the samples that weir eval --samples keeps. "" has
	// none. Defaults to "".
	PassRates string `koanf:"pass_rates"`
	Filter    Filter `koanf:"filter"`
	Split     Split  `koanf:"split"`
	Limit     Limit  `koanf:"rows"`
}

// DefaultConfig reads every schema, refuses faults, and leaves exact duplicates out.
func DefaultConfig() Config {
	return Config{Schema: string(Auto), Faults: FaultRefuse, Dedupe: DedupeExact, Filter: DefaultFilter(), Split: DefaultSplit()}
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(
		check.That(len(c.allFiles()) > 0, "files", "none: name a JSONL or Parquet file, or name some by train_files"),
		c.Mapping().Validate(),
		check.OneOf("faults", c.Faults, FaultRefuse, FaultSkip),
		check.OneOf("dedupe", c.Dedupe, Dedupes()...),
		check.Section("filter", c.Filter.Validate()),
		check.Section("split", c.Split.Validate()),
		check.Section("rows", c.Limit.Validate()),
	)
}

// Mapping is how rows are read.
func (c Config) Mapping() Mapping {
	return Mapping{Schema: Schema(c.Schema), Columns: c.Columns, Source: c.Source}
}

// file is a data file and the split that it is of; "" is any.
type file struct {
	path  string
	split tasks.Split
}

func (c Config) allFiles() []file {
	var out []file
	add := func(paths []string, split tasks.Split) {
		for _, p := range paths {
			out = append(out, file{p, split})
		}
	}
	add(c.Files, "")
	add(c.TrainFiles, tasks.Train)
	add(c.ValidationFiles, tasks.Validation)
	add(c.TestFiles, tasks.Test)
	return out
}

// Loaded are the examples of a data set, cleaned and divided, in the order of the files.
type Loaded struct {
	Examples []*Example
	// Left counts the rows that were left out.
	Left Left
	// Skipped are the first faults of rows that were left out.
	Skipped []error
}

// Load reads the files. tokens measures a text in tokens; it may be nil where no filter asks.
func (c Config) Load(ctx context.Context, tokens func(string) int) (*Loaded, error) {
	out := &Loaded{}
	var faults []error
	for _, f := range c.allFiles() {
		for e, err := range c.Mapping().Read(ctx, f.path) {
			var fault *table.FaultError
			switch {
			case err == nil:
				if f.split != "" {
					e.Split = f.split
				}
				out.Examples = append(out.Examples, e)
				continue
			case !errors.As(err, &fault) || fault.At == 0:
				return nil, errors.Join(append(faults, err)...)
			}
			if c.Faults == FaultSkip {
				if out.Left.Faulty++; len(out.Skipped) < maxFaults {
					out.Skipped = append(out.Skipped, err)
				}
				continue
			}
			if faults = append(faults, err); len(faults) == maxFaults {
				faults = append(faults, fmt.Errorf("%s: too many bad rows: the rest is not read; faults: skip leaves them out", f.path))
				return nil, errors.Join(faults...)
			}
		}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	if c.PassRates != "" {
		if err := addPassRates(ctx, c.PassRates, out.Examples); err != nil {
			return nil, err
		}
	}
	c.Split.Divide(out.Examples)
	out.Examples = c.Filter.Keep(out.Examples, tokens, &out.Left)
	out.Examples = Unique(out.Examples, c.Dedupe, &out.Left)
	if err := numberDuplicates(out.Examples); err != nil {
		return nil, err
	}
	out.Examples = c.Limit.Keep(out.Examples, &out.Left)
	if len(out.Examples) == 0 {
		return nil, fmt.Errorf("no row is left to ask: left out are %s", out.Left)
	}
	return out, nil
}

// Dataset is the data set in the form that a task takes.
func (l *Loaded) Dataset(name string) *tasks.Dataset {
	d := &tasks.Dataset{Name: name, Questions: map[tasks.Split][]schemas.Prompt{}}
	seen := map[tasks.Passage]bool{}
	for _, e := range l.Examples {
		d.Questions[e.Split] = append(d.Questions[e.Split], e.Prompt)
		for _, p := range e.Passages {
			if !seen[p] {
				seen[p] = true
				d.Passages = append(d.Passages, p)
			}
		}
	}
	return d
}

// addPassRates gives the examples the pass rates of a file. A file that knows none of them is of another data set, and refused.
func addPassRates(ctx context.Context, path string, examples []*Example) error {
	rates, err := PassRates(ctx, path)
	if err != nil {
		return fmt.Errorf("pass_rates: %w", err)
	}
	known := 0
	for _, e := range examples {
		if rate, ok := rates[e.ID]; ok {
			e.PassRate = &rate
			known++
		}
	}
	if known == 0 {
		return fmt.Errorf("pass_rates: %s has the rates of %d questions, and none of them is of this data set", path, len(rates))
	}
	return nil
}

// PassRates reads measured pass rates by the prompts' ids: rows with id and pass_rate, or a row for each sample with id and
// exact_match, of which the mean is taken.
func PassRates(ctx context.Context, path string) (map[string]float64, error) {
	sum, n := map[string]float64{}, map[string]float64{}
	for row, err := range table.Rows(ctx, path) {
		if err != nil {
			return nil, err
		}
		id, _ := row.Fields["id"].(string)
		rate, ok := parsePassRate(row.Fields["pass_rate"])
		if !ok {
			rate, ok = parsePassRate(row.Fields["exact_match"])
		}
		if _, failed := row.Fields["error"].(string); failed && !ok {
			continue // a sample that was not scored
		}
		if id == "" || !ok {
			return nil, &table.FaultError{File: path, At: row.At, Err: errors.New("want id, and pass_rate or exact_match from 0 to 1")}
		}
		sum[id] += rate
		n[id]++
	}
	if len(n) == 0 {
		return nil, fmt.Errorf("%s: no pass rate in it", path)
	}
	for id := range sum {
		sum[id] /= n[id]
	}
	return sum, nil
}

func parsePassRate(v any) (float64, bool) {
	number, ok := v.(interface{ Float64() (float64, error) })
	if !ok {
		return 0, false
	}
	x, err := number.Float64()
	return x, err == nil && x >= 0 && x <= 1
}
