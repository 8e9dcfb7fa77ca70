package loss

// Facts are what a trainer must know of a policy loss before it runs. The zero value is that of a loss that reads
// Batch.Advantages and a ratio to the policy of its key old.
type Facts struct {
	// Reference says that the loss reads Batch.Reference: the trainer then runs a frozen reference policy.
	Reference bool
	// NoAdvantages says that the loss does not read Batch.Advantages: it imitates, or distils from the reference.
	NoAdvantages bool
	// NoOld says that the loss takes no ratio: it reads neither Batch.Proximal nor Batch.Behaviour but for the correction.
	NoOld bool
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
