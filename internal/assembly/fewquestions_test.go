package assembly

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
)

// Newcomer's friction N8: a held-out split of few questions is named before the run, with what its scores are worth.
func TestASplitOfFewQuestionsIsNamed(t *testing.T) {
	t.Parallel()
	of := func(validation, test int) *Course {
		data := &tasks.Dataset{Questions: map[tasks.Split][]schemas.Prompt{
			tasks.Validation: make([]schemas.Prompt, validation), tasks.Test: make([]schemas.Prompt, test),
		}}
		return &Course{Tasks: []*Task{{Setup: &tasks.Setup{Data: data}}}}
	}
	require.Equal(t, []string{
		"the validation split has 8 questions: the standard error of a score is up to ± 0.18; give it 30 questions or more",
		"the test split has 1 question: the standard error of a score is up to ± 0.50; give it 30 questions or more",
	}, of(8, 1).FewQuestions())
	require.Empty(t, of(30, 0).FewQuestions(), "a split without questions has no score")
}
