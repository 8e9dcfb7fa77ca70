package search

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ids: 1 <s> 2 </s> 3 <i> 4 </i> 5 <a> 6 </a> 7 <e> 8 </e>, words from 10.
var testTags = tags{tools: []pair{{1, 2}, {7, 8}}, info: pair{3, 4}, answer: pair{5, 6}}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name    string
		sampled []int32
		opened  bool
		want    action
		body    []int32
	}{
		{"search", []int32{1, 10, 2}, false, searches, []int32{10}},
		{"search with a further tool", []int32{12, 7, 10, 8}, false, searches, []int32{10}},
		{"a tool's tag closed by another's", []int32{1, 10, 8}, false, invalid, nil},
		{"a further tool's tag in another's", []int32{1, 7, 10, 2}, false, invalid, nil},
		{"answer of two words", []int32{5, 10, 11, 6}, false, answers, []int32{10, 11}},
		{"thought first", []int32{12, 13, 1, 10, 2}, false, searches, []int32{10}},
		{"nothing", nil, false, invalid, nil},
		{"no closing tag", []int32{1, 10}, false, invalid, nil},
		{"no opening tag", []int32{10, 2}, false, invalid, nil},
		{"closing tag alone", []int32{2}, false, invalid, nil},
		{"nothing between", []int32{1, 2}, false, invalid, nil},
		{"tags that do not match", []int32{1, 10, 6}, false, invalid, nil},
		{"one action in another", []int32{1, 5, 10, 2}, false, invalid, nil},
		{"the tool's part written by the policy", []int32{3, 10, 4, 5, 10, 6}, false, invalid, nil},
		{"opened twice", []int32{1, 1, 10, 2}, false, invalid, nil},
		{"tag in the thought", []int32{5, 1, 10, 2}, false, invalid, nil},
		{"answer under an open tag", []int32{10, 6}, true, answers, []int32{10}},
		{"search under an open answer tag", []int32{1, 10, 2}, true, invalid, nil},
		{"nothing under an open tag", []int32{6}, true, invalid, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kind, tool, body := testTags.parseTurn(tc.sampled, tc.opened)
			require.Equal(t, tc.want == searches && slices.Contains(tc.sampled, 8), tool == 1)
			require.Equal(t, tc.want, kind)
			require.Equal(t, tc.body, body)
		})
	}
}

// FuzzParse checks parse against the rule said in another way: the turn without its words is one pair of tags,
// closed by the last token, with a word in between.
func FuzzParse(f *testing.F) {
	f.Add([]byte{12, 1, 10, 2})
	f.Add([]byte{5, 10, 6})
	f.Fuzz(func(t *testing.T, data []byte) {
		var sampled, marks []int32
		for _, b := range data {
			sampled = append(sampled, int32(b%16))
			if testTags.isTag(int32(b % 16)) {
				marks = append(marks, int32(b%16))
			}
		}
		kind, tool, body := testTags.parseTurn(sampled, false)
		want := invalid
		if n := len(sampled); n >= 3 && len(marks) == 2 && sampled[n-1] == marks[1] && sampled[n-2] != marks[0] {
			switch [2]int32(marks) {
			case [2]int32{1, 2}:
				want = searches
				require.Zero(t, tool)
			case [2]int32{7, 8}:
				want = searches
				require.Equal(t, 1, tool)
			case [2]int32{5, 6}:
				want = answers
			}
		}
		require.Equal(t, want, kind, "%v", sampled)
		if kind != invalid {
			require.NotEmpty(t, body)
			require.False(t, slices.ContainsFunc(body, testTags.isTag))
		}
	})
}

type wordless struct{}

func (wordless) Encode(string) []int32   { return nil }
func (wordless) Decode([]int32) string   { return "" }
func (wordless) ID(string) (int32, bool) { return 0, false }
func (wordless) Size() int               { return 0 }

func TestNewReportsEveryFault(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Invalid, cfg.MaxInvalid, cfg.Tool = "shrug", 0, ""
	_, err := New(cfg, wordless{})
	for _, want := range []string{
		`invalid: unknown "shrug" (valid: end, feedback)`, "max_invalid: 0", "tool: empty: name the tool", `no token "<search>"`, `no token "</answer>"`, `no token "<bos>"`,
	} {
		require.ErrorContains(t, err, want)
	}
}
