package view

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/trainer/metrics"
)

// Alarm is something about a run that somebody should look at.
type Alarm struct {
	// Level is "alarm" where the run is spoiled, "warn" where work is wasted.
	Level string `json:"level"`
	Title string `json:"title"`
	// What is the observation, Do the remedy.
	What string `json:"what"`
	Do   string `json:"do"`
	// Link is the page that shows it, as a part of the page's own address.
	Link string `json:"link,omitempty"`
}

// The levels.
const (
	levelAlarm = "alarm"
	levelWarn  = "warn"
)

// window is how many steps back an alarm looks.
const window = 32

// judgeSteps judges the newest steps, oldest first.
func judgeSteps(steps []report.Record, scores []report.Record) []Alarm {
	out := []Alarm{}
	if len(steps) == 0 {
		return out
	}
	last := steps[len(steps)-1].Metrics
	before := steps[:len(steps)-1]
	add := func(title, do, link, what string, args ...any) {
		out = append(out, Alarm{Level: levelAlarm, Title: title, What: fmt.Sprintf(what, args...), Do: do, Link: link})
	}
	if said := metrics.Mismatch(last); said != "" {
		add("sampler and trainer disagree", "Mend the setting that is named; until then the ratios are wrong, and what is learnt with them.", "overview", "%s", said)
	}
	if was, now, jumped := findJump(before, metrics.PolicyEntropy.Name, last); jumped && now < was && !isSolved(last, scores) {
		add("entropy collapsed",
			"The policy stops exploring. Lower trainer.optimizer.learning_rate, add an entropy bonus (trainer.loss.entropy_coef), or go back to "+
				"a checkpoint from before the fall.",
			"overview", "policy/entropy is %.3g nats, its median over the %d steps before was %.3g", now, len(before), was)
	} else if jumped && now > was {
		add("entropy jumped", "The policy falls apart: look at samples of the newest step, lower the learning rate, or go back to a checkpoint from before the jump.",
			"trajectories", "policy/entropy is %.3g nats, its median over the %d steps before was %.3g", now, len(before), was)
	}
	for _, name := range []string{metrics.PolicyMismatchKL.Name, metrics.Loss("approx_kl")} {
		if was, now, jumped := findJump(before, name, last); jumped && now > was && now > 0.01 {
			add("KL jumped", "One step moved the policy further than those before: lower the learning rate or trainer.loss.clip_high, and look at the step's trajectories.",
				"trajectories", "%s is %.3g, its median over the %d steps before was %.3g", name, now, len(before), was)
		}
	}
	if skipped := last[metrics.OptimizerSkipped.Name]; skipped > 0 {
		add("the gradient is not finite", "Look at the step's rewards and log-probabilities; lower the learning rate. The folder bundles of the run has the first such step, for weir replay --bundle.", "trajectories", "%.0f optimizer steps were skipped in the last step", skipped)
	}
	out = append(out, findWaste(steps)...)
	if text := metrics.Bias(last); text != "" {
		out = append(out, Alarm{levelWarn, "trained on a biased share", text, metrics.BiasRemedy, "bias"})
	}
	if a, limited := findLimited(steps); limited {
		out = append(out, a)
	}
	if a, starved := findStarvedSource(steps); starved {
		out = append(out, a)
	}
	if a, learnt := findMemorization(steps, scores); learnt {
		out = append(out, a)
	}
	slices.SortStableFunc(out, func(a, b Alarm) int { return strings.Compare(a.Level, b.Level) })
	return out
}

// solvedShare is the share of right answers from which on a task counts as solved.
const solvedShare = 0.95

// isSolved reports that nearly all answers are right, held-out or in training: then entropy falls because nothing is left to explore.
func isSolved(last map[string]float64, scores []report.Record) bool {
	if n := len(scores); n > 0 && metrics.EvalExactMatch.In(scores[n-1].Metrics) >= solvedShare {
		return true
	}
	return last[metrics.RewardComponent.Of("exact_match")] >= solvedShare
}

// spoiledBy is what makes the newest step's learning wrong; "" where nothing does.
func spoiledBy(last *report.Record) string {
	if last == nil {
		return ""
	}
	if said := metrics.Mismatch(last.Metrics); said != "" {
		return said
	}
	if skipped := metrics.OptimizerSkipped.In(last.Metrics); skipped > 0 {
		return fmt.Sprintf("the gradient is not finite: %.0f optimizer steps were skipped in the last step", skipped)
	}
	return ""
}

// findJump says whether a number is far from its median over the steps before: three times as much, or a third.
func findJump(before []report.Record, name string, last map[string]float64) (was, now float64, jumped bool) {
	now, ok := last[name]
	var values []float64
	for _, r := range before {
		if x, ok := r.Metrics[name]; ok {
			values = append(values, x)
		}
	}
	if !ok || len(values) < 8 {
		return 0, now, false
	}
	slices.Sort(values)
	was = values[len(values)/2]
	return was, now, was > 1e-6 && (now > 3*was || now < was/3)
}

