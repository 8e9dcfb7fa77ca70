package data

import (
	"context"
	"errors"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/weir-rl/weir/producers/data/table"
	"github.com/weir-rl/weir/producers/tasks"
)

// Description describes the contents of data files.
type Description struct {
	Files []FileDescription `json:"files"`
	// Rows counts the rows that were read as prompts, Faulty the rows with a fault; Faults has the first of these faults.
	Rows   int      `json:"rows"`
	Faulty int      `json:"faulty"`
	Faults []string `json:"faults"`
	// Schemas, Sources, Splits, Tools and Abilities count rows; rows that name no split are under "".
	Schemas   map[string]int      `json:"schemas"`
	Sources   map[string]int      `json:"sources"`
	Splits    map[tasks.Split]int `json:"splits"`
	Tools     map[string]int      `json:"tools"`
	Abilities map[string]int      `json:"abilities"`
	// Conversations, Tests, Worlds, Difficulties and PassRates count the rows that have any.
	Conversations int `json:"conversations"`
	Tests         int `json:"tests"`
	Worlds        int `json:"worlds"`
	Difficulties  int `json:"difficulties"`
	PassRates     int `json:"pass_rates"`
	Passages      int `json:"passages"`
	// Duplicates counts the rows that repeat the question of an earlier row, to the letter, or but for case, punctuation and
	// space.
	Duplicates struct {
		Exact      int `json:"exact"`
		Normalized int `json:"normalized"`
	} `json:"duplicates"`
	// Characters and Tokens are the lengths of the questions with the messages before them; Tokens is nil without a tokenizer.
	Characters Lengths  `json:"characters"`
	Tokens     *Lengths `json:"tokens,omitempty"`
}

// FileDescription describes a file.
type FileDescription struct {
	Path string `json:"path"`
	Rows int    `json:"rows"`
	// Columns are the columns of all rows, sorted.
	Columns []string `json:"columns"`
}

// Lengths are how long texts are.
type Lengths struct {
	Least  int `json:"least"`
	Median int `json:"median"`
	// Most95 is the length that 95 in a hundred do not exceed.
	Most95 int `json:"most_95"`
	Most   int `json:"most"`
}

func describeLengths(of []int) Lengths {
	if len(of) == 0 {
		return Lengths{}
	}
	slices.Sort(of)
	n := len(of)
	return Lengths{of[0], of[(n-1)/2], of[(95*n+99)/100-1], of[n-1]}
}

// Describe reads files to their ends, and gives their examples too, and their rows as they are where raw is not nil. tokens measures a
// text; nil measures none.
func (m Mapping) Describe(ctx context.Context, files []string, tokens func(string) int, raw *[]map[string]any) (*Description, []*Example, error) {
	d := &Description{
		Schemas: map[string]int{}, Sources: map[string]int{}, Splits: map[tasks.Split]int{}, Tools: map[string]int{}, Abilities: map[string]int{}, Faults: []string{},
	}
	var examples []*Example
	var characters, measured []int
	exact, normalized := map[string]bool{}, map[string]bool{}
	for _, path := range files {
		file := FileDescription{Path: path}
		columns := map[string]bool{}
		for row, err := range table.Rows(ctx, path) {
			var e *Example
			if err == nil {
				for name := range row.Fields {
					columns[name] = true
				}
				e, err = m.readExample(path, row)
			}
			if err != nil {
				var fault *table.FaultError
				if !errors.As(err, &fault) || fault.At == 0 {
					return nil, nil, err
				}
				if d.Faulty++; len(d.Faults) < maxFaults {
					d.Faults = append(d.Faults, err.Error())
				}
				continue
			}
			if raw != nil {
				*raw = append(*raw, row.Fields)
			}
			file.Rows++
			d.addRow(m, row, e)
			characters = append(characters, utf8.RuneCountInString(e.askedText()))
			if tokens != nil {
				measured = append(measured, tokens(e.askedText()))
			}
			for how, seen := range map[string]map[string]bool{DedupeExact: exact, DedupeNormalized: normalized} {
				key := e.Key(how)
				if seen[key] && how == DedupeExact {
					d.Duplicates.Exact++
				} else if seen[key] {
					d.Duplicates.Normalized++
				}
				seen[key] = true
			}
			examples = append(examples, e)
		}
		file.Columns = slices.Sorted(maps.Keys(columns))
		d.Files = append(d.Files, file)
	}
	d.Characters = describeLengths(characters)
	if tokens != nil {
		l := describeLengths(measured)
		d.Tokens = &l
	}
	return d, examples, nil
}

// addRow counts a row.
func (d *Description) addRow(m Mapping, row table.Row, e *Example) {
	d.Rows++
	schema := m.Schema
	if schema == "" || schema == Auto {
		schema = detectSchema(row)
	}
	d.Schemas[string(schema)]++
	d.Sources[e.Source]++
	d.Splits[e.Split]++
	for _, tool := range e.Tools {
		d.Tools[tool]++
	}
	if ability := e.Meta[roleAbility]; ability != "" {
		d.Abilities[ability]++
	}
	for count, has := range map[*int]bool{
		&d.Conversations: e.Meta[tasks.MetaMessages] != "", &d.Tests: e.Hidden != nil, &d.Worlds: e.World != nil, &d.Difficulties: e.Difficulty != nil,
		&d.PassRates: e.PassRate != nil,
	} {
		if has {
			*count++
		}
	}
	d.Passages += len(e.Passages)
}
