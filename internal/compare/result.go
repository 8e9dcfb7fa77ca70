package compare

import (
	"fmt"
	"slices"
)

// Report is the result of a comparison.
type Report struct {
	Name string `json:"name"`
	// File is the comparison's file, Dir the folder of the runs.
	File     string `json:"file"`
	Dir      string `json:"dir"`
	Baseline string `json:"baseline"`
	// Deterministic says whether the file asks for it.
	Deterministic bool  `json:"deterministic"`
	Seeds         Seeds `json:"seeds"`
	// Testing has the results of the seeds for testing, Tuning those of the seeds for tuning; nil where none was asked for.
	Testing *Results `json:"testing,omitempty"`
	Tuning  *Results `json:"tuning,omitempty"`
	// Claims are judged on the seeds for testing alone.
	Claims []Judgement `json:"claims"`
	// Warnings are sentences about results that are weaker than they look.
	Warnings []string `json:"warnings"`
	scores   []float64
}

// Results are those of a list of seeds.
type Results struct {
	Seeds []int64     `json:"seeds"`
	Arms  []ArmResult `json:"arms"`
}

// ArmResult is an arm over the seeds of a list. Its estimates are of the finished runs.
type ArmResult struct {
	Arm  string      `json:"arm"`
	Runs []RunResult `json:"runs"`
	// Area, Final and Sampled are interquartile means.
	Area    Estimate `json:"area"`
	Final   Estimate `json:"final"`
	Sampled Estimate `json:"sampled"`
	// AreaImproves and FinalImproves are the probabilities that a run of the arm has a greater number than a run of the baseline; nil of the
	// baseline itself.
	AreaImproves  *Estimate `json:"area_improves,omitempty"`
	FinalImproves *Estimate `json:"final_improves,omitempty"`
}

// RunResult is a run in a report.
type RunResult struct {
	Outcome
	// Scores are nil of a run that is not finished.
	Scores *Scores `json:"scores,omitempty"`
	// Steps are the steps to each score, by the score; a score that was not reached is missing.
	Steps map[string]int64 `json:"steps,omitempty"`
}

// Report reads the numbers of the finished runs and judges the claims.
func (p *Plan) Report(outcomes []Outcome) (*Report, error) {
	f := p.File
	out := &Report{
		Name: f.Name, File: f.Path, Dir: p.Dir, Baseline: f.Baseline, Deterministic: f.Deterministic, Seeds: f.Seeds, scores: f.Scores,
		Claims: []Judgement{}, Warnings: []string{},
	}
	for _, tuning := range []bool{true, false} {
		results, err := f.collectResults(outcomes, tuning)
		if err != nil {
			return nil, err
		}
		if results == nil {
			continue
		}
		out.Warnings = append(out.Warnings, results.unpairedStarts()...)
		if tuning {
			out.Tuning = results
		} else {
			out.Testing = results
		}
	}
	if out.Testing == nil {
		return out, nil
	}
	scores := out.Testing.finishedScores()
	for _, c := range f.Claims {
		out.Claims = append(out.Claims, judgeClaim(c, f.Seeds.Testing, scores))
	}
	if n := len(f.Seeds.Testing); n < 5 {
		out.Warnings = append(out.Warnings, fmt.Sprintf("with %d seeds an interval is no wider than the range of the seeds: where two arms do "+
			"not differ at all, a claim that one is better would be held or not held, by chance, in %.0f %% of comparisons",
			n, 200/float64(int(1)<<n)))
	}
	return out, nil
}

// collectResults are the results of the seeds of a list; nil where no run of them is planned.
func (f *File) collectResults(outcomes []Outcome, tuning bool) (*Results, error) {
	results := &Results{Seeds: f.Seeds.Testing}
	if tuning {
		results.Seeds = f.Seeds.Tuning
	}
	planned := false
	for _, arm := range f.Arms {
		a := ArmResult{Arm: arm.Name}
		for _, o := range outcomes {
			if o.Arm != arm.Name || o.Tuning != tuning {
				continue
			}
			planned = true
			run, err := f.readResult(o)
			if err != nil {
				return nil, err
			}
			a.Runs = append(a.Runs, run)
		}
		a.Area, a.Final, a.Sampled = estimateMean(a.valuesOf("area")), estimateMean(a.valuesOf("final")), estimateMean(a.valuesOf("sampled"))
		results.Arms = append(results.Arms, a)
	}
	if !planned {
		return nil, nil //nolint:nilnil // no run is no result
	}
	results.addImprovements(f.Baseline)
	return results, nil
}

func (f *File) readResult(o Outcome) (RunResult, error) {
	run := RunResult{Outcome: o}
	if o.State != StateFinished {
		return run, nil
	}
	scores, err := readScores(o.Run)
	if err != nil {
		return run, err
	}
	run.Scores, run.Steps = scores, map[string]int64{}
	for _, score := range f.Scores {
		if steps := scores.stepsTo(score); steps.low == steps.high {
			run.Steps[fmt.Sprint(score)] = int64(steps.low)
		}
	}
	return run, nil
}

// valuesOf are a metric's values of the finished runs.
func (a *ArmResult) valuesOf(metric string) (out []float64) {
	for _, r := range a.Runs {
		if r.Scores != nil {
			out = append(out, r.Scores.valueOf(Term{Metric: metric}).low)
		}
	}
	return out
}

func (r *Results) addImprovements(baseline string) {
	i := slices.IndexFunc(r.Arms, func(a ArmResult) bool { return a.Arm == baseline })
	base := r.Arms[i]
	for k := range r.Arms {
		if a := &r.Arms[k]; k != i {
			area := estimateImprovement(a.valuesOf("area"), base.valuesOf("area"))
			final := estimateImprovement(a.valuesOf("final"), base.valuesOf("final"))
			a.AreaImproves, a.FinalImproves = &area, &final
		}
	}
}

// finishedScores are the scores of the finished runs, by arm and seed.
func (r *Results) finishedScores() map[string]map[int64]*Scores {
	out := map[string]map[int64]*Scores{}
	for _, a := range r.Arms {
		out[a.Arm] = map[int64]*Scores{}
		for _, run := range a.Runs {
			if run.Scores != nil {
				out[a.Arm][run.Seed] = run.Scores
			}
		}
	}
	return out
}

// unpairedStarts has a sentence for each seed whose runs did not start from the same score: settings of the arms then differ before
// reinforcement, as by another cold start, and the pair is of less use.
func (r *Results) unpairedStarts() (out []string) {
	for _, seed := range r.Seeds {
		var starts []float64
		for _, a := range r.Arms {
			for _, run := range a.Runs {
				if run.Scores != nil && run.Seed == seed {
					starts = append(starts, run.Scores.Start)
				}
			}
		}
		if len(starts) > 1 && slices.Min(starts) != slices.Max(starts) {
			out = append(out, fmt.Sprintf("the runs of seed %d start from different scores, %.3f to %.3f: they are no pairs",
				seed, slices.Min(starts), slices.Max(starts)))
		}
	}
	return out
}
