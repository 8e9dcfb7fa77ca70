package compare

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ClaimsFile is the table of the claims of several comparisons, in the folder that has their folders.
const ClaimsFile = "claims.md"

// SummarizeClaims is a Markdown table of the claims of several comparisons with their verdicts. The first column links the folder that is
// named like the comparison.
func SummarizeClaims(reports []*Report) string {
	var b strings.Builder
	counts := map[string]int{}
	b.WriteString("| comparison | claim | verdict | margin |\n|---|---|---|---|\n")
	for _, r := range reports {
		for _, j := range r.Claims {
			counts[j.Verdict]++
			b.WriteString(markdownRow([]string{fmt.Sprintf("[%s](%s)", r.Name, r.Name), j.Claim, j.Verdict, j.explainMargin()}))
		}
	}
	fmt.Fprintf(&b, "\n%d held, %d not held, %d undecided.\n", counts[Held], counts[NotHeld], counts[Undecided])
	return b.String()
}

// WriteClaims writes the table of [SummarizeClaims] into a folder, which it makes.
func WriteClaims(dir string, reports []*Report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the claims: %w", err)
	}
	return writeFile(filepath.Join(dir, ClaimsFile), []byte(SummarizeClaims(reports)))
}
