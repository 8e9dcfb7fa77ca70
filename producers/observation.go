package producers

import "github.com/weir-rl/weir/schemas"

// EncodeObservation is an observation as it crosses the wire.
func EncodeObservation(o Observation) *schemas.ToolObservation {
	out := &schemas.ToolObservation{
		Text: o.Text, Done: o.Done, Outputs: o.Outputs, Errors: o.Errors, Notes: o.Notes, Metrics: o.Metrics,
	}
	if o.Reward != nil {
		out.Reward, out.Rewarded = *o.Reward, true
	}
	if o.Answer != nil {
		out.Answer, out.Answered = *o.Answer, true
	}
	return out
}

// DecodeObservation is an observation that came over the wire.
func DecodeObservation(o *schemas.ToolObservation) Observation {
	out := Observation{Text: o.Text, Done: o.Done, Outputs: o.Outputs, Errors: o.Errors, Notes: o.Notes, Metrics: o.Metrics}
	if o.Rewarded {
		out.Reward = &o.Reward
	}
	if o.Answered {
		out.Answer = &o.Answer
	}
	return out
}
