package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/producers/data/table"
)

// Schema names a layout of columns that is in use.
type Schema string

// The schemas.
const (
	// Auto finds out by the columns of each row.
	Auto Schema = "auto"
	// VeRL is verl's: data_source, prompt (chat messages), ability, reward_model.ground_truth, extra_info. Search-R1's, Agent-R1's and
	// VerlTool's are the same with more in them.
	VeRL Schema = "verl"
	// Hotpot is HotpotQA's own: question, answer, context, level, type.
	Hotpot Schema = "hotpotqa"
	// GSM8K has question and answer, the answer's last line being #### and the number.
	GSM8K Schema = "gsm8k"
	// MATH has problem and solution, the answer standing in the solution's last \boxed{}.
	MATH Schema = "math"
	// Plain has a column of questions and a column of answers, by whatever name.
	Plain Schema = "plain"
)

// Schemas are all of them, Auto first.
func Schemas() []string {
	return []string{string(Auto), string(VeRL), string(Hotpot), string(GSM8K), string(MATH), string(Plain)}
}

// detectSchema finds a row's schema.
func detectSchema(row table.Row) Schema {
	has := func(names ...string) bool {
		for _, name := range names {
			if v, ok := row.Fields[name]; !ok || v == nil {
				return false
			}
		}
		return true
	}
	answer, _ := row.Fields["answer"].(string)
	switch {
	case has("prompt", "reward_model"):
		return VeRL
	case has("question", "answer", "context"):
		return Hotpot
	case has("question") && strings.Contains(answer, "####"):
		return GSM8K
	case has("problem", "solution") && !has("answer"):
		return MATH
	}
	return Plain
}

// The roles that a column can have: the keys of [Mapping.Columns].
const (
	roleQuestion   = "question"
	rolePrompt     = "prompt"
	roleAnswer     = "answer"
	roleID         = "id"
	roleSource     = "source"
	roleSplit      = "split"
	roleAbility    = "ability"
	roleDifficulty = "difficulty"
	rolePassRate   = "pass_rate"
	roleTools      = "tools"
	roleWorld      = "world"
	roleTests      = "tests"
	roleEntry      = "entry"
	roleGroup      = "group"
)

// metaRole begins the role of a column that goes to Prompt.Meta: meta_NAME.
const metaRole = "meta_"

func roleNames() []string {
	return []string{
		roleAbility, roleAnswer, roleDifficulty, roleEntry, roleGroup, roleID, rolePassRate, rolePrompt, roleQuestion, roleSource, roleSplit, roleTests,
		roleTools, roleWorld,
	}
}

// usual are the columns in which a role is looked for, in this order, where the mapping does not say.
var usual = map[Schema]map[string][]string{
	VeRL: {
		rolePrompt: {"prompt"}, roleAnswer: {"reward_model.ground_truth"}, roleSource: {"data_source"}, roleSplit: {"extra_info.split", "split"},
		roleAbility: {"ability"}, roleDifficulty: {"extra_info.difficulty", "difficulty"}, rolePassRate: {"extra_info.pass_rate", "pass_rate"},
		roleTools: {"env_kwargs.tools", "extra_info.tools"}, roleWorld: {"extra_info.tools_kwargs", "env_kwargs.tools_kwargs"},
		// VerlTool's programs have their tests here, and an empty ground_truth (examples/data_preprocess/acecoder.py, deepcoder.py, taco.py).
		roleTests: {"extra_info.test_cases", "extra_info.inputs_outputs"},
	},
	Hotpot: {
		roleQuestion: {"question"}, roleAnswer: {"answer"}, roleID: {"_id", "id"}, roleSplit: {"split"}, roleDifficulty: {"level"},
		metaRole + "type": {"type"}, metaRole + "level": {"level"},
	},
	GSM8K: {roleQuestion: {"question"}, roleAnswer: {"answer"}, roleID: {"id"}, roleSource: {"source", "data_source"}, roleSplit: {"split"}},
	MATH: {
		roleQuestion: {"problem"}, roleAnswer: {"solution"}, roleID: {"id", "unique_id"}, roleSource: {"source", "data_source"}, roleSplit: {"split"},
		roleDifficulty: {"level", "difficulty"}, metaRole + "type": {"type"}, metaRole + "level": {"level"},
	},
	Plain: {
		roleQuestion: {"question", "problem", "query", "instruction", "input", "text"}, rolePrompt: {"prompt", "messages"},
		roleAnswer: {"answers", "answer", "golden_answers", "ground_truth", "final_answer", "target", "expected_answer", "output"},
		roleID:     {"id", "_id", "uid", "question_id", "task_id", "unique_id"}, roleSource: {"source", "data_source", "dataset"},
		roleSplit: {"split"}, roleAbility: {"ability"}, roleDifficulty: {"difficulty", "level"}, rolePassRate: {"pass_rate"},
		roleTools: {"tools"}, roleWorld: {"world", "tools_kwargs"}, roleTests: {"tests", "test_cases", "test_list", "test"}, roleEntry: {"entry_point", "fn_name"},
	},
}

// Mapping maps roles to a row's columns.
type Mapping struct {
	// Schema is the layout; "" is Auto.
	Schema Schema
	// Columns name the column of a role, with dots for a field inside an object: {"answer": "reward_model.ground_truth"}. If a
	// role is not named, the schema's column is used. The role meta_NAME puts a column's text into Prompt.Meta.
	Columns map[string]string
	// Source is that of rows which name none; "" is the file's name without its ending.
	Source string
}

// Validate reports every fault.
func (m Mapping) Validate() error {
	if m.Schema != "" && !slices.Contains(Schemas(), string(m.Schema)) {
		return fmt.Errorf("schema: %q: want %s", m.Schema, strings.Join(Schemas(), ", "))
	}
	for _, role := range slices.Sorted(maps.Keys(m.Columns)) {
		meta, is := strings.CutPrefix(role, metaRole)
		if is && meta == "" || !is && !slices.Contains(roleNames(), role) {
			return fmt.Errorf("columns.%s: no role of a column: want %s or %sNAME", role, strings.Join(roleNames(), ", "), metaRole)
		}
		if m.Columns[role] == "" {
			return fmt.Errorf("columns.%s: empty: name the column", role)
		}
	}
	return nil
}

// found is a column of a row: its path and its value.
type found struct {
	path  string
	value any
}

// findRole is a role's column in a row. A role that the mapping names must be there; else ok is false where no column is, or holds
// null.
func (m Mapping) findRole(row table.Row, schema Schema, role string) (f found, ok bool, err error) {
	if path, named := m.Columns[role]; named {
		v, ok := row.Lookup(path)
		if !ok {
			return found{path: path}, false, fmt.Errorf("%s: there is no such column, and columns.%s names it", path, role)
		}
		return found{path, v}, v != nil, nil
	}
	for _, path := range usual[schema][role] {
		if v, there := row.Lookup(path); there && v != nil {
			return found{path, v}, true, nil
		}
	}
	return found{}, false, nil
}
