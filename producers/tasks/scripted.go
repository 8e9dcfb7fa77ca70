package tasks

import "fmt"

// scriptedTries is how many demonstrations an agent has to write before it may write all: each kind that a script has is among so many.
const scriptedTries = 64

// Scripted are demonstrations that a script gives, as an agent writes them. Safe for concurrent use where the script is.
type Scripted struct {
	script func(i uint64) Demonstration
	by     Demonstrator
}

// NewScripted makes the demonstrations of a script, whose i-th is always the same. They are empty until an agent writes them: see Rewrite.
func NewScripted(script func(i uint64) Demonstration) *Scripted { return &Scripted{script: script} }

// Demonstration returns the tokens of the i-th demonstration and a mask with 1 where the demonstrator wrote the token; nothing before an
// agent writes them.
func (s *Scripted) Demonstration(i uint64) (tokens []int32, mask []uint8) {
	if s.by == nil {
		return nil, nil
	}
	tokens, mask, err := s.by.Demonstrate(s.script(i))
	if err != nil {
		return nil, nil // Rewrite has tried each kind
	}
	return tokens, mask
}

// Rewrite has an agent write the demonstrations. It fails where the agent cannot write each of the first 64.
func (s *Scripted) Rewrite(by Demonstrator) (Demonstrations, error) {
	for i := range uint64(scriptedTries) {
		if _, _, err := by.Demonstrate(s.script(i)); err != nil {
			return nil, fmt.Errorf("demonstration %d: %w", i, err)
		}
	}
	return &Scripted{script: s.script, by: by}, nil
}
