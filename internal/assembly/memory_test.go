package assembly

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/gpu"
	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/internal/config"
	"github.com/weir-rl/weir/internal/machine"
	"github.com/weir-rl/weir/streams"
)

// planned is a session of the easier task on a machine with so much memory.
func planned(t *testing.T, memory int64, change func(*config.Config)) (*Run, *Course, *bytes.Buffer) {
	t.Helper()
	var said bytes.Buffer
	doors := builtin.Doors()
	cfg, _, err := config.Resolve(doors, config.Sources{Tasks: []string{doors.Quick}})
	require.NoError(t, err)
	cfg.Run.Threads = 2 // what the workers take must not depend on the machine
	cfg.Model.Hidden, cfg.Model.Intermediate, cfg.Model.Layers = 512, 1024, 8
	if change != nil {
		change(cfg)
	}
	log := slog.New(slog.DiscardHandler)
	c, err := OpenTasks(t.Context(), doors, cfg, log)
	require.NoError(t, err)
	return &Run{Options: Options{Parts: doors, Memory: machine.Memory{Bytes: memory, From: "of this machine"}, Log: log, Notes: &said}, Config: cfg}, c, &said
}

// needs is what the roles of a session need.
func needs(t *testing.T, s *Run, c *Course, roles ...streams.Role) *need {
	t.Helper()
	model, err := modelConfig(s.Config, c, true)
	require.NoError(t, err)
	backend, err := s.Config.Backend()
	require.NoError(t, err)
	return &need{cfg: s.Config, model: model, estimator: backend.(gpu.MemoryEstimator), roles: roles}
}

func TestARunThatCannotFitIsRefusedWithWhatToChange(t *testing.T) {
	t.Parallel()
	both := []streams.Role{streams.RoleTrainer, streams.RoleInference}
	s, c, said := planned(t, 0, nil)
	require.NoError(t, s.checkMemory(c, both...), "what the machine has is not known")
	require.Regexp(t, `^this needs \d\.\d GB: weights 0\.1, packed weights 0\.1, gradients 0\.1, moments 0\.2, activations \d\.\d, `, said.String())

	s, c, _ = planned(t, 1<<40, nil)
	require.NoError(t, s.checkMemory(c, both...))
	require.NoError(t, s.checkMemory(c, streams.RoleProducer))

	s, c, _ = planned(t, 1200e6, nil)
	err := s.checkMemory(c, streams.RoleTrainer)
	require.ErrorContains(t, err, "this needs ")
	require.ErrorContains(t, err, "the memory of this machine is 1.2 GB. It fits with --trainer.micro_tokens ")

	// What is advised fits.
	advised := needs(t, s, c, streams.RoleTrainer).adviseFit(1200e6 - processBytes)
	var tokens, cold int
	_, err = fmt.Sscanf(advised, "It fits with --trainer.micro_tokens %d --trainer.cold_start.micro_tokens %d", &tokens, &cold)
	require.NoError(t, err, advised)
	s, c, _ = planned(t, 1200e6, func(cfg *config.Config) {
		cfg.Trainer.MicroTokens, cfg.Trainer.ColdStart.MicroTokens = tokens, cold
	})
	require.NoError(t, s.checkMemory(c, streams.RoleTrainer))
	s, c, _ = planned(t, 1200e6, func(cfg *config.Config) {
		cfg.Trainer.MicroTokens, cfg.Trainer.ColdStart.MicroTokens = tokens+40, cold+40
	})
	require.Error(t, s.checkMemory(c, streams.RoleTrainer))

	s, c, _ = planned(t, 300e6, nil)
	err = s.checkMemory(c, both...)
	require.ErrorContains(t, err, "Even with --native.recompute --trainer.micro_tokens ")
	require.ErrorContains(t, err, "Run the roles on machines of their own")
	require.ErrorContains(t, s.checkMemory(c, streams.RoleInference), "--inference.slots ")
}

func TestACriticAndAReferencePolicyAreCounted(t *testing.T) {
	t.Parallel()
	total := func(change func(*config.Config)) int64 {
		s, c, _ := planned(t, 0, change)
		return needs(t, s, c, streams.RoleTrainer).totalMemory().Total()
	}
	plain := total(nil)
	require.Greater(t, total(func(cfg *config.Config) { cfg.Trainer.Critic.Network = "own" }), plain+plain/2)
	require.Greater(t, total(func(cfg *config.Config) { cfg.Trainer.Loss.KL.Coef = 0.1 }), plain)
	require.Less(t, total(func(cfg *config.Config) { cfg.Eval.Every = 0 }), plain)
}
