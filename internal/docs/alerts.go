package docs

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
)

// alertRules is the file of the alerts, below the module's folder.
const alertRules = "deploy/prometheus/alerts.yml"

// labelPattern matches where a rule's text names a label of its series.
var labelPattern = regexp.MustCompile(`\{\{ \$(?:labels\.)?(\w+)[^}]*\}\}`)

// writeAlerts writes a section of the alerts that Weir brings, with the advice that each carries itself.
func writeAlerts(b *strings.Builder, root string) error {
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(alertRules)))
	if err != nil {
		return err
	}
	file, err := yaml.Parser().Unmarshal(data)
	if err != nil {
		return fmt.Errorf("read %s: %w", alertRules, err)
	}
	var rows [][]string
	groups, _ := file["groups"].([]any)
	for _, g := range groups {
		group, _ := g.(map[string]any)
		rules, _ := group["rules"].([]any)
		for _, r := range rules {
			rule, _ := r.(map[string]any)
			labels, _ := rule["labels"].(map[string]any)
			notes, _ := rule["annotations"].(map[string]any)
			text, _ := notes["summary"].(string)
			if more, _ := notes["description"].(string); more != "" {
				if !strings.HasSuffix(text, "?") {
					text += "."
				}
				text += " " + more
			}
			after, _ := rule["for"].(string)
			rows = append(rows, []string{
				fmt.Sprintf("`%v`", rule["alert"]), fmt.Sprint(labels["severity"]), cmp.Or(after, "at once"), labelPattern.ReplaceAllString(text, "*$1*"),
			})
		}
	}
	if len(rows) == 0 {
		return fmt.Errorf("%s holds no alert", alertRules)
	}
	b.WriteString("## Alerts\n\nThose of `" + alertRules + "`, which `promtool` tries. *value* is that of the rule's expression, other words so set are labels.\n\n")
	writeTable(b, []string{"alert", "severity", "after", "what it says"}, rows)
	return nil
}