// findWaste are the alarms about work that comes to nothing.
func findWaste(steps []report.Record) []Alarm {
	var out []Alarm
	recent := steps[max(0, len(steps)-8):]
	var trained, flat, stale, all, idle float64
	for _, r := range recent {
		trained += r.Metrics[metrics.BatchTrajectories.Name]
		flat += r.Metrics[metrics.Rejected.Of(string(schemas.ReasonZeroVariance))]
		stale += r.Metrics[metrics.Rejected.Of(string(schemas.ReasonStale))]
		for name, x := range r.Metrics {
			if strings.HasPrefix(name, metrics.Rejected.Prefix()) {
				all += x
			}
		}
		idle += r.Metrics[metrics.TimeIdleRatio.Name] / float64(len(recent))
	}
	total := trained + all
	if total > 0 && flat/total > 0.6 {
		out = append(out, Alarm{
			levelWarn, "most groups teach nothing",
			fmt.Sprintf("%.0f %% of the trajectories of the last %d steps were dropped because all rewards of their group are equal", 100*flat/total, len(recent)),
			"The questions are too easy or too hard for this policy: add harder or easier ones, raise trainer.group_size, or give a reward in parts.",
			"trajectories?fate=dropped&reason=zero_variance",
		})
	}
	if total > 0 && stale/total > 0.2 {
		out = append(out, Alarm{
			levelWarn, "much comes too late",
			fmt.Sprintf("%.0f %% of the trajectories of the last %d steps were refused as stale: slow questions are trained on less often than they are asked", 100*stale/total, len(recent)),
			"Raise trainer.eta, lower trainer.depth, or run fewer producers; the bias page shows what is lost.", "bias",
		})
	}
	if idle > 0.6 {
		out = append(out, Alarm{
			levelWarn, "the trainer waits for trajectories",
			fmt.Sprintf("%.0f %% of the time of the last %d steps was spent waiting for a batch", 100*idle, len(recent)),
			"Add producers or inference, or raise trainer.eta and trainer.depth so that more is underway.", "streams",
		})
	}
	return out
}

// findStarvedSource finds a source of questions that was trained on and is not any more.
func findStarvedSource(steps []report.Record) (Alarm, bool) {
	if len(steps) < 16 {
		return Alarm{}, false
	}
	half := len(steps) / 2
	gone := map[string]bool{}
	for i, r := range steps {
		for name := range r.Metrics {
			if source, ok := strings.CutPrefix(name, metrics.RewardSource.Prefix()); ok {
				gone[source] = i < half
			}
		}
	}
	var names []string
	for source, is := range gone {
		if is {
			names = append(names, source)
		}
	}
	if len(names) == 0 {
		return Alarm{}, false
	}
	slices.Sort(names)
	return Alarm{
		levelWarn, "a source starves",
		fmt.Sprintf("no trajectory of %s was trained on in the last %d steps, and some were before", strings.Join(names, ", "), len(steps)-half),
		"Its groups are all dropped or refused: the bias page says by what. Mix its questions with a greater weight, or make them easier or harder.", "bias",
	}, true
}

// findMemorization finds that the reward rises while held-out answers do not.
func findMemorization(steps, scores []report.Record) (Alarm, bool) {
	if len(steps) < 8 || len(scores) == 0 {
		return Alarm{}, false
	}
	exact := metrics.RewardComponent.Of("exact_match")
	train, held := steps[len(steps)-1].Metrics[exact], metrics.EvalExactMatch.In(scores[len(scores)-1].Metrics)
	if train < 0.6 || held > train/2 {
		return Alarm{}, false
	}
	return Alarm{
		levelWarn, "learnt by heart",
		fmt.Sprintf("%.0f %% of the answers in training are right, and %.0f %% of the held-out ones", 100*train, 100*held),
		"Train on more questions, or fewer steps.", "overview",
	}, true
}

// findRepeatedAnswer finds that the same answer is given to more and more questions while the reward rises: the reward may be won without the
// question.
func findRepeatedAnswer(before, now runfolder.Answers, steps []report.Record) (Alarm, bool) {
	if len(steps) < 2 || now.Trajectories < 32 || now.Prompts < 8 || before.Prompts == 0 {
		return Alarm{}, false
	}
	share := func(a runfolder.Answers) float64 { return float64(a.Given) / float64(a.Prompts) }
	first, last := metrics.RewardMean.In(steps[0].Metrics), metrics.RewardMean.In(steps[len(steps)-1].Metrics)
	if share(now) < 0.25 || share(now) < 1.5*share(before) || last <= first {
		return Alarm{}, false
	}
	return Alarm{
		levelAlarm, "one answer for many questions",
		fmt.Sprintf("%q was given to %.0f %% of the questions of late, and to %.0f %% of them before, while the reward rose from %.3g to %.3g", now.Commonest, 100*share(now), 100*share(before), first, last),
		"Look at samples: the reward may be won without the question. Mend the reward, and go back to a checkpoint from before.", "trajectories?fate=trained",
	}, true
}

// findQuietTrainer finds that nothing has happened for long in a run that is not at its end.
func findQuietTrainer(last *report.Record, step, steps int64, now time.Time) (Alarm, bool) {
	if last == nil || step >= steps {
		return Alarm{}, false
	}
	if now.Sub(last.At) < runfolder.Patience(last.Metrics[metrics.TimeStep.Name]) {
		return Alarm{}, false
	}
	return Alarm{
		levelAlarm, "no step is done",
		fmt.Sprintf("step %d ended %s; steps took %.1f s", step, runfolder.Ago(last.At, now), last.Metrics[metrics.TimeStep.Name]),
		"If the run should be going: weir status says what it waits for, and the streams page which role is gone. The same command goes on from the checkpoint.", "streams",
	}, true
}
