package assembly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/gpu/hf"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/tasks"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/generate"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// chatter asks versions of a run questions for its page, as weir chat does: with a checkpoint of the run's folder, loaded into this
// process, or with the inference engines of a run that is up.
type chatter struct {
	models *Models
	// configure reads the run's configuration.
	configure func() (*config.Config, error)
	// asks reports whether the page's connection to the broker may ask the engines; "" where it may, else why not.
	asks string
	// vouched says why the tasks, agents and tools of the configuration are not opened; nil where the process's own configuration is
	// the run's.
	vouched func(*config.Config) error

	offering sync.Mutex
	offered  []view.ChatTask // nil before the tasks were opened

	mu     sync.Mutex // is held while a question is answered
	open   *openChat
	idle   *time.Timer
	closed bool
}

// openChat is the policy that answered the last question.
type openChat struct {
	chosen chatParts
	*LoadedPolicy
}

// chatParts name the version, task, agent and tools of an answer.
type chatParts struct{ version, task, agent, tools string }

const (
	// chatIdle is how long the model of the last question stays in memory.
	chatIdle = 5 * time.Minute
	// chatPatience is how long the run's engines may leave a question without an engine that serves it.
	chatPatience = 10 * time.Second
	// chatLongest bounds an episode whose task has no time limit, or a longer limit.
	chatLongest = 5 * time.Minute
	// chatExamples is how many questions of each task are shown.
	chatExamples = 3
)

// errChatClosed says that the page is about to end.
var errChatClosed = errors.New("the page is about to end")

// newChatter makes the chatter of a run whose configuration is read when it is needed.
func newChatter(models Models, asks string, configure func() (*config.Config, error)) *chatter {
	models.log = slog.New(slog.DiscardHandler) // errors go back to the page
	return &chatter{models: &models, asks: asks, configure: configure}
}

