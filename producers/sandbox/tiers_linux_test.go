//go:build amd64 || arm64

package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// others sets what another process of the same user may do. Finding A7 of the agents' review: Landlock keeps signals from processes outside of the sandbox,
// and neither limits, priorities nor processors.
const others = `
import resource, time
p = os.fork()
if p == 0: time.sleep(1000)
print(see(lambda: resource.prlimit(p, resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)) and 0), see(lambda: os.setpriority(os.PRIO_PROCESS, p, 19) or 0),
    see(lambda: os.sched_setaffinity(p, os.sched_getaffinity(0)) or 0), see(lambda: os.sched_setscheduler(p, os.SCHED_BATCH, os.sched_param(0)) or 0))
os.kill(p, 9)`

// The tier of machines without namespaces holds files and sockets; the tier that holds nothing is what it is held against.
func TestLandlockHoldsFilesAndSockets(t *testing.T) {
	if landlockVersion() < 1 {
		t.Skip("NO LANDLOCK in this kernel, so nothing of this test is tested")
	}
	const code = "import os,socket\ndef see(f):\n  try: return f()\n  except OSError as e: return e.errno\n" +
		"print(see(lambda: bool(open('/etc/passwd').read())), see(lambda: bool(socket.socket())), see(lambda: open('x','w').write('1')), see(lambda: os.fork() and 1))\n" + others
	for tier, want := range map[string]string{TierLandlock: "13 97 1 1\n1 1 1 1\n", TierNone: "True True 1 1\n0 0 0 0\n"} {
		cfg := Default()
		cfg.Tier, cfg.FirstUID = tier, testUID+2000
		if tier == TierNone {
			cfg.Unsafe = Understood
		}
		p, err := Open(guard(t), cfg)
		require.NoError(t, err, tier)
		text, exit := say(t, p, Spec{}, code)
		require.Equal(t, Exit{}, exit)
		require.Contains(t, text, want, tier)
		require.NoError(t, p.Close())
	}
	cfg := Default()
	cfg.Tier = TierNone
	_, err := Open(guard(t), cfg)
	require.ErrorContains(t, err, "i-understand")
}
