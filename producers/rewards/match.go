package rewards

import "strings"

// ExactMatch is 1 if the answer equals a gold answer after normalisation, else 0.
func ExactMatch(normalize Normalizer, answer string, golds []string) float64 {
	a := normalize(answer)
	for _, gold := range golds {
		if normalize(gold) == a {
			return 1
		}
	}
	return 0
}

// SubstringMatch is 1 if a gold answer stands within the answer after normalisation, else 0. A gold answer that
// normalises to nothing stands within every answer.
func SubstringMatch(normalize Normalizer, answer string, golds []string) float64 {
	a := normalize(answer)
	for _, gold := range golds {
		if strings.Contains(a, normalize(gold)) {
			return 1
		}
	}
	return 0
}

// F1 is the best, over the gold answers, of the harmonic mean of precision and recall in words. An answer or gold
// answer without words scores 0, or both without words 1 when emptyMatches is set (L0 in training).
func F1(normalize Normalizer, answer string, golds []string, emptyMatches bool) float64 {
	best := 0.0
	for _, gold := range golds {
		best = max(best, tokenF1(splitWords(normalize(answer)), splitWords(normalize(gold)), emptyMatches))
	}
	return best
}

// tokenF1 returns the F1 score of the words of an answer against the gold words.
func tokenF1(answer, gold []string, emptyMatches bool) float64 {
	if len(answer) == 0 && len(gold) == 0 && emptyMatches {
		return 1
	}
	counts := map[string]int{}
	for _, w := range gold {
		counts[w]++
	}
	common := 0.0
	for _, w := range answer {
		if counts[w] > 0 {
			counts[w]--
			common++
		}
	}
	if common == 0 {
		return 0
	}
	precision, recall := common/float64(len(answer)), common/float64(len(gold))
	return 2 * precision * recall / (precision + recall)
}
