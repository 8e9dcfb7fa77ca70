package producers

import (
	"errors"
	"strings"

	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
)

// The parts of an episode that a [PartError] names.
const (
	PartAgent  = "agent"
	PartTool   = "tool"
	PartReward = "reward"
	PartEngine = "engine"
)

// PartError is the failure of a part of an episode. The episode gives no trajectory.
type PartError struct {
	// Part is PartAgent, PartTool, PartReward or PartEngine.
	Part string
	// Name is the part's name in the configuration; "" where it has none.
	Name string
	Err  error
}

// Error names the part and its failure. The word of ErrUnavailable is left out: it tells the producer to try again, and people nothing.
func (p *PartError) Error() string {
	text := p.Err.Error()
	if errors.Is(p.Err, ErrUnavailable) {
		text = strings.Replace(text, ErrUnavailable.Error()+": ", "", 1)
	}
	if p.Name == "" {
		return p.Part + ": " + text
	}
	return p.Part + " " + p.Name + ": " + text
}

func (p *PartError) Unwrap() error { return p.Err }

// blamePart returns an error as the failure of a part. An error that names its part already stays as it is.
func blamePart(part, name string, err error) error {
	if _, named := errors.AsType[*PartError](err); named || err == nil {
		return err
	}
	return &PartError{part, name, err}
}

// The causes of a failed episode, beside the parts that a [PartError] names.
const (
	causeNothingSampled = "nothing_sampled"
	causePrompt         = "prompt"
	causeTooLarge       = "too_large"
	causeMalformed      = "malformed"
	causePanic          = "panic"
	causeUnknownTask    = "unknown_task"
	causeOther          = "other"
)

// failureCause returns the cause of an episode's failure as a label.
func failureCause(err error) string {
	part, named := errors.AsType[*PartError](err)
	switch {
	case errors.Is(err, errUnknownTask):
		return causeUnknownTask
	case findPanic(err) != nil:
		return causePanic
	case errors.Is(err, errNothingSampled):
		return causeNothingSampled
	case errors.Is(err, ErrPrompt):
		return causePrompt
	case errors.Is(err, generate.ErrFailed):
		return PartEngine
	case named:
		return part.Part
	case errors.Is(err, streams.ErrTooLarge):
		return causeTooLarge
	case errors.Is(err, schemas.ErrInvalid):
		return causeMalformed
	}
	return causeOther
}
