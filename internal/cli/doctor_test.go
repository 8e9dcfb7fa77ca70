package cli

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/doctor"
)

// doctorSays is the answer of weir doctor in JSON.
type doctorSays struct {
	OK     bool          `json:"ok"`
	Checks []doctor.Line `json:"checks"`
}

// The demonstration runs wherever its tests do, whatever else the machine lacks.
func TestDoctorFindsThatTheDemonstrationRunsHere(t *testing.T) {
	t.Parallel()
	var says doctorSays
	require.NoError(t, json.Unmarshal([]byte(weir(t, "doctor", "-o", "json", "--run.dir", t.TempDir())), &says))
	require.True(t, says.OK)
	var names []string
	for _, l := range says.Checks {
		names = append(names, l.Check)
		require.NotEqual(t, doctor.Fail, l.Verdict, l)
	}
	require.Subset(t, names, []string{"python", "torch", "cuda", "memory", "disk", "sandbox", "broker", "clock"})
	require.Contains(t, weir(t, "doctor", "--run.dir", t.TempDir()), "weir up has one of its own")
}

func TestDoctorEndsWithOneWhereSomethingIsMissing(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := exec.CommandContext(t.Context(), binary(t), "doctor", "-o", "json", "--broker.url", "nats://127.0.0.1:1")
	c.Stdout = &out
	require.Error(t, c.Run())
	require.Equal(t, exitRuntime, c.ProcessState.ExitCode())
	var says doctorSays
	require.NoError(t, json.Unmarshal(out.Bytes(), &says))
	require.False(t, says.OK)
}
