package producers

// Effects says what a call of a tool may change, and so what becomes of the call where another producer goes on with the episode.
type Effects int

const (
	// EffectsOutside is a tool without a session that says nothing: a call may change what outlives the episode. A call whose answer is
	// recorded is not made again, and a call of which nobody can say whether it was carried out ends the episode.
	EffectsOutside Effects = iota
	// EffectsNone is a tool that changes nothing, such as a search: a call may be made again.
	EffectsNone
	// EffectsSession is a tool that changes nothing but its own session, in a way that the calls and the seed determine: its calls are made
	// again, in order, in a new session.
	EffectsSession
	// EffectsLost is a tool with a session that says nothing: nobody can bring the session back, and an episode that has called the tool ends
	// with its producer.
	EffectsLost
)

// Effective is a Tool that says what its calls may change.
type Effective interface {
	Tool
	Effects() Effects
}

// EffectsOf are the effects of a tool's calls.
func EffectsOf(tool Tool) Effects {
	if says, ok := tool.(Effective); ok {
		return says.Effects()
	}
	if _, keeps := tool.(SessionTool); keeps {
		return EffectsLost
	}
	return EffectsOutside
}

// isFenced is whether a call of the tool must be in the journal before it is made.
func (e Effects) isFenced() bool { return e == EffectsOutside || e == EffectsLost }
