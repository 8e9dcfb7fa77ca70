package house

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// texts are the tree's own source, documentation and configuration files, by path.
func texts(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == ".git" || rel == "runs" || rel == "deploy/bin" || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".md", ".yml", ".yaml", ".conf", ".s", ".py", "":
		default:
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Size() > 1<<20 {
			return err // a binary that somebody built here
		}
		data, err := os.ReadFile(path)
		out[rel] = string(data)
		return err
	}))
	require.Greater(t, len(out), 200)
	return out
}

// What is committed works as it stands: nothing is put off, nothing sleeps, and no file has grown past its noun.
func TestNothingIsPutOffAndNothingSleeps(t *testing.T) {
	t.Parallel()
	// In two parts, so that this file does not name them either.
	putOff := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`)
	sleeps := "time.Sl" + "eep("
	shortRun := "testing.Sh" + "ort()"
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	for path, text := range texts(t) {
		if found := putOff.FindString(text); found != "" {
			t.Errorf("%s: %s: do it, or leave it out", path, found)
		}
		if filepath.Ext(path) != ".go" {
			continue
		}
		if strings.Contains(text, shortRun) {
			t.Errorf("%s asks for go test -short: which tests run is decided by internal/fulltest", path)
		}
		if strings.Contains(text, sleeps) {
			t.Errorf("%s sleeps: wait for what happens", path)
		}
		lines := strings.Count(text, "\n")
		if lines > 500 && !strings.HasSuffix(path, "_test.go") && !generated.MatchString(text) {
			t.Errorf("%s: %d lines: split it by meaning", path, lines)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	t.Parallel()
	said := map[string]bool{}
	for path, text := range texts(t) {
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.PackageClauseOnly|parser.ParseComments)
		require.NoError(t, err, path)
		if f.Name.Name == "main" {
			continue // its help says what it is
		}
		folder := filepath.ToSlash(filepath.Dir(path))
		said[folder] = said[folder] || f.Doc != nil
	}
	require.Greater(t, len(said), 30)
	for folder, ok := range said {
		if !ok {
			t.Errorf("%s: no file has a package comment", folder)
		}
	}
}
