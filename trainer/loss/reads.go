package loss

import "slices"

// ReadsAdvantages says that the named loss depends on advantages: not to imitate, nor to distil from the reference.
func ReadsAdvantages(name string) bool { return !builders()[name].noAdvantages }

// Reads names the options, by key, that the named loss reads under these, which are resolved; the others change nothing.
func Reads(name string, o Options) []string {
	b := builders()[name]
	read := []string{"correction.weight", "correction.rules", "correction.m2_threshold", "keep_non_finite"}
	if len(b.modes) != 1 {
		read = append(read, "aggregation.mode")
	}
	if !b.noOld {
		read = append(read, "old")
	}
	if o.Correction.enabled() {
		read = append(read, "correction.of", "correction.log_bound", "correction.normalize", "correction.mean_epsilon",
			"correction.drop_rejected")
	}
	if o.Correction.Weight != WeightNone {
		read = append(read, "correction.cap")
	}
	switch o.Aggregation.Mode {
	case TokenMean:
		read = append(read, "aggregation.token_epsilon", "aggregation.empty_nan")
	case SeqMeanTokenSum:
		read = append(read, "aggregation.count_empty_rows", "aggregation.empty_nan")
	case SeqMeanTokenMean:
		read = append(read, "aggregation.count_empty_rows", "aggregation.empty_nan", "aggregation.length_epsilon")
	case SeqMeanTokenSumNorm:
		read = append(read, "aggregation.length")
	}
	read = append(read, b.reads...)
	if o.Level == LevelSequence && slices.Contains(read, "level") {
		read = append(read, "sum_all_advantages")
	}
	slices.Sort(read)
	return slices.Compact(read)
}