// Offer lists the versions, tasks, agents and tools that can be asked, by their names in the configuration. Nothing is opened for it, since
// any viewer of the page may call it.
func (c *chatter) Offer(_ context.Context, run *streams.Run) (*view.ChatOffer, error) {
	cfg, err := c.configure()
	if err != nil {
		return nil, fmt.Errorf("read the run's configuration: %w", err)
	}
	out := &view.ChatOffer{
		Versions: []view.ChatVersion{}, Notes: []string{}, Tasks: []view.ChatTask{}, Agents: append([]string{}, slices.Sorted(maps.Keys(cfg.Agents))...), Tools: append([]string{}, slices.Sorted(maps.Keys(cfg.Tools))...),
	}
	switch {
	case run == nil:
	case c.asks != "":
		out.Notes = append(out.Notes, c.asks)
	default:
		out.Versions = append(out.Versions, view.ChatVersion{
			Key: view.ChatEngines, Name: "the run's inference engines, newest version",
			Cost: "an engine of the run samples it among the run's own sequences: one sequence more while it answers",
		})
	}
	steps, err := checkpoint.FullSteps(cfg.Trainer.Checkpoint.Dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(steps)
	slices.Reverse(steps)
	switch why := c.explainNoLoading(cfg, run); {
	case len(steps) == 0:
		out.Notes = append(out.Notes, "no checkpoint of the run is on this machine")
	case why != "":
		out.Notes = append(out.Notes, why)
	default:
		const cost = "this machine loads the checkpoint and samples it: memory for the weights, and processor time while it answers"
		out.Versions = append(out.Versions, view.ChatVersion{Key: view.ChatNewest, Name: "the newest checkpoint", Cost: cost})
		for _, step := range steps {
			out.Versions = append(out.Versions, view.ChatVersion{Key: strconv.FormatInt(step, 10), Name: fmt.Sprintf("version %d, its checkpoint", step), Cost: cost})
		}
	}
	for _, name := range cfg.Active() {
		t := view.ChatTask{Name: name, Tools: []string{}, Examples: []string{}}
		if section := cfg.Tasks[name]; section != nil {
			t.Agent, t.Tools = section.Agent, append(t.Tools, section.Tools...)
		}
		out.Tasks = append(out.Tasks, t)
	}
	return out, nil
}

// Tasks opens the run's tasks, once.
func (c *chatter) Tasks(ctx context.Context) ([]view.ChatTask, error) {
	c.offering.Lock()
	defer c.offering.Unlock()
	if c.offered != nil {
		return c.offered, nil
	}
	cfg, err := c.configure()
	if err != nil {
		return nil, fmt.Errorf("read the run's configuration: %w", err)
	}
	if err := c.mayOpen(cfg); err != nil {
		return nil, err
	}
	opened, err := c.models.under(cfg).openCourse(ctx)
	if err != nil {
		return nil, err
	}
	var out []view.ChatTask
	for _, t := range opened.Tasks {
		out = append(out, chatTask(cfg, t))
	}
	if err := opened.Close(); err != nil {
		return nil, err
	}
	c.offered = out
	return out, nil
}

// mayOpen says why the parts of a configuration are not opened.
func (c *chatter) mayOpen(cfg *config.Config) error {
	if c.vouched == nil {
		return nil
	}
	return c.vouched(cfg)
}

func chatTask(cfg *config.Config, t *Task) view.ChatTask {
	out := view.ChatTask{Name: t.Name, Agent: cfg.Tasks[t.Name].Agent, Tools: append([]string{}, t.ToolNames()...), Examples: []string{}}
	for _, split := range []tasks.Split{tasks.Test, tasks.Validation, tasks.Train} {
		for _, p := range t.Data.Sample(split, chatExamples-len(out.Examples), ScoreSeed) {
			out.Examples = append(out.Examples, p.Text)
		}
	}
	return out
}

// explainNoLoading says why checkpoints cannot be loaded into this process; "" where they can.
func (c *chatter) explainNoLoading(cfg *config.Config, run *streams.Run) string {
	backend, err := cfg.SamplerBackend()
	if err != nil {
		return "checkpoints cannot be loaded here: " + err.Error()
	}
	if d, ok := backend.(gpu.DeviceMemory); run != nil && ok && d.OnDevice() {
		return "no checkpoint is loaded while the run is up: its device's memory is the run's. weir chat does it on another machine"
	}
	return ""
}

// Ask runs an episode.
func (c *chatter) Ask(ctx context.Context, run *streams.Run, q view.ChatQuestion, tell func(view.ChatMove)) (*view.ChatEnd, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errChatClosed
	}
	if EmptyQuestion(q.Question) {
		return nil, errors.New("the question is empty")
	}
	if c.idle != nil {
		c.idle.Stop()
	}
	m, err := c.preparePolicy(ctx, run, &q)
	if err != nil {
		return nil, err
	}
	defer func() { c.idle = time.AfterFunc(chatIdle, c.releaseIdle) }()
	if q.Version == view.ChatEngines {
		ending := make(chan struct{})
		defer time.AfterFunc(chatPatience, func() { close(ending) }).Stop()
		calls := generate.NewClient(run, generate.ClientOptions{Ending: ending})
		defer calls.Close()
		own := *m
		own.Sampler = &Sampler{calls: calls}
		m = &own
	}
	t, err := m.Course.FindTask(q.Task)
	if err != nil {
		return nil, err
	}
	timeout := chatLongest
	if own := t.limits.Timeout; own > 0 {
		timeout = min(timeout, own)
	}
	prompt, unknown := m.Course.TypedPrompt(t, q.Question, nil)
	e := EpisodeRequest{
		Question: Question{Temperature: q.Temperature, Timeout: timeout, NoTool: q.NoTool}, Task: t, ID: fmt.Sprintf("chat-%016x", rand.Uint64()), Prompt: prompt, Seed: q.Seed,
		Watch: func(m producers.Move) {
			tell(view.ChatMove{Kind: string(m.Kind), Agent: m.Agent, Segment: m.Segment, Text: m.Text, Tool: m.Tool, Call: m.Call, Seconds: m.Took.Seconds(), Failed: m.Failed})
		},
	}
	began := time.Now()
	trajectory, err := m.RunEpisode(ctx, &e)
	if errors.Is(err, generate.ErrUnserved) {
		return nil, fmt.Errorf("no engine of the run took the question within %s: none is up, or all are full. A version whose checkpoint is kept answers without them", chatPatience)
	}
	if err != nil {
		return nil, err
	}
	return c.describeEnd(m.Config, trajectory, &q, unknown, time.Since(began)), nil
}

