package report

import (
	"fmt"
	"math"

	"github.com/weir-rl/weir/trainer/metrics"
)

// VerdictKind is a verdict in a word.
type VerdictKind string

// The verdicts.
const (
	VerdictStuck      VerdictKind = "stuck"       // nothing is trained on, and something fails or is gone
	VerdictSpoiled    VerdictKind = "spoiled"     // an alarm makes what is learnt wrong
	VerdictEarly      VerdictKind = "early"       // too few steps to tell
	VerdictLearning   VerdictKind = "learning"    // the held-out score rises, or the reward where no score contradicts
	VerdictSolved     VerdictKind = "solved"      // the held-out score was high at the start and still is
	VerdictRewardOnly VerdictKind = "reward_only" // the reward rises and the held-out score does not
	VerdictFalling    VerdictKind = "falling"     // reward or score fell, or fell back
	VerdictFlat       VerdictKind = "flat"        // neither moves beyond its noise
)

// Verdict is how a run goes, in one sentence.
type Verdict struct {
	Kind VerdictKind `json:"kind"`
	Text string      `json:"text"`
}

// Course is what a verdict is about.
type Course struct {
	// Ended reports that all steps are done, Stopped that the run takes no steps though some are left.
	Ended, Stopped bool
	// Quiet says why no step is done, or that none has been for long; "" where steps come.
	Quiet string
	// Spoiled is the observation that makes what is learnt wrong; "" where nothing does.
	Spoiled string
	// Steps and Scores are all records of their type, oldest first, Tested is the final score on the test split; nil before it.
	Steps, Scores []Record
	Tested        *Record
	// Failures are the tasks whose rollouts fail now.
	Failures []Failure
}

const (
	// stuckFailures is how many rollouts fail before a run without steps is called stuck.
	stuckFailures = 20
	// leastSteps is how many steps a trend of the reward needs: two windows of leastWindow.
	leastSteps              = 2 * leastWindow
	leastWindow, mostWindow = 4, 16
	// rewardSigmas and scoreSigmas are how many standard errors a difference needs to count.
	rewardSigmas, scoreSigmas = 3, 2
	// shortSigmas takes the place of both in a run of fewer than shortSteps steps: its windows are small, and their own spread says little
	// of their noise.
	shortSigmas, shortSteps = 4, 32
	// leastSpread is the share of the reward's own standard deviation that a difference needs besides.
	leastSpread = 0.05
	// highScore is a held-out score with nothing left to learn; fewQuestions are too few for a score to contradict a reward.
	highScore    = 0.95
	fewQuestions = 30
)

// Judge judges a run. The rules hold in this order:
//
//   - Stuck: 20 rollouts or more failed and no step is done, or none has been for long; or no step is done for another reason.
//   - Spoiled: sampler and trainer disagree, or a gradient is not finite.
//   - Early: fewer than 8 steps, and no significant difference of held-out scores.
//   - Falling: the held-out score fell; or the reward fell and no score rose; or the reward gave back a third of its rise.
//   - Learning: the held-out score rose; or the reward rose, and the score is high, of fewer than 30 questions, or not measured twice.
//   - Reward only: the reward rose and the score did not.
//   - Solved: neither moved and the score is at least 0.95.
//   - Flat: neither moved.
//
// A reward moves when the mean of the last fifth of the steps (4 to 16 of them) is 3 standard errors from that of the first, and by at
// least a twentieth of the standard deviation within a batch. A score moves when its last value is 2 standard errors from its first, by
// the binomial noise of both. In a run of fewer than 32 steps both need 4 standard errors.
func Judge(c Course) Verdict {
	if text := stuckText(c); text != "" {
		return Verdict{VerdictStuck, "Stuck: " + text}
	}
	if c.Spoiled != "" {
		return Verdict{VerdictSpoiled, "Spoiled: " + c.Spoiled}
	}
	reward, score := rewardTrend(c.Steps), scoreTrend(c.Scores, sigmasOf(scoreSigmas, len(c.Steps)))
	kind := judgeTrends(reward, score)
	return Verdict{kind, headOf(kind, c.Ended) + ": " + describeTrends(kind, reward, score) + describeEnd(c)}
}

// stuckText says why nothing is trained on; "" where something is.
func stuckText(c Course) string {
	failed, worst := 0, Failure{}
	for _, f := range c.Failures {
		failed += f.Failed
		if f.Failed > worst.Failed {
			worst = f
		}
	}
	standing := len(c.Steps) == 0 || c.Quiet != ""
	switch {
	case c.Ended:
		return ""
	case standing && failed >= stuckFailures:
		return fmt.Sprintf("%d rollouts failed: %s", failed, Plain(worst.Last))
	case c.Quiet != "":
		return c.Quiet
	}
	return ""
}

// trend is how a number moved. n counts its points.
type trend struct {
	n           int
	first, last float64
	// up and down report that it moved by more than its noise; back that it gave back a third of a rise from first to best.
	up, down, back bool
	best           float64
	bestStep       int64
	steps          int64
	questions      float64
}

