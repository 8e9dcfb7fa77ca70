package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weir-rl/weir/trainer/metrics"
)

// Progress shows a run as it goes: a live view on a terminal, a line a step elsewhere. It is safe for
// concurrent use.
type Progress struct {
	// Steps is how many the run will take; Eta its staleness bound.
	Steps int64
	Eta   int
	// Width is the columns of the terminal, to which the live view is cut: a line that wraps could not be drawn over.
	// nil, or 0 columns, is no bound.
	Width func() int
	// Colour lets rollouts be shown in colour.
	Colour bool

	mu      sync.Mutex
	out     io.Writer
	live    bool
	now     func() time.Time
	phase   string
	started time.Time // of the first step seen
	first   int64
	last    Record
	scored  Record
	recent  []Record   // the newest steps of this process, for Limits
	rewards []rewardOf // by step
	cold    int64      // tenths of the cold start that were printed, from 1 on; only where there is no terminal
	// gathered says how the next batch comes about while groups are dropped for it, trouble why that leads nowhere; "" from
	// the step on.
	gathered, trouble string
	failing           []Failure
	limited           string   // the limit that ends nearly every episode; "" is none
	drawn             []string // lines of the live view on the screen
}

// rewardOf is a step's reward.
type rewardOf struct {
	step   int64
	reward float64
}

// NewProgress writes to out; live redraws in place. now is the clock.
func NewProgress(out io.Writer, live bool, steps int64, eta int, now func() time.Time) *Progress {
	return &Progress{Steps: steps, Eta: eta, out: out, live: live, now: now}
}

// Phase names the phase of the run, such as "cold start", with a note of its progress.
func (p *Progress) Phase(name, note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if note != "" {
		name += ": " + note
	}
	p.phase = name
	if p.live {
		p.drawLive()
		return
	}
	fmt.Fprintln(p.out, name)
}

// Add takes a record.
func (p *Progress) Add(r Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch r.Type {
	case "evaluated":
		p.scored = r
		if !p.live {
			fmt.Fprintf(p.out, "version %d: held-out exact match %.3f\n", r.PolicyVersion, r.Metrics[metrics.EvalExactMatch.Name])
		}
	case "step_done":
		if p.started.IsZero() {
			p.started, p.first = p.now(), r.Step
		}
		p.last, p.gathered, p.trouble = r, "", ""
		p.addReward(r)
		p.recent = append(p.recent[max(0, len(p.recent)-limitSteps+1):], r)
		if alarm := metrics.Mismatch(r.Metrics); alarm != "" {
			p.trouble = alarm
		}
		p.noteLimited()
		if !p.live {
			fmt.Fprintln(p.out, p.stepText())
		} else if strings.HasPrefix(p.phase, coldStartPhase) {
			p.phase = "" // it is over
		}
	default:
		return
	}
	if p.live {
		p.drawLive()
	}
}

// noteLimited looks for a limit that ends nearly every episode. The live view shows it while it lasts; without a terminal it is a line at
// its onset.
func (p *Progress) noteLimited() {
	l, found := FindLimited(p.recent)
	was := p.limited != ""
	p.limited = ""
	if !found || NameLimit(p.failing) {
		return
	}
	p.limited = LimitedTitle + ": " + l.What() + ". " + l.Remedy()
	if !p.live && !was {
		fmt.Fprintf(p.out, "! %s\n", p.limited)
	}
}

// History takes the records of earlier processes of the run: their rewards and the last score are shown with the coming ones.
func (p *Progress) History(records []Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range records {
		switch r.Type {
		case "evaluated":
			p.scored = r
		case "step_done":
			p.addReward(r)
		}
	}
}

// addReward notes a step's. A run that went back does later steps again: they count once.
func (p *Progress) addReward(r Record) {
	p.rewards = slices.DeleteFunc(p.rewards, func(e rewardOf) bool { return e.step >= r.Step })
	p.rewards = append(p.rewards, rewardOf{r.Step, r.Metrics[metrics.RewardMean.Name]})
}

// Title heads everything.
func (p *Progress) Title(title string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.out, title)
}

// Rollout prints a rollout on a held-out question, above the live view where it is drawn.
func (p *Progress) Rollout(version int64, r *Rollout) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "version %d on a held-out question%s: reward %.3f, stopped by %s\n",
		version, Plain(sourceNote(r.Source)), r.Reward, Plain(string(r.Stop)))
	r.writeParts(&b, p.Colour)
	p.printAbove(b.String())
}

