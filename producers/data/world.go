package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers/data/table"
	"github.com/weir-rl/weir/producers/tasks"
)

// readWorld reads the row's data for tools, {"tools_kwargs": ..., "extra_info": ...}, and the names of the tools.
func (r *reader) readWorld() {
	r.readEnvironment()
	world := map[string]any{}
	if f, ok := r.findColumn(roleTools); ok {
		names, err := toolNames(f.value)
		if err != nil {
			r.refuseRow(f.path, err)
			return
		}
		r.e.Tools = append(r.e.Tools, names...)
	}
	if f, ok := r.findColumn(roleWorld); ok {
		kwargs, is := f.value.(map[string]any)
		if !is {
			r.refuseRow(f.path, fmt.Errorf("%s: want an object with a key for each tool", table.Kind(f.value)))
			return
		}
		if given := r.toolArguments(kwargs); len(given) > 0 {
			world["tools_kwargs"] = given
			r.readOwnKeys(world, given)
		}
	}
	slices.Sort(r.e.Tools)
	r.e.Tools = slices.Compact(r.e.Tools)
	if extra, ok := r.row.Fields["extra_info"].(map[string]any); ok && r.schema == VeRL {
		extra = maps.Clone(extra)
		for _, known := range []string{"split", "question", "tools_kwargs", "need_tools_kwargs"} {
			delete(extra, known)
		}
		if left, _ := withoutAnswers(extra).(map[string]any); len(left) > 0 {
			world["extra_info"] = left
		}
	}
	if len(world) > 0 && r.fault == nil {
		data, err := json.Marshal(world)
		if err != nil {
			r.refuseRow("", err)
			return
		}
		r.e.World = data
	}
}

// verlKwargs are the keys of a tool's arguments in verl's data.
var verlKwargs = []string{"create_kwargs", "execute_kwargs", "calc_reward_kwargs", "release_kwargs"}

// toolArguments are tools_kwargs without the answers. It notes the tools that these name. verl's has a key for each tool;
// Agent-R1's, beside a list of tools, is given to each of them whole.
func (r *reader) toolArguments(kwargs map[string]any) map[string]any {
	listed := slices.Clone(r.e.Tools)
	given := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(kwargs)) {
		if kwargs[key] == nil { // a Parquet file has every tool's column in every row
			continue
		}
		tool, object := kwargs[key].(map[string]any)
		named := object && (slices.Contains(listed, key) || len(listed) == 0 && !holdsAnswer(key))
		for name := range tool {
			named = named || len(listed) == 0 && slices.Contains(verlKwargs, name)
		}
		if named {
			r.e.Tools = append(r.e.Tools, key)
		}
		if !named && holdsAnswer(key) {
			continue
		}
		if left := withoutAnswers(kwargs[key]); left != nil {
			given[key] = left
		}
	}
	return given
}

// ownKeys are the keys that Weir's tools look for in a prompt's world: the files of a sandbox, and the database of a query.
var ownKeys = []string{"files", "script", "database"}

// readOwnKeys puts the keys of Weir's tools, which stand with the tool that a row gives them to, or in its create_kwargs, where the tools look for them. Tools
// that share a sandbox may each be given files.
func (r *reader) readOwnKeys(world, kwargs map[string]any) {
	for _, tool := range slices.Sorted(maps.Keys(kwargs)) {
		given, _ := kwargs[tool].(map[string]any)
		created, _ := given["create_kwargs"].(map[string]any)
		for _, fields := range []map[string]any{given, created} {
			for _, key := range ownKeys {
				value, there := fields[key]
				if !there || value == nil {
					continue
				}
				if err := mergeKey(world, key, value); err != nil {
					r.refuseRow("tools_kwargs."+tool+"."+key, err)
					return
				}
			}
		}
	}
}

// mergeKey sets a key, or adds to an object that it has.
func mergeKey(world map[string]any, key string, value any) error {
	before, there := world[key]
	if !there {
		world[key] = value
		return nil
	}
	old, both := before.(map[string]any)
	more, object := value.(map[string]any)
	if !both || !object {
		if reflect.DeepEqual(before, value) {
			return nil
		}
		return errors.New("another tool of the row is given another one")
	}
	all := maps.Clone(old)
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if earlier, twice := all[name]; twice && !reflect.DeepEqual(earlier, more[name]) {
			return fmt.Errorf("%q: another tool of the row is given another one", name)
		}
		all[name] = more[name]
	}
	world[key] = all
	return nil
}

// readEnvironment opens env_kwargs, which Agent-R1 has as JSON in a text.
func (r *reader) readEnvironment() {
	text, ok := r.row.Fields["env_kwargs"].(string)
	if !ok || strings.TrimSpace(text) == "" {
		return
	}
	fields, err := table.Object([]byte(text))
	if err != nil {
		r.refuseRow("env_kwargs", err)
		return
	}
	r.row.Fields = maps.Clone(r.row.Fields)
	r.row.Fields["env_kwargs"] = fields
}

// toolNames are names, or descriptions of tools as OpenAI's API has them.
func toolNames(v any) ([]string, error) {
	if text, ok := v.(string); ok {
		return strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' }), nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%s: want a list of names", table.Kind(v))
	}
	var out []string
	for i, e := range list {
		switch e := e.(type) {
		case string:
			out = append(out, e)
			continue
		case map[string]any:
			if inner, ok := e["function"].(map[string]any); ok {
				e = inner
			}
			if name, ok := e["name"].(string); ok {
				out = append(out, name)
				continue
			}
		}
		return nil, fmt.Errorf("[%d]: %s: want a tool's name", i, table.Kind(e))
	}
	return out, nil
}

// readPassages reads HotpotQA's context: [[title, [sentence, ...]], ...], or {"title": [...], "sentences": [[...], ...]} as the hub has it.
func (r *reader) readPassages() {
	if r.schema != Hotpot {
		return
	}
	context := r.row.Fields["context"]
	if columns, ok := context.(map[string]any); ok {
		titles, _ := columns["title"].([]any)
		sentences, _ := columns["sentences"].([]any)
		if len(titles) != len(sentences) {
			r.refuseRow("context", fmt.Errorf("%d titles and %d lists of sentences", len(titles), len(sentences)))
			return
		}
		var pairs []any
		for i := range titles {
			pairs = append(pairs, []any{titles[i], sentences[i]})
		}
		context = pairs
	}
	pairs, ok := context.([]any)
	if !ok && context != nil {
		r.refuseRow("context", fmt.Errorf("%s: want a list of [title, [sentence, ...]]", table.Kind(context)))
		return
	}
	for i, p := range pairs {
		pair, _ := p.([]any)
		if len(pair) != 2 {
			r.refuseRow(fmt.Sprintf("context[%d]", i), fmt.Errorf("%s: want [title, [sentence, ...]]", table.Kind(p)))
			return
		}
		title, ok := pair[0].(string)
		sentences, list := pair[1].([]any)
		var text strings.Builder
		for _, s := range sentences {
			s, is := s.(string)
			ok = ok && is
			text.WriteString(s)
		}
		if !ok || !list {
			r.refuseRow(fmt.Sprintf("context[%d]", i), fmt.Errorf("want a title and sentences, as text"))
			return
		}
		if strings.TrimSpace(title) != "" && strings.TrimSpace(text.String()) != "" {
			r.e.Passages = append(r.e.Passages, tasks.Passage{Title: title, Text: strings.TrimSpace(text.String())})
		}
	}
}