// describeEnd describes how an episode ended.
func (c *chatter) describeEnd(cfg *config.Config, t *schemas.Trajectory, q *view.ChatQuestion, unknown []string, took time.Duration) *view.ChatEnd {
	end := &view.ChatEnd{
		Notes: []string{}, Answer: t.Answer, Stop: string(t.Stop), Error: t.Error, Oldest: t.OldestVersion(), Newest: t.NewestVersion(), Seconds: took.Seconds(),
	}
	for i := range t.Segments {
		for _, on := range t.Segments[i].ActionMask {
			end.Sampled += int(on)
		}
	}
	if len(unknown) > 0 {
		end.Notes = append(end.Notes, UnknownWordsNote(unknown))
	}
	if q.Version != view.ChatEngines {
		end.Command = c.sameByCommand(cfg, q)
	}
	return end
}

// sameByCommand asks the same version the same on a command line, with the same random numbers.
func (c *chatter) sameByCommand(cfg *config.Config, q *view.ChatQuestion) string {
	usual := config.Default(c.models.parts)
	words := []string{"weir agent run --prompt", view.Quote(q.Question), "--step", q.Version, "--seed", strconv.FormatUint(q.Seed, 10)}
	for _, flag := range []struct{ name, value, usual string }{
		{"--temperature", strconv.FormatFloat(float64(q.Temperature), 'g', -1, 32), "0"},
		{"--task", q.Task, ""},
		{"--agent", q.Agent, ""},
		{"--tools", strings.Join(q.Tools, ","), ""},
		{"--run.name", cfg.Run.Name, usual.Run.Name},
		{"--run.dir", cfg.Run.Dir, usual.Run.Dir},
	} {
		if flag.value != flag.usual {
			words = append(words, flag.name, view.Quote(flag.value))
		}
	}
	if q.NoTool {
		words = append(words, "--no-tool")
	}
	return strings.Join(words, " ")
}

// preparePolicy opens the policy that answers a question, unless it is open since the last question.
func (c *chatter) preparePolicy(ctx context.Context, run *streams.Run, q *view.ChatQuestion) (*LoadedPolicy, error) {
	cfg, err := c.configure()
	if err != nil {
		return nil, fmt.Errorf("read the run's configuration: %w", err)
	}
	if q.Task == "" && len(cfg.Active()) == 1 {
		q.Task = cfg.Active()[0]
	}
	if cfg, err = withParts(cfg, q); err != nil {
		return nil, err
	}
	if err := c.mayOpen(cfg); err != nil {
		return nil, err
	}
	if q.Version != view.ChatNewest {
		return c.openAnswerer(ctx, cfg, run, q)
	}
	for try := 1; ; try++ {
		_, step, err := c.models.under(cfg).Checkpoint(-1)
		if err != nil {
			return nil, err
		}
		q.Version = strconv.FormatInt(step, 10)
		m, err := c.openAnswerer(ctx, cfg, run, q)
		if !errors.Is(err, fs.ErrNotExist) || try == newestTries { // a fast run may have pruned it meanwhile
			return m, err
		}
	}
}

// newestTries is how often the newest checkpoint is looked for.
const newestTries = 5

