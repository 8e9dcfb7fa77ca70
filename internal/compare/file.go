package compare

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"

	"github.com/weir-rl/weir/internal/config"
)

// File is a comparison as its file describes it.
type File struct {
	// Path is the file itself.
	Path string
	// Name names the comparison, and its folder of runs. It defaults to the name of the folder that the file is in.
	Name string
	// Base are configuration files of every run, later files winning. The file names them relative to its own folder.
	Base []string
	// Settings are keys of every run, over Base.
	Settings map[string]string
	// Arms are the settings that are compared, over Settings, in order of their names.
	Arms []Arm
	// Baseline is the arm that the others are held against. It defaults to the first arm.
	Baseline string
	// Seeds are the seeds of the runs.
	Seeds Seeds
	// Deterministic trains with trainer.deterministic. The zero value leaves that to the settings.
	Deterministic bool
	// Parallel is how many runs train at once; 0 chooses by memory and processor cores.
	Parallel int
	// Scores are the scores, in (0, 1], of which the report counts the steps. They default to 0.8 and 0.9.
	Scores []float64
	// Claims are the sentences that the report judges.
	Claims []Claim
}

// Arm is a set of settings that is compared with others.
type Arm struct {
	Name     string
	Settings map[string]string
}

// Seeds are the values of run.seed. No seed is in both lists: settings that were chosen on a seed are not tested on it.
type Seeds struct {
	Tuning  []int64 `json:"tuning"`
	Testing []int64 `json:"testing"`
}

// armName is what an arm may be named: the name is part of a run's name, and a word of claims.
var armName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// ReadFile reads a comparison. The error is a [*config.InvalidError] with every fault of the file, each by its key path.
func ReadFile(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, config.Invalid(fmt.Errorf("read the comparison: %w", err))
	}
	tree, err := yaml.Parser().Unmarshal(text)
	if err != nil {
		return nil, config.Invalid(fmt.Errorf("read the comparison %s: %w", path, err))
	}
	d := &decoder{path: path}
	f := d.decodeFile(tree)
	if len(d.faults) > 0 {
		return nil, config.Invalid(fmt.Errorf("comparison %s:\n%w", path, errors.Join(d.faults...)))
	}
	return f, nil
}

// fileKeys are the keys of a file.
var fileKeys = []string{"name", "base", "settings", "arms", "baseline", "seeds", "deterministic", "parallel", "scores", "claims"}

// decoder gathers the faults of a file.
type decoder struct {
	path   string
	faults []error
}

func (d *decoder) addFault(key, format string, args ...any) {
	d.faults = append(d.faults, &config.ValueError{Key: key, Problem: fmt.Sprintf(format, args...)})
}

func (d *decoder) decodeFile(tree map[string]any) *File {
	f := &File{Path: d.path, Name: defaultName(d.path), Scores: []float64{0.8, 0.9}}
	d.refuseUnknown("", tree, fileKeys)
	if v, ok := tree["name"]; ok {
		f.Name = fmt.Sprint(v)
	}
	if !armName.MatchString(f.Name) {
		d.addFault("name", "%q: want a lower-case letter and then letters, digits, - or _", f.Name)
	}
	for _, file := range d.decodeList("base", tree["base"]) {
		if text := fmt.Sprint(file); filepath.IsAbs(text) {
			f.Base = append(f.Base, text)
		} else {
			f.Base = append(f.Base, filepath.Join(filepath.Dir(d.path), text))
		}
	}
	f.Settings = d.decodeSettings("settings", tree["settings"])
	d.decodeArms(f, tree)
	f.Seeds = d.decodeSeeds(tree["seeds"])
	var ok bool
	if v := tree["deterministic"]; v != nil {
		if f.Deterministic, ok = v.(bool); !ok {
			d.addFault("deterministic", "%v: want true or false", v)
		}
	}
	if v := tree["parallel"]; v != nil {
		if f.Parallel, ok = v.(int); !ok || f.Parallel < 0 {
			d.addFault("parallel", "%v: want a number of runs, or 0", v)
		}
	}
	if tree["scores"] != nil {
		f.Scores = d.decodeScores(tree["scores"])
	}
	d.decodeClaims(f, tree["claims"])
	return f
}