// rewardTrend is how the batch's reward moved over the steps.
func rewardTrend(steps []Record) trend {
	n := len(steps)
	t := trend{n: n}
	if n == 0 {
		return t
	}
	t.steps = steps[n-1].Step
	k := min(mostWindow, max(leastWindow, n/5))
	k = min(k, n)
	first, firstError := rewardWindow(steps[:k])
	last, lastError := rewardWindow(steps[n-k:])
	t.first, t.last, t.best = first, last, last
	if n < leastSteps {
		return t
	}
	spread := 0.0
	for _, r := range steps {
		spread += metrics.RewardStd.In(r.Metrics) / float64(n)
	}
	sigmas := sigmasOf(rewardSigmas, n)
	moved := func(by, noise float64) bool { return by > sigmas*noise && by >= leastSpread*spread && by > 0 }
	noise := math.Hypot(firstError, lastError)
	t.up, t.down = moved(last-first, noise), moved(first-last, noise)
	bestError := lastError
	for at := 0; at+k <= n; at++ {
		if mean, e := rewardWindow(steps[at : at+k]); mean > t.best {
			t.best, t.bestStep, bestError = mean, steps[at+k-1].Step, e
		}
	}
	t.back = t.best-last > (t.best-first)/3 && moved(t.best-first, math.Hypot(firstError, bestError)) &&
		moved(t.best-last, math.Hypot(bestError, lastError))
	return t
}

// rewardWindow is the mean reward of steps and its standard error.
func rewardWindow(steps []Record) (mean, e float64) {
	n := float64(len(steps))
	for _, r := range steps {
		mean += metrics.RewardMean.In(r.Metrics) / n
	}
	for _, r := range steps {
		d := metrics.RewardMean.In(r.Metrics) - mean
		e += d * d
	}
	return mean, math.Sqrt(e / max(1, n-1) / n)
}

// sigmasOf is how many standard errors a difference needs after so many steps.
func sigmasOf(usual float64, steps int) float64 {
	if steps < shortSteps {
		return shortSigmas
	}
	return usual
}

// scoreTrend is how the held-out score moved from the first scored version to the last, by so many standard errors.
func scoreTrend(scores []Record, sigmas float64) trend {
	n := len(scores)
	if n == 0 {
		return trend{}
	}
	t := trend{
		n: n, first: metrics.EvalExactMatch.In(scores[0].Metrics), last: metrics.EvalExactMatch.In(scores[n-1].Metrics),
		questions: metrics.EvalQuestions.In(scores[n-1].Metrics),
	}
	if n < 2 || t.questions == 0 {
		return t
	}
	noise := sigmas * math.Hypot(scoreError(t.first, t.questions), scoreError(t.last, t.questions))
	t.up, t.down = t.last-t.first > noise, t.first-t.last > noise
	return t
}

// scoreError is the standard error of a share of n questions; two made-up questions, one right and one wrong, keep it above 0.
func scoreError(share, n float64) float64 {
	p := (share*n + 1) / (n + 2)
	return math.Sqrt(p * (1 - p) / n)
}

// judgeTrends is the verdict on a run that takes steps, or has taken them.
func judgeTrends(reward, score trend) VerdictKind {
	contradicts := score.n >= 2 && score.questions >= fewQuestions && score.last < highScore
	switch {
	case score.down, reward.back && !score.up, reward.down && !score.up:
		return VerdictFalling
	case score.up:
		return VerdictLearning
	case reward.n < leastSteps:
		return VerdictEarly
	case reward.up && contradicts:
		return VerdictRewardOnly
	case reward.up:
		return VerdictLearning
	case score.n >= 2 && score.last >= highScore:
		return VerdictSolved
	}
	return VerdictFlat
}

func headOf(kind VerdictKind, ended bool) string {
	switch kind {
	case VerdictLearning:
		if ended {
			return "Learned"
		}
		return "Learning"
	case VerdictSolved:
		return "Solved from the start"
	case VerdictRewardOnly:
		return "Only the reward rises"
	case VerdictFalling:
		return "Getting worse"
	case VerdictFlat:
		if ended {
			return "Did not learn"
		}
		return "Not learning"
	}
	return "Too early to tell"
}

// describeTrends is how reward and score moved.
func describeTrends(kind VerdictKind, reward, score trend) string {
	text := "no step is done yet"
	switch {
	case reward.n >= leastSteps && reward.back:
		text = fmt.Sprintf("reward %s -> %s at step %d -> %s in %d steps", decimal(reward.first), decimal(reward.best), reward.bestStep, decimal(reward.last), reward.steps)
	case reward.n >= leastSteps:
		text = fmt.Sprintf("reward %s -> %s in %d steps", decimal(reward.first), decimal(reward.last), reward.steps)
	case reward.n > 0:
		text = fmt.Sprintf("reward %s after %s", decimal(reward.last), countSteps(reward.steps))
	}
	if kind == VerdictFlat {
		text += ", no more than its noise"
	}
	switch {
	case score.n == 0:
	case score.up, score.down:
		text += fmt.Sprintf("; held-out %s -> %s", decimal(score.first), decimal(score.last))
	case score.n >= 2 && (kind == VerdictRewardOnly || kind == VerdictFlat):
		text += fmt.Sprintf("; held-out stays at %s", decimal(score.last))
	default:
		text += "; held-out " + decimal(score.last)
	}
	if score.n > 0 && score.questions < fewQuestions {
		text += fmt.Sprintf(" of %.0f questions", score.questions)
	}
	return text
}

// describeEnd is how the run ended; "" while it goes on.
func describeEnd(c Course) string {
	text := ""
	if c.Tested != nil {
		text = "; test " + decimal(metrics.TestExactMatchGreedy.In(c.Tested.Metrics))
	}
	if c.Stopped && len(c.Steps) > 0 {
		text += fmt.Sprintf("; stopped after step %d", c.Steps[len(c.Steps)-1].Step)
	}
	return text
}

func countSteps(n int64) string {
	if n == 1 {
		return "1 step"
	}
	return fmt.Sprintf("%d steps", n)
}

// decimal is a number to two places, a great one to three digits.
func decimal(x float64) string {
	if math.Abs(x) >= 100 {
		return fmt.Sprintf("%.3g", x)
	}
	return fmt.Sprintf("%.2f", x)
}