// openAnswerer opens a version by its number, or the run's engines.
func (c *chatter) openAnswerer(ctx context.Context, cfg *config.Config, run *streams.Run, q *view.ChatQuestion) (*LoadedPolicy, error) {
	want := chatParts{q.Version, q.Task, q.Agent, strings.Join(q.Tools, ",")}
	if c.open != nil && c.open.chosen == want {
		return c.open.LoadedPolicy, nil
	}
	c.releaseModel()
	models := c.models.under(cfg)
	opened, err := models.openCourse(ctx)
	if err != nil {
		return nil, err
	}
	m := &LoadedPolicy{Config: cfg, Log: models.log, Course: opened, Close: func() { _ = opened.Close() }} // sandboxes that do not close end with this process
	if q.Version == view.ChatEngines {
		err = c.mayAsk(run)
	} else {
		m, err = c.loadCheckpoint(ctx, models, opened, run, q.Version)
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	c.open = &openChat{want, m}
	return m, nil
}

// mayAsk says why the run's engines cannot be asked.
func (c *chatter) mayAsk(run *streams.Run) error {
	switch {
	case run == nil:
		return errors.New("the run is not up: choose a version whose checkpoint is kept")
	case c.asks != "":
		return errors.New(c.asks)
	}
	return nil
}

// loadCheckpoint loads a checkpoint into a sampler, which lives until it is released.
func (c *chatter) loadCheckpoint(ctx context.Context, models *Models, opened *Course, run *streams.Run, version string) (*LoadedPolicy, error) {
	step, err := strconv.ParseInt(version, 10, 64)
	if err != nil || step < 0 {
		return nil, fmt.Errorf("version %q: want %s or the number of a version", version, view.ChatEngines)
	}
	if why := c.explainNoLoading(models.cfg, run); why != "" {
		return nil, errors.New(why)
	}
	dir, _, err := models.Checkpoint(step)
	if err != nil {
		return nil, fmt.Errorf("version %d: its checkpoint is not kept any more, choose another: %w", step, fs.ErrNotExist)
	}
	if err := models.hasRoom(dir); err != nil {
		return nil, err
	}
	return models.loadInto(context.WithoutCancel(ctx), opened, dir, step) // the next question uses it, even if the caller of this question is gone
}

// hasRoom refuses a model that does not fit beside this process's present memory.
func (l *Models) hasRoom(dir string) error {
	backend, err := l.cfg.SamplerBackend()
	if err != nil {
		return err
	}
	estimator, ok := backend.(gpu.MemoryEstimator)
	if !ok {
		return nil
	}
	model, err := hf.ReadConfig(dir)
	if err != nil {
		return err
	}
	n := need{cfg: l.cfg, model: model, estimator: estimator}
	memory := append(n.decodingMemory(max(l.cfg.Eval.Concurrency, 8)), gpu.MemoryPart{Name: "what this process has already", Bytes: heldMemory()})
	return fitsMemory(l.memory, backend, memory, func() string { return "Ask the run's engines, or use weir chat on another machine" })
}

// heldMemory is how much memory the Go runtime has from the system.
func heldMemory() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() - sample[1].Value.Uint64())
}

// withParts is the configuration with the agent and the tools of a question in the place of the task's.
func withParts(cfg *config.Config, q *view.ChatQuestion) (*config.Config, error) {
	if !slices.Contains(cfg.Active(), q.Task) {
		return nil, fmt.Errorf("task %q: the run has the tasks %s", q.Task, strings.Join(cfg.Active(), ", "))
	}
	if q.Agent != "" && cfg.Agents[q.Agent] == nil {
		return nil, fmt.Errorf("agent %q: the run's configuration has the agents %s", q.Agent, cmp.Or(strings.Join(slices.Sorted(maps.Keys(cfg.Agents)), ", "), "of its tasks alone"))
	}
	for _, name := range q.Tools {
		if cfg.Tools[name] == nil {
			return nil, fmt.Errorf("tool %q: the run's configuration has the tools %s", name, cmp.Or(strings.Join(slices.Sorted(maps.Keys(cfg.Tools)), ", "), "of its tasks alone"))
		}
	}
	out, own := *cfg, *cfg.Tasks[q.Task]
	own.Agent = cmp.Or(q.Agent, own.Agent)
	if len(q.Tools) > 0 {
		own.Tools = q.Tools
	}
	out.Tasks = maps.Clone(cfg.Tasks)
	out.Tasks[q.Task] = &own
	return &out, nil
}

// releaseModel frees the policy that answered the last question; the lock is held.
func (c *chatter) releaseModel() {
	if c.open != nil {
		c.open.Close()
		c.open = nil
	}
}

// releaseIdle releases a policy that has had no question for a while.
func (c *chatter) releaseIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releaseModel()
}

// Close frees the policy.
func (c *chatter) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		c.idle.Stop()
	}
	c.releaseModel()
	c.closed = true
}

// EmptyQuestion says that a question asks nothing.
func EmptyQuestion(question string) bool { return strings.Trim(question, " \t?") == "" }
