package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/builtin"
	"github.com/weir-rl/weir/producers/agents/outside"
	"github.com/weir-rl/weir/producers/remote"
	"github.com/weir-rl/weir/producers/rewards/httpreward"
	"github.com/weir-rl/weir/producers/tools/httptool"
)

const withServices = `services:
  judge: {url: "http://judge:8000/v1", retries: 5, token_env: JUDGE_TOKEN}
  idle: {url: "http://idle"}
tasks:
  library:
    agent: mine
    tools: [calculator, search]
    reward: {type: http, url: judge}
agents:
  mine: {type: http, service: {url: judge}}
tools:
  calculator: {type: http, url: "http://127.0.0.1:8900/calculator"}
`

// Sections that name a service call it as the section of services says, and where that says nothing as they call any; an address stands for
// itself.
func TestServicesAreNamedOnce(t *testing.T) {
	t.Parallel()
	cfg, origins, err := Resolve(builtin.Doors(), Sources{Files: []string{writeFile(t, withServices)}})
	require.NoError(t, err)
	require.NoError(t, cfg.Finish())
	want := remote.DefaultConfig()
	want.URL, want.Retries, want.TokenEnv = "http://judge:8000/v1", 5, "JUDGE_TOKEN"
	require.Equal(t, want, cfg.Tasks["library"].Reward.Own.(*httpreward.Config).Connection())
	want.AttemptTimeout, want.Concurrency = 10*time.Minute, 1024
	require.Equal(t, want, cfg.Agents["mine"].Own.(*outside.HTTPConfig).Service.Connection())
	inline := remote.DefaultConfig()
	inline.URL = "http://127.0.0.1:8900/calculator"
	require.Equal(t, inline, cfg.Tools["calculator"].Own.(*httptool.Config).Connection())
	values := Values(cfg)
	require.Equal(t, "judge", values["tasks.library.reward.url"])
	require.Equal(t, 5, values["services.judge.retries"])
	require.NotContains(t, values, "tools.calculator.retries")
	var unread []string
	for _, e := range cfg.Unread(origins) {
		unread = append(unread, e.Key+": "+e.Problem)
	}
	require.Equal(t, []string{"services.idle.url: no url is idle"}, unread)
	require.Equal(t, "URL is the service's address, http or https, without a user and password: passwords would be shown in logs.",
		cfg.Meaning("services.judge.url"))
}

func TestAServiceThatThereIsNotIsRefused(t *testing.T) {
	t.Parallel()
	for key, c := range map[string]struct{ value, want string }{
		"tools.calculator.url":        {"jugde", `tools.calculator.url: "jugde": no section of services has this name, and it is no address such as http://`},
		"tasks.library.reward.url":    {"ftp://judge", `tasks.library.reward.url: "ftp://judge": want http:// or https://`},
		"services.judge.url":          {"judge", `services.judge.url: "judge": want http:// or https://`},
		"services.judge.retries":      {"21", "services.judge.retries: 21: must be between -1 and 20"},
		"services.judge.token_file":   {"token", `services.judge.token_env: "JUDGE_TOKEN": token_file is set too`},
		"services.Judge.url":          {"http://judge", "services.Judge: want up to 32 lower-case letters"},
		"tools.calculator.retries":    {"3", "this key is gone: use services.NAME.retries, and NAME as tools.calculator.url"},
		"agents.mine.service.retries": {"3", "this key is gone: use services.NAME.retries, and NAME as agents.mine.service.url"},
	} {
		cfg, _, err := Resolve(builtin.Doors(), Sources{Files: []string{writeFile(t, withServices)}, Flags: map[string]string{key: c.value}})
		if err == nil {
			err = cfg.Finish()
		}
		require.ErrorContains(t, err, c.want, key)
	}
}
