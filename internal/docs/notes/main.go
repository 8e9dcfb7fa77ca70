// Command notes draws the picture of the notes that the task ledger learns, from rollouts that weir eval --samples kept:
//
//	go run ./internal/docs/notes docs/benchmarks/notes.png samples-*.jsonl
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/weir-rl/weir/internal/report"
)

func main() {
	if err := writeShares(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notes:", err)
		os.Exit(1)
	}
}

// writeShares reads the files of samples after the picture's name, and writes the shares by version too.
func writeShares(args []string, out io.Writer) error {
	if len(args) < 2 {
		return errors.New("want the picture's name and the files that weir eval --samples wrote")
	}
	by := map[int]*tally{}
	for _, name := range args[1:] {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		err = readEpisodes(file, by)
		_ = file.Close() // only read from
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	series := []report.Series{{Name: "notes that hold the rule"}, {Name: "episodes that note anything"}, {Name: "right answers"}}
	for _, version := range slices.Sorted(maps.Keys(by)) {
		t := by[version]
		for i, n := range []int{t.ruled, t.noted, t.right} {
			series[i].X = append(series[i].X, float64(version))
			series[i].Y = append(series[i].Y, float64(n)/float64(t.episodes))
		}
		fmt.Fprintf(out, "version %d: %d of %d episodes note the rule, %d note anything, %d answer right\n", version, t.ruled, t.episodes, t.noted, t.right)
	}
	return report.SaveCurve(args[0], "ledger: what is noted", "policy version", "share of held-out episodes", series...)
}

// tally counts episodes of a version.
type tally struct{ episodes, noted, ruled, right int }

// episode is the part of a sample that is read.
type episode struct {
	Version int     `json:"version"`
	Right   float64 `json:"exact_match"`
	Turns   []struct {
		Arguments   string `json:"arguments"`
		Observation string `json:"observation"`
	} `json:"turns"`
}

var (
	told  = regexp.MustCompile(`^count (\S+) \.$`)
	wrote = regexp.MustCompile(`notepad \. add_facts \( (\S+) \)`)
)

// readEpisodes adds the episodes of a file.
func readEpisodes(r io.Reader, by map[int]*tally) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e episode
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return err
		}
		t := by[e.Version]
		if t == nil {
			t = &tally{}
			by[e.Version] = t
		}
		t.addEpisode(e)
	}
	return lines.Err()
}

// addEpisode counts an episode. Its notes hold the rule where a note names the colour that was said.
func (t *tally) addEpisode(e episode) {
	rule, noted, ruled := "", false, false
	for _, turn := range e.Turns {
		for _, note := range wrote.FindAllStringSubmatch(turn.Arguments, -1) {
			noted = true
			ruled = ruled || rule != "" && note[1] == rule
		}
		if said := told.FindStringSubmatch(turn.Observation); said != nil {
			rule = said[1]
		}
	}
	t.episodes++
	if noted {
		t.noted++
	}
	if ruled {
		t.ruled++
	}
	if e.Right == 1 {
		t.right++
	}
}