// Note prints lines, above the live view where it is drawn. The last line ends whether or not the text ends it.
func (p *Progress) Note(text string) {
	if !strings.HasSuffix(text, "\n") {
		text += "\n" // the next output begins a line
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.printAbove(text)
}

// printAbove prints lines where the live view was, and the view below them.
func (p *Progress) printAbove(text string) {
	if up := p.cursorUp(); up != "" {
		fmt.Fprint(p.out, up+"\x1b[J")
		p.drawn = nil
	}
	fmt.Fprint(p.out, text)
	if p.live {
		p.drawLive()
	}
}

// coldStartPhase names the phase before the first step.
const coldStartPhase = "cold start"

// ColdStart shows the supervised start by its metrics. Where there is no terminal it prints a line each tenth of the way.
func (p *Progress) ColdStart(m map[string]float64) {
	tenth := 1 + int64(10*m[metrics.ColdStartStep.Name]/max(1, m[metrics.ColdStartSteps.Name]))
	p.mu.Lock()
	passed := tenth > p.cold
	p.cold = tenth
	p.mu.Unlock()
	if !passed && !p.live {
		return
	}
	p.Phase(coldStartPhase, fmt.Sprintf("step %.0f of %.0f, loss %.3f", m[metrics.ColdStartStep.Name], m[metrics.ColdStartSteps.Name], m[metrics.ColdStartLoss.Name]))
}

// Dropped shows that groups are dropped while a step gathers its batch, as their samples have equal rewards, and how many
// are kept. trouble says that this leads nowhere, "" nothing. Without a terminal nothing is shown: the log has it.
func (p *Progress) Dropped(step int64, dropped, kept int, trouble string) {
	if !p.live {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gathered = fmt.Sprintf("  gathering    step %d: %d groups kept, %d dropped (samples with equal rewards)", step, kept, dropped)
	if trouble != "" {
		p.trouble = trouble
	}
	p.drawLive()
}

// Failing shows the tasks whose episodes fail, until it is called again; without a terminal it prints a line for each that has changed.
func (p *Progress) Failing(failures []Failure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.failing
	if p.failing = failures; NameLimit(failures) {
		p.limited = "" // a failure says it, with the task's name
	}
	if p.live {
		p.drawLive()
		return
	}
	for _, f := range failures {
		if slices.ContainsFunc(before, func(b Failure) bool { return b.String() == f.String() }) {
			continue
		}
		fmt.Fprintf(p.out, "! %s\n", f)
	}
}

// Close leaves the last view on the screen.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawn = nil
}

func (p *Progress) stepText() string {
	m := p.last.Metrics
	dropped, refused := Untrained(m)
	return fmt.Sprintf("step %d/%d v=%d reward %.3f exact match %s stale %.2f/%.0f traj/s %.0f tok/s %.0f idle %.2f dropped %.0f refused %.0f mismatch %s left %s",
		p.last.Step, p.Steps, p.last.PolicyVersion, m[metrics.RewardMean.Name], p.scoreText(), m[metrics.StalenessMean.Name], m[metrics.StalenessMax.Name],
		m[metrics.RateTrajectories.Name], m[metrics.RateTokens.Name], m[metrics.TimeIdleRatio.Name], dropped, refused, mismatchText(m), p.timeLeft())
}

// rateMade is how many trajectories a second ended during a step, trained on or not.
func rateMade(m map[string]float64) float64 {
	trained, step := metrics.RateTrajectories.In(m), metrics.TimeStep.In(m)
	if step <= 0 {
		return trained
	}
	dropped, refused := Untrained(m)
	return trained + (dropped+refused)/step
}

// mismatchLine is the line of the live view about sampler and trainer. Nothing is measured where no token is of the trainer's version.
func mismatchLine(m map[string]float64) string {
	if metrics.MismatchTokens.In(m) == 0 {
		return "  mismatch     not measured: no token of the step was sampled by the trainer's own version"
	}
	return fmt.Sprintf("  mismatch     %s nats between sampler and trainer, effective sample size %.2f", mismatchText(m), metrics.MismatchESS.In(m))
}

// mismatchText is how far sampler and trainer were apart in a step; "-" where no token of the trainer's own version was in it.
func mismatchText(m map[string]float64) string {
	if metrics.MismatchTokens.In(m) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4f", metrics.MismatchMean.In(m))
}

// Untrained counts the trajectories that ended during a step without being trained on, by the step's metrics: dropped were in
// order in a group that could not be used, and refused were at fault themselves.
func Untrained(m map[string]float64) (dropped, refused float64) {
	for name, n := range m {
		switch reason, ok := strings.CutPrefix(name, metrics.Rejected.Prefix()); {
		case !ok:
		case reason == "zero_variance", reason == "incomplete":
			dropped += n
		default:
			refused += n
		}
	}
	return dropped, refused
}

func (p *Progress) scoreText() string {
	if p.scored.Metrics == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f (version %d)", p.scored.Metrics[metrics.EvalExactMatch.Name], p.scored.PolicyVersion)
}

// timeLeft is the time the remaining steps take at the pace so far.
func (p *Progress) timeLeft() string {
	done := p.last.Step - p.first
	if done <= 0 || p.Steps <= 0 {
		return "?"
	}
	pace := p.now().Sub(p.started) / time.Duration(done)
	return (pace * time.Duration(max(0, p.Steps-p.last.Step))).Round(time.Second).String()
}

func (p *Progress) drawLive() {
	var b strings.Builder
	b.WriteString(p.cursorUp())
	m, width := p.last.Metrics, p.lineWidth()
	dropped, refused := Untrained(m)
	var lines []string
	if p.phase != "" {
		lines = append(lines, p.phase)
	}
	if m != nil {
		lines = append(lines,
			fmt.Sprintf("  step         %d/%d  %s  %s left", p.last.Step, p.Steps, progressBar(p.last.Step, p.Steps, 30), p.timeLeft()),
			fmt.Sprintf("  reward       %.3f  %s", m[metrics.RewardMean.Name], sparkline(p.rewards, max(1, min(40, width-22)))),
			fmt.Sprintf("  exact match  %s  held out, greedy", p.scoreText()),
			fmt.Sprintf("  staleness    %.2f mean, %.0f max, bound %d", m[metrics.StalenessMean.Name], m[metrics.StalenessMax.Name], p.Eta),
			fmt.Sprintf("  rates        %.0f trajectories/s made, %.0f trained  %.0f tokens/s  trainer idle %.0f %%",
				rateMade(m), m[metrics.RateTrajectories.Name], m[metrics.RateTokens.Name], 100*m[metrics.TimeIdleRatio.Name]),
			mismatchLine(m),
			fmt.Sprintf("  not trained  %.0f trajectories of the step dropped with their group, %.0f refused", dropped, refused))
		if limits := Limits(p.recent); limits != "" {
			lines = append(lines, wrapLine("  limit        "+limits, width)...)
		}
	}
	if m == nil && p.scored.Metrics != nil {
		lines = append(lines, fmt.Sprintf("  exact match  %s  held out, greedy", p.scoreText()))
	}
	if p.gathered != "" {
		lines = append(lines, p.gathered)
	}
	for _, f := range p.failing {
		lines = append(lines, wrapLine("  ! "+f.String(), width)...)
	}
	if p.limited != "" {
		lines = append(lines, wrapLine("  ! "+p.limited, width)...)
	}
	if p.trouble != "" {
		lines = append(lines, wrapLine("  ! "+p.trouble, width)...)
	}
	p.drawn = p.drawn[:0]
	for _, l := range lines {
		l = cutText(l, width)
		fmt.Fprintf(&b, "\x1b[2K%s\n", l)
		p.drawn = append(p.drawn, l)
	}
	// What a wider terminal showed further below.
	b.WriteString("\x1b[J")
	fmt.Fprint(p.out, b.String())
}

// wrapLine breaks text between words into lines of a width.
func wrapLine(text string, width int) []string {
	lines := []string{""}
	for i, word := range strings.Split(text, " ") {
		last := &lines[len(lines)-1]
		switch {
		case i == 0:
			*last = word
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, "    "+word)
		}
	}
	return lines
}