// defaultName is the name of the folder that a file is in.
func defaultName(path string) string {
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	return strings.ToLower(filepath.Base(filepath.Dir(path)))
}

func (d *decoder) refuseUnknown(section string, tree map[string]any, known []string) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if slices.Contains(known, key) {
			continue
		}
		if near := config.Nearest(key, known); near != "" {
			d.addFault(section+key, "unknown key; did you mean %s?", section+near)
		} else {
			d.addFault(section+key, "unknown key; want some of %s", strings.Join(known, ", "))
		}
	}
}

func (d *decoder) decodeArms(f *File, tree map[string]any) {
	arms, ok := tree["arms"].(map[string]any)
	if !ok || len(arms) < 2 {
		d.addFault("arms", "want at least two, such as arms: {low: {trainer.eta: 0}, high: {trainer.eta: 8}}")
	}
	for _, name := range slices.Sorted(maps.Keys(arms)) {
		if !armName.MatchString(name) {
			d.addFault("arms."+name, "want a name of lower-case letters, digits, - and _ that begins with a letter")
		}
		f.Arms = append(f.Arms, Arm{name, d.decodeSettings("arms."+name, arms[name])})
	}
	if len(f.Arms) > 0 {
		f.Baseline = f.Arms[0].Name
	}
	if v := tree["baseline"]; v != nil {
		if f.Baseline = fmt.Sprint(v); !f.hasArm(f.Baseline) {
			d.addFault("baseline", "%q: no arm has this name", f.Baseline)
		}
	}
}

func (f *File) hasArm(name string) bool {
	return slices.ContainsFunc(f.Arms, func(a Arm) bool { return a.Name == name })
}

func (d *decoder) decodeList(key string, v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		return v
	case map[string]any:
		d.addFault(key, "want a list")
		return nil
	}
	return []any{v}
}

func (d *decoder) decodeSeeds(v any) (s Seeds) {
	tree, ok := v.(map[string]any)
	if !ok {
		d.addFault("seeds", "want two lists, such as seeds: {tuning: [1, 2], testing: [11, 12, 13]}")
		return s
	}
	d.refuseUnknown("seeds.", tree, []string{"tuning", "testing"})
	seen := map[int64]string{}
	for _, list := range []struct {
		key  string
		into *[]int64
	}{{"tuning", &s.Tuning}, {"testing", &s.Testing}} {
		for _, v := range d.decodeList("seeds."+list.key, tree[list.key]) {
			n, ok := v.(int)
			if !ok || n < 0 {
				d.addFault("seeds."+list.key, "%v: want whole numbers from 0", v)
				continue
			}
			if where := seen[int64(n)]; where != "" {
				d.addFault("seeds."+list.key, "%d: it is in seeds.%s already", n, where)
			}
			seen[int64(n)] = list.key
			*list.into = append(*list.into, int64(n))
		}
	}
	if len(s.Testing) == 0 {
		d.addFault("seeds.testing", "want at least one seed: results are of these seeds")
	}
	return s
}

func (d *decoder) decodeScores(v any) (out []float64) {
	for _, v := range d.decodeList("scores", v) {
		score, err := strconv.ParseFloat(fmt.Sprint(v), 64)
		if err != nil || score <= 0 || score > 1 {
			d.addFault("scores", "%v: want numbers above 0, at most 1", v)
			continue
		}
		out = append(out, score)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (d *decoder) decodeClaims(f *File, v any) {
	for i, v := range d.decodeList("claims", v) {
		key := fmt.Sprintf("claims[%d]", i)
		claim, err := ParseClaim(fmt.Sprint(v))
		if err != nil {
			d.addFault(key, "%v", err)
			continue
		}
		for _, name := range claim.arms() {
			if !f.hasArm(name) {
				d.addFault(key, "%q: no arm is named %q", claim.Text, name)
			}
		}
		f.Claims = append(f.Claims, claim)
	}
}
