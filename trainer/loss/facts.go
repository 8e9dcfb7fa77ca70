package loss

// Facts are the facts that a trainer needs about a policy loss before it runs. The zero value describes a loss that reads Batch.Advantages
// and a ratio to the policy of its key old.
type Facts struct {
	// Reference is set if the loss reads Batch.Reference: the trainer then runs a frozen reference policy.
	Reference bool
	// NoAdvantages is set if the loss does not read Batch.Advantages: it imitates, or distils from the reference.
	NoAdvantages bool
	// NoOld is set if the loss takes no ratio: only the correction reads Batch.Proximal or Batch.Behaviour.
	NoOld bool
}

// FactsOf are the facts of the named loss, stock or foreign; of an unknown name the zero value.
func FactsOf(name string, foreign ...Foreign) Facts {
	b, err := findBuilder("loss", name, foreign)
	if err != nil {
		return Facts{}
	}
	return b.facts
}

// ReadsAdvantages reports whether the named loss depends on advantages: it neither imitates nor distils from the reference.
func ReadsAdvantages(name string, foreign ...Foreign) bool {
	return !FactsOf(name, foreign...).NoAdvantages
}
