package docs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	oneDefault   = regexp.MustCompile(`\bDefaults to ("[^"]*"|(?:[^.,:;]|[.:]\d)+)`)
	manyDefaults = regexp.MustCompile(`\bDefault to ((?:[^.:;]|\.\d)+)`)
	listSplit    = regexp.MustCompile(`, | and `)
)

// toldDefault is the default that a comment tells of a field, "" where it tells none.
func toldDefault(c comment) string {
	if m := oneDefault.FindStringSubmatch(c.text); m != nil {
		return m[1]
	}
	m := manyDefaults.FindStringSubmatch(c.text)
	if m == nil {
		return ""
	}
	// "Beta1, Beta2 and Epsilon are Adam's. Default to 0.9, 0.95 and 1e-8." names the fields in the order of the values.
	values := listSplit.Split(m[1], -1)
	var fields []string
	for _, word := range regexp.MustCompile(`\b[A-Z][A-Za-z0-9]*\b`).FindAllString(c.text, -1) {
		if !slices.Contains(fields, word) {
			fields = append(fields, word)
		}
	}
	if at := slices.Index(fields, c.field); at >= 0 && at < len(values) {
		return values[at]
	}
	return values[len(values)-1] // one value for all
}

// normal is a default in one form: 1 MiB and 1048576 are the same, and so are none and an empty list.
func normal(text string) string {
	text = strings.TrimSpace(strings.Trim(text, "`\""))
	if n, unit, ok := strings.Cut(text, " "); ok {
		if size, known := map[string]float64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "bytes": 1}[unit]; known {
			if x, err := strconv.ParseFloat(n, 64); err == nil {
				return fmt.Sprint(x * size)
			}
		}
	}
	if text == "none" || text == "[]" || text == "{}" {
		return ""
	}
	if x, err := strconv.ParseFloat(text, 64); err == nil {
		return fmt.Sprint(x)
	}
	if d, err := time.ParseDuration(text); err == nil && d != 0 {
		return d.String()
	} else if err == nil {
		return "0"
	}
	return text
}

// Review 2 of the code: four defaults were told otherwise than they are. What a comment tells of a key's default is the default in effect.
func TestTheDefaultThatACommentTellsIsTheOneInEffect(t *testing.T) {
	t.Parallel()
	w, err := writeReference("../..")
	require.NoError(t, err)
	told := 0
	for _, key := range slices.Sorted(maps.Keys(w.told)) {
		text := toldDefault(w.told[key])
		if words := strings.Fields(text); len(words) == 0 || words[0] == "the" || words[0] == "a" || words[0] == "one" || strings.HasPrefix(w.formatDefault(key), "`[") {
			continue // in words, or a list
		}
		told++
		if have := w.formatDefault(key); normal(have) != normal(text) {
			t.Errorf("%s: the comment tells %q, and the default in effect is %s", key, text, have)
		}
	}
	require.Greater(t, told, 100)
}
