//go:build amd64 || arm64

package sandbox

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/producers"
)

// stagedPools are pools of the tiers whose programs the stage becomes.
func stagedPools(t *testing.T) map[string]*Pool {
	t.Helper()
	pools := map[string]*Pool{}
	for i, tier := range []string{TierLandlock, TierNone} {
		if tier == TierLandlock && landlockVersion() < 1 {
			t.Log("NO LANDLOCK in this kernel, so nothing of it is tested")
			continue
		}
		cfg := Default()
		cfg.Tier, cfg.FirstUID = tier, testUID+6000+1000*i
		if tier == TierNone {
			cfg.Unsafe = Understood
		}
		p, err := Open(guard(t), cfg)
		require.NoError(t, err, tier)
		t.Cleanup(func() { require.NoError(t, p.Close()) })
		pools[tier] = p
	}
	return pools
}

// Finding 13.7 of the thirteenth reader: the stage is beyond the limit of memory that it sets, so that now and then its runtime could not grow
// and crashed, which was told as the program's end. Finding 13.8: a program that ended at once was now and then not started.
func TestEveryStartBecomesItsProgram(t *testing.T) {
	t.Parallel()
	starts := 100
	if fulltest.Enabled() {
		starts = 2000
	}
	for tier, p := range stagedPools(t) {
		for range starts {
			process, err := p.Start(guard(t), Spec{Argv: []string{"sh", "-c", "echo hi"}})
			require.NoError(t, err, tier)
			faults := make(chan string, 1)
			go func() {
				text, _ := io.ReadAll(process.Stderr)
				faults <- string(text)
			}()
			said, err := io.ReadAll(process.Stdout)
			require.NoError(t, err)
			require.Equal(t, "hi\n", string(said), <-faults)
			exit, err := process.Wait(guard(t))
			process.Close()
			require.NoError(t, err)
			require.Equal(t, Exit{}, exit, tier)
		}
	}
}

// Finding 13.7 of the thirteenth reader: a stage that ended before it became the program was told as the program's own end, which an agent is
// trained on. A program that cannot be found, or that the kernel cannot start, is the program's own fault, as in tier full.
func TestAStageThatEndsIsNotItsProgramsEnd(t *testing.T) {
	t.Parallel()
	for tier, p := range stagedPools(t) {
		for name, c := range map[string]struct {
			spec    Spec
			started bool
		}{
			"a program":                 {Spec{Argv: []string{"true"}}, true},
			"no program":                {Spec{Argv: []string{"no-such-program"}}, true},
			"a program that is no file": {Spec{Argv: []string{"/usr"}}, true},
			"a program of no format":    {Spec{Argv: []string{"./script"}, Files: map[string][]byte{"script": []byte("echo")}}, true},
			"what it is to see is gone": {Spec{Argv: []string{"true"}, Binds: map[string]string{"/nonexistent/gone": "/nonexistent/gone"}}, tier == TierNone},
		} {
			process, err := p.Start(guard(t), c.spec)
			if !c.started {
				require.ErrorIs(t, err, producers.ErrUnavailable, name)
				require.ErrorContains(t, err, "restrict the file system", name)
				continue
			}
			require.NoError(t, err, "%s: %s", tier, name)
			exit, err := process.Wait(guard(t))
			process.Close()
			require.NoError(t, err)
			require.Equal(t, c.spec.Argv[0] == "true", exit.Code == 0, "%s: %s: %v", tier, name, exit)
		}
		require.Eventually(t, func() bool { return p.Stats().Running == 0 }, time.Minute, 10*time.Millisecond, "every place is free again")
	}
}
