package rewards

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNormalizers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, squad, alphanumeric string }{
		{"The  Eiffel Tower!", "eiffel tower", "the eiffel tower"},
		{"a_the", "athe", "athe"},
		{"U.S.", "us", "us"},
		{"naïve an approach", "naïve approach", "nave an approach"},
		{"theater", "theater", "theater"},
		{"cat\x1cdog\u00a0end", "cat dog end", "cat dog end"},
		{"ΟΔΟΣ ΣΑΣ Σ", "οδος σας σ", ""},
		{"İ", "i\u0307", "i"},
		{"", "", ""},
	} {
		require.Equal(t, c.squad, SQuAD(c.in))
		require.Equal(t, c.alphanumeric, Alphanumeric(c.in))
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"Port-au-Prince": "port au prince", "port - au - prince .": "port au prince", "P.A.P.": "p a p", "Σ 7!": "σ 7", "-": "", "": "",
	} {
		require.Equal(t, want, Words(in), in)
	}
}

func TestValidSequence(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"<think>a</think><answer>b</answer>": "Valid sequence format",
		"<think>a</think> <search>q</search>\n<information>i</information><think></think><answer>b</answer>\n": "Valid sequence format",
		"<think>a</think><answer>b":             "Mismatch in answer tags: 1 opening vs 0 closing tags",
		"<answer>b</answer>":                    "Unexpected tag <answer> in state start",
		"<think>a</think>so <answer>b</answer>": "Unexpected content 'so' between tags (state: after_think)",
		"<think>a</think><answer>b</answer>bye": "Unexpected content in state end",
		"<think>a</think>":                      "Incomplete sequence, ended in state after_think",
	} {
		valid, reason := ValidSequence("<|im_start|>assistant\n" + content)
		require.Equal(t, want, reason, content)
		require.Equal(t, want == "Valid sequence format", valid)
	}
}

func TestSumWantsEveryComponentThatIsWeighed(t *testing.T) {
	t.Parallel()
	weights := map[string]float64{"qa": 0.8, "format": 0.1, "code_execution": 0.1}
	total, err := Sum(weights, map[string]float64{"qa": 1, "format": 0.5, "code_execution": 0, "length": 9})
	require.NoError(t, err)
	require.InDelta(t, 0.85, total, 1e-12)
	_, err = Sum(weights, map[string]float64{"qa": 1})
	require.ErrorContains(t, err, `reward component "code_execution"`)
}

func TestShape(t *testing.T) {
	t.Parallel()
	s := Shape{Bias: -0.5, Scale: 10, Clip: 3}
	require.Equal(t, 3.0, s.Apply(1))
	require.InDelta(t, -1, s.Apply(0.4), 1e-12)
	require.Equal(t, 7.0, DefaultShape().Apply(7))
}

func TestFaultsOfShapesAndLengths(t *testing.T) {
	t.Parallel()
	require.NoError(t, errors.Join(DefaultShape().Validate(), DefaultLengthTarget().Validate()))
	err := Shape{Bias: math.NaN(), Clip: -1}.Validate()
	require.ErrorContains(t, err, "bias: NaN: must be finite")
	require.ErrorContains(t, err, "scale: 0: must not be 0")
	require.ErrorContains(t, err, "clip: -1: must not be negative")
	err = LengthTarget{Tolerance: -1, TooShort: 2, TooLong: math.NaN()}.Validate()
	require.ErrorContains(t, err, "tolerance: -1: must not be negative")
	require.ErrorContains(t, err, "too_short: 2: must be between 0 and 1")
	require.ErrorContains(t, err, "too_long: NaN: must be between 0 and 1")
}

func TestLengthTarget(t *testing.T) {
	t.Parallel()
	l := DefaultLengthTarget()
	require.Equal(t, 1.0, l.Reward(strings.Repeat("w ", 45)))
	require.InDelta(t, 0.75, l.Reward(strings.Repeat("w ", 20)), 1e-12)
	require.InDelta(t, 0.5, l.Reward(strings.Repeat("w ", 500)), 1e-12)
	require.Zero(t, l.Reward(""))
}

// FuzzTranscripts holds every scorer to its range whatever the transcript.
func FuzzTranscripts(f *testing.F) {
	f.Add("<|im_start|>assistant\n<think>x</think><answer>Paris</answer><|im_end|>", "Paris")
	f.Add("<answer><answer></answer></answer><information>", "")
	f.Add("<think></think></think><tool_call>\xff\xfe", "\xff")
	f.Fuzz(func(t *testing.T, transcript, gold string) {
		for name, score := range Scorers() {
			r := score(transcript, []string{gold})
			require.GreaterOrEqual(t, r, -1.0, name)
			require.LessOrEqual(t, r, 1.0, name)
		}
	})
}
