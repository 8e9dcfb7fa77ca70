//go:build amd64 || arm64

package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The tier of machines without namespaces holds files and sockets; the tier that holds nothing is what it is held against.
func TestLandlockHoldsFilesAndSockets(t *testing.T) {
	if landlockVersion() < 1 {
		t.Skip("NO LANDLOCK in this kernel, so nothing of this test is tested")
	}
	const code = "import os,socket\ndef see(f):\n  try: return f()\n  except OSError as e: return e.errno\n" +
		"print(see(lambda: bool(open('/etc/passwd').read())), see(lambda: bool(socket.socket())), see(lambda: open('x','w').write('1')), see(lambda: os.fork() and 1))"
	for tier, want := range map[string]string{TierLandlock: "13 97 1 1\n", TierNone: "True True 1 1\n"} {
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
