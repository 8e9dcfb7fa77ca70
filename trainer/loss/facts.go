package loss

import "slices"

// Facts are what a trainer must know of a policy loss before it runs. The zero value is that of a loss that reads
// Batch.Advantages and a ratio to the policy of Options.Old, under every aggregation.
type Facts struct {
	// Reference says that the loss reads Batch.Reference: the trainer then runs a frozen reference policy.
	Reference bool
	// NoAdvantages says that the loss does not read Batch.Advantages: it imitates, or distils from the reference.
	NoAdvantages bool
	// NoOld says that the loss takes no ratio: it reads neither Batch.Proximal nor Batch.Behaviour but for the correction.
	NoOld bool
	// NoCorrection says that a foreign loss does not apply Options.Correction.
	NoCorrection bool
	// Modes are the aggregations (Options.Aggregation.Mode) under which the loss makes sense. Nil means all.
	Modes []string
	// Reads names the options, by key, that change the result, beside old, the aggregation and the correction; a run that
	// sets any other is told that nothing reads it.
	Reads []string
}

// FactsOf are the facts of the named loss, stock or foreign; of an unknown name the zero value.
func FactsOf(name string, foreign ...Foreign) Facts {
	b, err := find("loss", name, foreign)
	if err != nil {
		return Facts{}
	}
	return b.facts
}

// ReadsAdvantages says that the named loss depends on advantages: not to imitate, nor to distil from the reference.
func ReadsAdvantages(name string, foreign ...Foreign) bool {
	return !FactsOf(name, foreign...).NoAdvantages
}

// Reads names the options, by key, that the named loss reads under these, which are resolved; the others change nothing.
func Reads(name string, o Options, foreign ...Foreign) []string {
	f := FactsOf(name, foreign...)
	read := slices.Clone(f.Reads)
	if !f.NoCorrection {
		read = append(read, o.Correction.reads()...)
	}
	if !f.NoOld {
		read = append(read, "old")
	}
	if len(f.Modes) != 1 {
		read = append(read, "aggregation.mode")
	}
	if o.Aggregation.Mode == SeqMeanTokenSumNorm {
		read = append(read, "aggregation.length")
	}
	slices.Sort(read)
	return slices.Compact(read)
}

// reads names the keys of the correction that change the result under this one.
func (c Correction) reads() []string {
	read := []string{"correction.weight", "correction.rules", "correction.m2_threshold"}
	if c.enabled() {
		read = append(read, "correction.of", "correction.log_bound", "correction.normalize", "correction.drop_rejected")
	}
	if c.Weight != WeightNone {
		read = append(read, "correction.cap")
	}
	return read
}
