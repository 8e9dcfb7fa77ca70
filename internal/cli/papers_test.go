package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/compare"
	"github.com/weir-rl/weir/internal/fulltest"
)

// papersFolder has a folder for each comparison of a paper's claims, and a page with all claims.
var papersFolder = filepath.Join(root, "examples", "papers")

// The page of each comparison has the table that weir compare printed of its file: every arm with all seeds for testing, every claim with a
// verdict, and the picture. The summary has the claims of all pages, in order; WEIR_UPDATE=papers writes them there.
func TestPagesOfPapersHaveTheirTables(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(papersFolder, "*", "compare.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var claims strings.Builder
	counts := map[string]int{}
	for _, path := range files {
		file, err := compare.ReadFile(path)
		require.NoError(t, err)
		folder := filepath.Dir(path)
		name := filepath.Base(folder)
		require.Equal(t, name, file.Name)
		page := string(read(t, folder, "README.md"))
		require.Contains(t, page, "weir compare examples/papers/"+name+"/compare.yaml")
		require.Contains(t, page, fmt.Sprintf("**%s**, seeds for testing %s.", name, strings.Trim(fmt.Sprint(file.Seeds.Testing), "[]")))
		require.Contains(t, page, "P(area > "+file.Baseline+")")
		require.GreaterOrEqual(t, len(file.Seeds.Testing), 3)
		var arms []string
		for _, row := range regexp.MustCompile(`(?m)^\| (\S+) \| (\d+)/(\d+) \|`).FindAllStringSubmatch(page, -1) {
			arms = append(arms, row[1])
			require.Equal(t, row[2], row[3], "%s: every run is finished", path)
			require.Equal(t, fmt.Sprint(len(file.Seeds.Testing)), row[3], path)
		}
		var want []string
		for _, arm := range file.Arms {
			want = append(want, arm.Name)
		}
		require.Equal(t, want, arms, path)
		var judged, claimed []string
		for _, row := range regexp.MustCompile(`(?m)^\| (.+) \| (held|not held|undecided) \| (margin .+) \|$`).FindAllStringSubmatch(page, -1) {
			judged = append(judged, row[1])
			counts[row[2]]++
			fmt.Fprintf(&claims, "| [%s](%s) | %s | %s | %s |\n", name, name, row[1], row[2], row[3])
		}
		for _, claim := range file.Claims {
			claimed = append(claimed, claim.Text)
		}
		require.NotEmpty(t, claimed, path)
		require.Equal(t, claimed, judged, path)
		require.Contains(t, page, "](curves.svg)")
		require.Contains(t, string(read(t, folder, "curves.svg")), "<svg")
	}
	claims.WriteString(fmt.Sprintf("\n%d held, %d not held, %d undecided.\n", counts[compare.Held], counts[compare.NotHeld], counts[compare.Undecided]))
	checkSummary(t, claims.String())
}

// checkSummary compares the table of the summary, from its heading to the line of counts, with the table of the pages.
func checkSummary(t *testing.T, want string) {
	t.Helper()
	path := filepath.Join(papersFolder, "README.md")
	page := string(read(t, path))
	const heading = "| comparison | claim | verdict | margin |\n|---|---|---|---|\n"
	before, rest, ok := strings.Cut(page, heading)
	require.True(t, ok, "%s has no table of claims", path)
	const end = " undecided.\n"
	i := strings.Index(rest, end)
	require.GreaterOrEqual(t, i, 0, "%s has no line of counts", path)
	if os.Getenv("WEIR_UPDATE") == "papers" {
		require.NoError(t, os.WriteFile(path, []byte(before+heading+want+rest[i+len(end):]), 0o644))
		return
	}
	require.Equal(t, want, rest[:i+len(end)], "%s: WEIR_UPDATE=papers go test ./internal/cli -run TestPagesOfPapers", path)
}

// Each file's arms have settings that load and check, in every run of go test: the folder is planned by the command that trains it.
func TestFilesOfPapersAreValid(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(papersFolder, "*", "compare.yaml"))
	require.NoError(t, err)
	dir := t.TempDir()
	out := weir(t, "compare", papersFolder, "--report", "--seeds", "all", "--dir", dir)
	for _, path := range files {
		name := filepath.Base(filepath.Dir(path))
		require.FileExists(t, filepath.Join(dir, name, "report.md"))
		require.Contains(t, out, fmt.Sprintf("[%s](%s)", name, name))
	}
}

// Every arm of each comparison trains and is tested, with a policy that is too small to learn. Without WEIR_TEST=full two arms of the first
// file alone.
func TestArmsOfPapersTrain(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(papersFolder, "*", "compare.yaml"))
	require.NoError(t, err)
	arms := 100
	if !fulltest.Enabled() {
		files, arms = files[:1], 2
	}
	dir := t.TempDir()
	args := []string{"compare", "--dir", filepath.Join(dir, "runs"), "--parallel", "2"}
	for _, path := range files {
		small := filepath.Join(dir, filepath.Base(filepath.Dir(path))+".yaml")
		require.NoError(t, os.WriteFile(small, []byte(shrinkComparison(t, path, arms)), 0o644))
		args = append(args, small)
	}
	out := weir(t, args...)
	require.NotContains(t, out, "failed")
	require.Regexp(t, `(?m)^\S+ +1/1 `, out)
	require.NotRegexp(t, `(?m)^\S+ +0/1 `, out)
}

// shrinkComparison is the text of a file with its first arms, one seed, two steps and a policy that is too small to learn.
func shrinkComparison(t *testing.T, path string, most int) string {
	t.Helper()
	file, err := compare.ReadFile(path)
	require.NoError(t, err)
	maps.Copy(file.Settings, map[string]string{
		"model.layers": "1", "model.hidden": "16", "model.intermediate": "16", "model.heads": "2", "model.kv_heads": "2",
		"trainer.steps": "2", "trainer.batch_groups": "2", "trainer.group_size": "4", "trainer.cold_start.steps": "5",
		"trainer.selection.drop_zero_variance": "false",
		"eval.every":                           "1", "eval.questions": "4", "eval.test_questions": "4", "eval.show": "0",
	})
	arms, base := map[string]any{}, []string{}
	for _, arm := range file.Arms[:min(most, len(file.Arms))] {
		arms[arm.Name] = arm.Settings
	}
	for _, name := range file.Base {
		whole, err := filepath.Abs(name)
		require.NoError(t, err)
		base = append(base, whole)
	}
	text, err := json.Marshal(map[string]any{ // JSON is YAML
		"name": file.Name, "base": base, "settings": file.Settings, "arms": arms,
		"seeds": map[string]any{"testing": []int{1}}, "deterministic": file.Deterministic,
	})
	require.NoError(t, err)
	return string(text)
}