// cursorUp moves the cursor to the first line of the live view. A terminal that has become narrower since shows a line of it as
// several.
func (p *Progress) cursorUp() string {
	rows, width := 0, p.lineWidth()
	for _, l := range p.drawn {
		rows += max(1, (utf8.RuneCountInString(l)-1)/width+1)
	}
	if rows == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA", rows)
}

func (p *Progress) lineWidth() int {
	if p.Width != nil {
		if columns := p.Width(); columns > 0 {
			return columns
		}
	}
	return math.MaxInt
}

// cutText is the beginning of a line of characters of a column each.
func cutText(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width])
	}
	return line
}

func progressBar(done, total int64, width int) string {
	filled := 0
	if total > 0 {
		filled = int(min(total, done) * int64(width) / total)
	}
	return "[" + strings.Repeat("=", filled) + strings.Repeat(".", width-filled) + "]"
}

// sparkline draws the last values between 0 and the greatest as a row of blocks.
func sparkline(steps []rewardOf, width int) string {
	values := make([]float64, len(steps))
	for i, s := range steps {
		values[i] = s.reward
	}
	blocks := []rune("▁▂▃▄▅▆▇█")
	if len(values) > width {
		values = values[len(values)-width:]
	}
	top := 1.0
	for _, v := range values {
		top = max(top, v)
	}
	var b strings.Builder
	for _, v := range values {
		b.WriteRune(blocks[min(len(blocks)-1, int(max(0, v)/top*float64(len(blocks))))])
	}
	return b.String()
}
