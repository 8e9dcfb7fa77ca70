package selfplay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/weir-rl/weir/internal/check"
	"github.com/weir-rl/weir/producers"
	"github.com/weir-rl/weir/producers/agents/search"
	"github.com/weir-rl/weir/producers/rewards"
	"github.com/weir-rl/weir/schemas"
)

// The keys of [schemas.Prompt.Meta] that make a prompt a game.
const (
	// MetaDocument is the text that the question is about, and MetaAnswer the answer that it must have.
	MetaDocument = "document"
	MetaAnswer   = "answer"
	// MetaNoise is text of other documents, which the verifier is shown beside the document, so that a question which fits several is
	// answered wrongly; "" is none.
	MetaNoise = "noise"
)

// The names of the parts, as segments and rewards have them.
const (
	Proposer = "proposer"
	Verifier = "verifier"
)

// Solver is the name of a solver, counted from 1.
func Solver(number int) string { return solverPrefix + strconv.Itoa(number) }

// IsSolver reports whether a part is a solver's.
func IsSolver(name string) bool { return strings.HasPrefix(name, solverPrefix) }

const solverPrefix = "solver-"

// maxSolvers bounds the solvers of an episode: each has a reward and a context of its own.
const maxSolvers = 64

// Config says how many solvers there are, and how all parts speak.
type Config struct {
	// Solvers answer each question, each in a context of its own. They share the tool calls that the limits of the task allow, and so does
	// the proposer where it searches: each part may make an equal number, at least 1. Defaults to 4.
	Solvers int `koanf:"solvers"`
	// ProposerSearches lets the proposer search before it writes its question. Defaults to false.
	ProposerSearches bool `koanf:"proposer_searches"`
	// Config says how the parts search and answer.
	search.Config `koanf:",squash"`
}

// DefaultConfig has four solvers.
func DefaultConfig() Config { return Config{Solvers: 4, Config: search.DefaultConfig()} }

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(check.Between("solvers", c.Solvers, 1, maxSolvers), c.Config.Validate())
}

// Agent is a producers.Agent; it keeps nothing between episodes.
type Agent struct {
	cfg    Config
	search *search.Agent
}

// New makes the agent for a tokenizer.
func New(cfg Config, tok producers.Tokenizer) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("selfplay agent: %w", err)
	}
	inner, err := search.New(cfg.Config, tok)
	if err != nil {
		return nil, fmt.Errorf("selfplay agent: %w", err)
	}
	return &Agent{cfg, inner}, nil
}

// Opening are the tokens that each episode of a prompt begins with: in the proposer's context, or for the plain question.
func (a *Agent) Opening(p schemas.Prompt) []int32 { return a.search.Opening(p) }

// Format says how contexts are written.
func (a *Agent) Format() producers.Format { return a.search.Format() }

// Run plays a game, or answers a plain question.
func (a *Agent) Run(ctx context.Context, e *producers.Episode) error {
	prompt := e.Prompt()
	g := &game{Agent: a, episode: e, prompt: prompt}
	if prompt.Meta[MetaDocument] == "" || prompt.Meta[MetaAnswer] == "" {
		return g.answerAlone(ctx)
	}
	question, stop, err := g.proposeQuestion(ctx)
	if err != nil {
		return err
	}
	switch {
	case stop != schemas.StopAnswer || GivesAway(question, prompt.Meta[MetaAnswer]):
		e.Finish(question, stop)
		return nil
	case len(a.search.BeginPlain(question, false)) == 0: // tags alone
		e.Finish("", schemas.StopFormat)
		return nil
	}
	valid, err := g.verifyQuestion(ctx, question)
	if err != nil {
		return err
	}
	if valid {
		if err := g.solveQuestion(ctx, question); err != nil {
			return err
		}
	}
	e.Finish(question, schemas.StopAnswer)
	return nil
}

// game is an episode of several parts.
type game struct {
	*Agent
	episode *producers.Episode
	prompt  schemas.Prompt
	found   []string // the words of the proposer's searches
}

