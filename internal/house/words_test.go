package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// The bounds of the words in the tree, tests and generated files left out. Each is a ratchet: it may be tightened, and not loosened. The
// goal is a mean of 11 letters, 30 % of one word and 6 pronouns.
const (
	meanNameLetters     = 10.7
	oneWordPercent      = 3.0
	pronounsPerThousand = 3.0
	commentWordsAtLeast = 100_000
	namesAtLeast        = 3_000
)

// wordCounts are the counts of one folder, or of the tree.
type wordCounts struct {
	names, letters, oneWord int // of unexported functions and methods
	words, pronouns         int // of comments
}

func (c *wordCounts) addFile(f *ast.File) {
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Name.IsExported() || fn.Name.Name == "main" || fn.Name.Name == "init" || fn.Name.Name == "_" {
			continue
		}
		c.names, c.letters = c.names+1, c.letters+len(fn.Name.Name)
		if strings.IndexFunc(fn.Name.Name, unicode.IsUpper) < 0 {
			c.oneWord++
		}
	}
	for _, comment := range f.Comments {
		text := comment.Text()
		c.words += len(word.FindAllString(text, -1))
		c.pronouns += len(pronoun.FindAllString(text, -1))
	}
}

func (c *wordCounts) add(o wordCounts) {
	c.names, c.letters, c.oneWord = c.names+o.names, c.letters+o.letters, c.oneWord+o.oneWord
	c.words, c.pronouns = c.words+o.words, c.pronouns+o.pronouns
}

func (c *wordCounts) mean() float64 { return float64(c.letters) / float64(max(c.names, 1)) }
func (c *wordCounts) oneWordShare() float64 {
	return 100 * float64(c.oneWord) / float64(max(c.names, 1))
}

func (c *wordCounts) pronounRate() float64 {
	return 1000 * float64(c.pronouns) / float64(max(c.words, 1))
}

var (
	word    = regexp.MustCompile(`[A-Za-z']+`)
	pronoun = regexp.MustCompile(`(?i)\b(those|what|one|who)\b`)
)

// An unexported function has a verb and a noun, and a comment names the thing again rather than a pronoun.
func TestNamesAndCommentsKeepTheirWords(t *testing.T) {
	t.Parallel()
	folders, tree := map[string]*wordCounts{}, wordCounts{}
	for name, text := range texts(t) {
		if filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		if ast.IsGenerated(f) {
			continue
		}
		if folders[path.Dir(name)] == nil {
			folders[path.Dir(name)] = &wordCounts{}
		}
		folders[path.Dir(name)].addFile(f)
	}
	for _, c := range folders {
		tree.add(*c)
	}
	require.Greater(t, tree.words, commentWordsAtLeast)
	require.Greater(t, tree.names, namesAtLeast)
	t.Logf("mean %.2f letters, %.1f %% of one word, %.1f pronouns in 1000 words", tree.mean(), tree.oneWordShare(), tree.pronounRate())
	if tree.mean() >= meanNameLetters && tree.oneWordShare() <= oneWordPercent && tree.pronounRate() <= pronounsPerThousand {
		return
	}
	for folder, c := range folders {
		t.Logf("%s: mean %.1f letters, %.0f %% of one word, %.1f pronouns", folder, c.mean(), c.oneWordShare(), c.pronounRate())
	}
	require.GreaterOrEqual(t, tree.mean(), meanNameLetters, "give unexported functions a verb and a noun")
	require.LessOrEqual(t, tree.oneWordShare(), oneWordPercent, "give unexported functions a verb and a noun")
	require.LessOrEqual(t, tree.pronounRate(), pronounsPerThousand, "name the thing in comments, in place of those, what, one and who")
}
