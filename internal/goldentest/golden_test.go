package goldentest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tolerance is both absolute and relative.
const tolerance = 1e-9

// file is one golden file.
type file struct {
	Name   string         `json:"name"`
	Params map[string]any `json:"params"`
	Cases  []*golden      `json:"cases"`
}

// golden is one case. Its params include the file's.
type golden struct {
	ID       string         `json:"id"`
	Tags     []string       `json:"tags"`
	Params   map[string]any `json:"params"`
	Inputs   map[string]any `json:"inputs"`
	Expected map[string]any `json:"expected"`

	// compared are the expected keys that the runner gave a value for.
	compared map[string]bool
	problems []string
}

// TestGolden compares every case of every file, and fails on a file that it does not know.
func TestGolden(t *testing.T) {
	dir := os.Getenv("WEIR_GOLDEN_DIR")
	if dir == "" {
		dir = "testdata"
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, paths, "no golden files in %s", dir)
	files, cases, failed := 0, 0, 0
	for _, path := range paths {
		files++
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			f, err := load(path)
			if err != nil {
				failed++
				t.Fatal(err)
			}
			run, known := runners()[strings.TrimSuffix(filepath.Base(path), ".json")]
			if !known {
				run, known = runners()[f.Name]
			}
			if !known {
				failed++
				t.Fatalf("unknown golden file %q", f.Name)
			}
			for _, c := range f.Cases {
				cases++
				if problem := c.check(run); problem != "" {
					failed++
					t.Errorf("%s %v %v: %s", c.ID, c.Tags, c.Params, problem)
				}
			}
		})
	}
	fmt.Printf("golden: files=%d cases=%d failed=%d\n", files, cases, failed)
}

func load(path string) (*file, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &file{}
	if err := json.Unmarshal(data, f); err != nil {
		return nil, fmt.Errorf("decode %s: %w", path, err)
	}
	for _, c := range f.Cases {
		params := maps.Clone(f.Params)
		if params == nil {
			params = map[string]any{}
		}
		maps.Copy(params, c.Params)
		c.Params = params
	}
	return f, nil
}

// check runs the case and returns what is wrong, "" if nothing is.
func (c *golden) check(run func(*golden) error) (problem string) {
	defer func() {
		if r := recover(); r != nil {
			problem = fmt.Sprintf("panic: %v", r)
		}
	}()
	c.compared = map[string]bool{}
	err := run(c)
	if _, wantError := c.Expected["error"]; wantError {
		if err == nil {
			return "want an error"
		}
		return ""
	}
	if err != nil {
		return err.Error()
	}
	for _, key := range slices.Sorted(maps.Keys(c.Expected)) {
		if !c.compared[key] {
			c.problems = append(c.problems, "not compared: "+key)
		}
	}
	return strings.Join(c.problems, "; ")
}

// want compares got with an expected value, which may be nested; NaN equals NaN. A nil expected value, or a key
// that the case has not, is no expectation.
func (c *golden) want(key string, got any) {
	want, ok := c.Expected[key]
	if !ok {
		return
	}
	c.compared[key] = true
	c.equal(key, want, got)
}

// wantIn compares one value of an expected object, such as a metric.
func (c *golden) wantIn(object string, got map[string]float64) {
	values, ok := c.Expected[object].(map[string]any)
	if !ok {
		return
	}
	c.compared[object] = true
	for _, key := range slices.Sorted(maps.Keys(values)) {
		v, ok := got[key]
		if !ok {
			c.problems = append(c.problems, fmt.Sprintf("%s: %s not reported", object, key))
			continue
		}
		c.equal(object+"."+key, values[key], v)
	}
}

func (c *golden) equal(where string, want, got any) {
	switch w := want.(type) {
	case nil:
		return
	case []any:
		c.equalList(where, w, got)
	case bool:
		if g, ok := got.(bool); !ok || g != w {
			c.problem(where, want, got)
		}
	default:
		if text, ok := w.(string); ok {
			if g, isText := got.(string); isText {
				if g != text {
					c.problem(where, want, got)
				}
				return
			}
		}
		g, ok := got.(float64)
		if n, isInt := got.(int); isInt {
			g, ok = float64(n), true
		}
		if !ok || !near(number(w), g) {
			c.problem(where, want, got)
		}
	}
}

func (c *golden) equalList(where string, want []any, got any) {
	var at func(i int) any
	n := 0
	switch g := got.(type) {
	case []float64:
		n, at = len(g), func(i int) any { return g[i] }
	case [][]float64:
		n, at = len(g), func(i int) any { return g[i] }
	case []uint8:
		n, at = len(g), func(i int) any { return float64(g[i]) }
	case [][]uint8:
		n, at = len(g), func(i int) any { return g[i] }
	case []int:
		n, at = len(g), func(i int) any { return g[i] }
	case []string:
		n, at = len(g), func(i int) any { return g[i] }
	case []any:
		n, at = len(g), func(i int) any { return g[i] }
	default:
		c.problem(where, want, got)
		return
	}
	if n != len(want) {
		c.problems = append(c.problems, fmt.Sprintf("%s: %d entries, want %d", where, n, len(want)))
		return
	}
	for i := range n {
		c.equal(fmt.Sprintf("%s[%d]", where, i), want[i], at(i))
	}
}

func (c *golden) problem(where string, want, got any) {
	if len(c.problems) < 4 {
		c.problems = append(c.problems, fmt.Sprintf("%s: got %v, want %v", where, got, want))
	}
}

func near(want, got float64) bool {
	switch {
	case math.IsNaN(want) || math.IsNaN(got):
		return math.IsNaN(want) && math.IsNaN(got)
	case math.IsInf(want, 0) || math.IsInf(got, 0):
		return want == got
	default:
		return math.Abs(want-got) <= tolerance+tolerance*math.Abs(want)
	}
}