// searchShare returns how many searches each part that searches may make; 0 when the limits allow none.
func (g *game) searchShare() int {
	parts := g.cfg.Solvers
	if g.cfg.ProposerSearches {
		parts++
	}
	if !g.search.Searches(g.episode) {
		return 0
	}
	return max(1, g.episode.Limits().MaxTurns/parts)
}

// answerAlone answers a plain question as a solver does.
func (g *game) answerAlone(ctx context.Context) error {
	course := g.solverCourse()
	c, err := g.episode.Open("", g.search.Begin(g.prompt.Text, course.ClosedBook))
	if err != nil {
		return err
	}
	answer, stop, err := g.search.Drive(ctx, c, course)
	if err != nil {
		return err
	}
	g.episode.Finish(answer, stop)
	return nil
}

// solverCourse returns the course of a solver.
func (g *game) solverCourse() search.Course {
	share := g.searchShare()
	return search.Course{Searches: share, ClosedBook: share == 0}
}

// proposeQuestion has the proposer write a question; a stop other than [schemas.StopAnswer] is why there is none.
func (g *game) proposeQuestion(ctx context.Context) (question string, stop schemas.StopReason, err error) {
	c, err := g.episode.Open(Proposer, g.search.Begin(g.prompt.Text, false))
	if err != nil {
		return "", "", err
	}
	course := search.Course{Searches: -1}
	if share := g.searchShare(); g.cfg.ProposerSearches && share > 0 {
		course.Searches = share
	}
	course.Found = func(text string) { g.found = append(g.found, text) }
	question, stop, err = g.playPart(ctx, c, course)
	return question, stop, err
}

// verifyQuestion reports whether the verifier, which reads the document, answers the question rightly.
func (g *game) verifyQuestion(ctx context.Context, question string) (bool, error) {
	texts := []string{g.prompt.Meta[MetaDocument]}
	for _, found := range g.found {
		if !slices.Contains(texts, found) {
			texts = append(texts, found)
		}
	}
	if noise := g.prompt.Meta[MetaNoise]; noise != "" {
		texts = append(texts, noise)
	}
	c, err := g.episode.Open(Verifier, g.search.BeginPlain(strings.Join(append(texts, question), " "), true))
	if stopped := (*producers.StoppedError)(nil); errors.As(err, &stopped) && stopped.Reason == schemas.StopTokens {
		return false, nil // the documents leave no room for the question
	}
	if err != nil {
		return false, err
	}
	answer, _, err := g.playPart(ctx, c, search.Course{ClosedBook: true})
	return Right(answer, g.prompt.Meta[MetaAnswer]), err
}

// solveQuestion has every solver answer the question.
func (g *game) solveQuestion(ctx context.Context, question string) error {
	course := g.solverCourse()
	var contexts []*producers.Context
	for i := range g.cfg.Solvers {
		c, err := g.episode.Open(Solver(i+1), g.search.BeginPlain(question, course.ClosedBook))
		if err != nil {
			return err
		}
		contexts = append(contexts, c)
	}
	solving, ctx := errgroup.WithContext(ctx)
	for _, c := range contexts {
		solving.Go(func() error { // a panic of the run's tokenizer must not end the process
			return producers.Guard(func() error {
				_, _, err := g.playPart(ctx, c, course)
				return err
			})
		})
	}
	return solving.Wait()
}

// playPart drives a part, and notes its answer. A limit that the part runs into ends the part alone.
func (g *game) playPart(ctx context.Context, c *producers.Context, course search.Course) (answer string, stop schemas.StopReason, err error) {
	answer, stop, err = g.search.Drive(ctx, c, course)
	if stopped := (*producers.StoppedError)(nil); errors.As(err, &stopped) {
		answer, stop, err = "", stopped.Reason, nil
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", c.Agent(), err)
	}
	c.Answer(answer)
	return answer, stop, nil
}

// Right reports whether an answer is the answer that the question must have, in other spellings too.
func Right(answer string, golds ...string) bool {
	return rewards.Words(answer) != "" && rewards.ExactMatch(rewards.Words, answer, golds) == 1
}

// GivesAway reports whether a question holds its answer.
func GivesAway(question, answer string) bool {
	return strings.Contains(" "+rewards.Words(question)+" ", " "+rewards.Words(answer)+" ")
}
