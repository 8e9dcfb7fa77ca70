package learner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/trainer/advantage"
	"github.com/weir-rl/weir/trainer/batch"
	"github.com/weir-rl/weir/trainer/loss"
)

// Learner trains a policy. It must not be called by several goroutines at once.
type Learner struct {
	cfg  Config
	deps Deps
	// credit estimates advantages, objective is the loss.
	credit    *creditAssigner
	objective *objective
	// critic is nil if none is configured. reference is the frozen policy of the KL term; nil until OpenReference, and if no term reads it.
	critic    *critic
	reference gpu.Engine
	// random shuffles the minibatches.
	random *rand.PCG
}

// Deps are a Learner's dependencies.
type Deps struct {
	// Engine is the policy that is trained. It is not closed.
	Engine gpu.Engine
	// NewEngine makes an engine of a given shape, which the Learner fills and closes: the frozen reference, and a critic
	// that is a network of its own. It may be nil where the configuration has neither.
	NewEngine func(gpu.Config) (gpu.Engine, error)
	// Scratch is a folder for files that an engine writes and another engine reads at once. It must be missing or empty, and is removed
	// again; "" is a temporary folder of the system.
	Scratch string
	// Tokenizer is the policy's tokenizer.json, which a critic from a folder must share; nil is not compared.
	Tokenizer []byte
	// KeepTokens has Learn return its results for each token: Stats.Tokens.
	KeepTokens bool
	// Log defaults to none.
	Log *slog.Logger
	// Now defaults to time.Now; it measures, and decides nothing.
	Now func() time.Time
}

// New makes a learner whose policy is the engine's, and checks that the engine, the estimator and the loss fit together.
// A critic that is a network of its own, and the reference, are opened by Restore and OpenReference.
func New(cfg Config, deps Deps) (*Learner, error) {
	if deps.Engine == nil {
		return nil, errors.New("a learner needs Deps.Engine")
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	l := &Learner{cfg: cfg, deps: deps, random: rand.NewPCG(cfg.Seed, 0)}
	var err error
	if l.credit, err = newCredit(cfg); err != nil {
		return nil, err
	}
	if l.objective, err = newObjective(cfg); err != nil {
		return nil, err
	}
	if l.objective.NeedsReference() && deps.NewEngine == nil {
		return nil, errors.New("loss: the KL term needs a reference policy, and there is no engine for it")
	}
	if l.critic, err = newCritic(cfg, deps); err != nil {
		return nil, err
	}
	return l, nil
}

// step is the state of a call of Learn. Each stage reads fields that earlier stages set.
type step struct {
	*Learner
	// version counts the steps done before.
	version int64
	// rows are the batch laid end to end. A stage that changes an array puts a new Rows here.
	rows *batch.Rows
	// tools are the tokens that are trained on although no policy sampled them.
	tools []int
	// before has the outputs from before the first update, result the advantages and the critic's targets.
	before evaluation
	result advantage.Result
	stats  *Stats
	// loss is the scratch memory of the loss's gradients.
	loss loss.Result
}

// Learn trains the policy on a batch: one policy version more. b.Version counts the steps done before, on which the schedules depend. An
// error whose fault lies in a single trajectory of the batch is a *[TrajectoryError]; after any error the engine may hold a part of a
// gradient, which Discard drops.
func (l *Learner) Learn(ctx context.Context, b *batch.Batch) (*Stats, error) {
	s := l.beginStep(b)
	if err := s.trainOnBatch(ctx, b); err != nil {
		return nil, findTrajectory(ctx, err, b, s.rows)
	}
	s.keepTokens()
	return s.stats, nil
}

func (s *step) trainOnBatch(ctx context.Context, b *batch.Batch) error {
	if err := s.evaluateBatch(ctx); err != nil {
		return err
	}
	if err := s.assignCredit(ctx); err != nil {
		return err
	}
	s.stats.Advantages = meanAdvantages(s.rows, s.result.Advantages)
	// A silenced trajectory has counted in its group's advantages, and leaves the loss only now.
	s.rows = s.rows.Silenced(s.cfg.silencedTrajectories(b))
	return s.updatePolicy(ctx)
}

// beginStep lays a batch out.
func (l *Learner) beginStep(b *batch.Batch) *step {
	s := &step{Learner: l, version: b.Version, rows: batch.NewRows(b), stats: newStats()}
	s.stats.sampler.elsewhere = sampledElsewhere(b)
	s.selectTokens()
	if l.deps.KeepTokens {
		s.stats.Tokens = &Tokens{Rows: s.rows, Last: make([]float64, len(s.rows.Tokens))}
	}
	return s
}

// selectTokens extends the masks, which have the sampled tokens, to every token: of the loss, of the estimator, or of both.
func (s *step) selectTokens() {
	if s.cfg.MaskTools && !s.cfg.creditsTools() {
		return
	}
	sampled := s.rows.Mask
	unmasked, tools := s.rows.Unmasked()
	switch {
	case s.cfg.MaskTools:
		s.rows = s.rows.CreditedOver(unmasked.Mask)
	case s.cfg.creditsTools():
		s.rows, s.tools = unmasked, tools
	default:
		s.rows, s.tools = unmasked.CreditedOver(sampled), tools
	}
}

// evaluateBatch computes the inputs that stand before the first update: the proximal policy, against which ratios are taken, and the
// outputs of the critic, the reference and the sampling policy that the advantages and the loss read.
func (s *step) evaluateBatch(ctx context.Context) error {
	began := s.deps.Now()
	defer func() { s.stats.Before = s.deps.Now().Sub(began) }()
	return runStages(ctx, []stage{
		{"log-probabilities of the old policy", s.evaluatePolicy},
		{"values of the critic", s.evaluateCritic},
		{"log-probabilities of the reference policy", s.evaluateReference},
		{"value of what follows a rollout that was cut off", s.bootstrapValues},
		{"weigh actions by duration", s.weighDurations},
		// The next two stages read the behaviour that this stage completes.
		{"behaviour at the tokens of tools", s.completeBehaviour},
		{"measure how far sampling and training are apart", s.measureOffPolicy},
		{"weigh what an older policy sampled", s.weighImportance},
	})
}

// assignCredit estimates the advantages once for the whole batch. If the KL term goes into the rewards, it is subtracted first.
func (s *step) assignCredit(ctx context.Context) error {
	return runStages(ctx, []stage{
		{"penalize rewards by KL", s.penalizeRewards},
		{"estimate advantages by " + s.credit.Name(), s.estimateAdvantages},
		{"normalize advantages", s.normalizeAdvantages},
		{"compare the critic with its targets", s.explainVariance},
	})
}

// stage is a part of a step, by the name that its errors begin with.
type stage struct {
	name string
	do   func(context.Context) error
}

// runStages does stages in order, up to the first that fails.
func runStages(ctx context.Context, stages []stage) error {
	for _, st := range stages {
		if err := st.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
	}
	return nil
}

// Close closes the reference and a critic that is a network of its own.
func (l *Learner) Close() error {
	var errs []error
	if l.reference != nil {
		errs = append(errs, l.reference.Close())
	}
	if l.critic.isNetwork() && l.critic.engine != nil {
		errs = append(errs, l.critic.engine.Close())
	}
	return errors.Join(errs...)
}
