package assembly

import (
	"fmt"
	"math"

	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
)

// FewQuestions has a line for each held-out split that has questions and too few of them for a score to say much.
func (c *Course) FewQuestions() []string {
	var lines []string
	for _, split := range []tasks.Split{tasks.Validation, tasks.Test} {
		n := 0
		for _, t := range c.Tasks {
			n += len(t.Data.Questions[split])
		}
		if n > 0 && n < producers.FewQuestions {
			lines = append(lines, fmt.Sprintf("the %s split has %s: the standard error of a score is up to ± %.2f; give it %d questions or more",
				split, counted(n), math.Sqrt(0.25/float64(n)), producers.FewQuestions))
		}
	}
	return lines
}

// counted is a number of questions in words.
func counted(n int) string {
	if n == 1 {
		return "1 question"
	}
	return fmt.Sprintf("%d questions", n)
}
