package cli

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/fault"
	"github.com/weir-rl/weir/internal/operate"
	"github.com/weir-rl/weir/schemas"
	"github.com/weir-rl/weir/streams"
)

func newControlCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "control pause|resume|drain|eta N|depth N|limits KEY=VALUE...", Short: "Pause or drain a live run, or change its bounds", Args: cobra.MinimumNArgs(1),
		Long: `Control changes how a live run goes on. pause stops producers from taking tickets, and running rollouts go on; resume
lets them take tickets again. drain has every role finish its work and stop: the command that began the run goes on
with it later. eta is the staleness bound and depth the pipeline depth, in versions: the trainer adopts them with its
next step, and they hold over restarts until the configuration changes. Each act is an event, which weir status
--follow and the run's page show, and what the trainer adopts stands in the record of its next step.

limits sets max_turns, max_tokens, timeout, max_total_tokens and max_segments of episodes: those of the task that --task
names, else of every task. Tickets that are issued from the trainer's next step on carry them, and they hold over
restarts until a limit in the configuration changes; the word configured takes back what was set. What the run cannot
keep, such as a limit of a task that it does not have, is refused here where the run's folder is at hand, and else by
the trainer, with an event.

On a broker with keys it needs the seed of the admin, or of another role that --role names: the trainer's will do.`,
		Example: "  weir control pause\n  weir control eta 6 --run.name mine\n  weir control drain --broker.url nats://broker:4222\n  weir control limits max_turns=6 timeout=90s --task math\n  weir control limits configured",
	}
	role := cmd.Flags().String("role", string(streams.RoleAdmin), "whose key broker.seed_file is: admin or trainer")
	task := cmd.Flags().String("task", "", "with limits: whose episodes they bound, if not every task's")
	format := outputFlag(cmd)
	cmd.ValidArgs = []string{"pause", "resume", "drain", "eta", "depth", "limits"}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if wrong := negativeBound(cmd.Flags().Args(), err); wrong != nil {
			return fault.Usage(wrong)
		}
		return a.explainFlagError(cmd, err)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		act, err := parseAct(args, *task)
		if err == nil {
			err = act.Validate()
		}
		if err != nil {
			return fault.Usage(err)
		}
		as := streams.Role(*role)
		if as != streams.RoleAdmin && as != streams.RoleTrainer {
			return fault.Usagef("--role %q: want admin or trainer", *role)
		}
		s, err := a.openProcess(cmd)
		if err != nil {
			return err
		}
		if err := s.Viewer().KnownOf(s.Config.Folder()).Check(*act); err != nil {
			return fault.Usage(err)
		}
		done, err := actOn(cmd.Context(), s, as, *act)
		if err != nil {
			return err
		}
		return a.printAct(done, format.isJSON())
	}
	return cmd
}

// actOn has the run's broker take an act.
func actOn(ctx context.Context, s *assembly.Run, as streams.Role, act operate.Act) (*operate.Done, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if url := assembly.NotedBroker(s.Config.Folder()); url != "" && s.Config.Broker.URL == "" {
		s.Config.Broker.URL = url
	}
	conn, err := s.Connector().ConnectSoon(ctx, as)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	run, err := conn.Attach(ctx, s.Config.Run.Name)
	if err != nil {
		return nil, assembly.ExplainAbsent(ctx, conn, s.Connector().URL(), err)
	}
	return operate.Do(ctx, run, act, operatorName(), time.Now())
}

// printAct prints the changes of an act.
func (w *console) printAct(done *operate.Done, asJSON bool) error {
	if asJSON {
		return w.printJSON(struct {
			Changes []string `json:"changes"`
			Paused  bool     `json:"paused"`
			Drain   bool     `json:"draining"`
			Eta     int      `json:"eta"`
			Depth   int      `json:"depth"`
			Limits  []string `json:"limits"`
		}{done.Changes, done.Control.Paused, done.Control.Draining, done.Control.Eta, done.Control.Depth, limitTexts(done.Control.Limits)})
	}
	if len(done.Changes) == 0 {
		fmt.Fprintln(w.out, "that is so already")
		return nil
	}
	fmt.Fprintln(w.out, strings.Join(done.Changes, "\n"))
	return nil
}

// negativeBound is the error of a number below 0 after the words of an act, which the flags' parser takes for a flag; nil where err is of
// another kind.
func negativeBound(words []string, err error) error {
	_, flag, found := strings.Cut(err.Error(), " in -")
	_, other := strconv.Atoi(flag)
	if !found || other != nil || len(words) != 1 {
		return nil //nolint:nilerr // the caller has the error
	}
	act, wrong := parseAct([]string{words[0], "-" + flag}, "")
	if wrong == nil {
		wrong = act.Validate()
	}
	return wrong
}

// operatorName names whoever acts, for the event.
func operatorName() string {
	name := os.Getenv("USER")
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	if name == "" {
		return host
	}
	return name + "@" + host
}

// limitTexts are limits that operators have set, in words; empty where there is none.
func limitTexts(set []schemas.Limit) []string {
	out := []string{}
	for _, l := range set {
		out = append(out, l.Name()+": "+l.Text())
	}
	return out
}

// parseAct reads the words of an act; task is that of --task.
func parseAct(args []string, task string) (*operate.Act, error) {
	word := args[0]
	if word == "limits" {
		limits, err := operate.ParseLimits(task, args[1:])
		return &operate.Act{Limits: limits}, err
	}
	if task != "" {
		return nil, fmt.Errorf("--task %q: %s is of the whole run; --task goes with limits", task, word)
	}
	if len(args) > 2 {
		return nil, fmt.Errorf("%s: %d words too many: %q", word, len(args)-2, args[2:])
	}
	switch word {
	case "pause", "resume", "drain":
		if len(args) > 1 {
			return nil, fmt.Errorf("%s takes no number", word)
		}
		if word == "drain" {
			return &operate.Act{Draining: new(true)}, nil
		}
		return &operate.Act{Paused: new(word == "pause")}, nil
	case "eta", "depth":
		if len(args) < 2 {
			return nil, fmt.Errorf("%s: want a number of versions, such as %s 4", word, word)
		}
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return nil, fmt.Errorf("%s %q: want a number of versions", word, args[1])
		}
		if word == "eta" {
			return &operate.Act{Eta: &n}, nil
		}
		return &operate.Act{Depth: &n}, nil
	}
	return nil, fmt.Errorf("no act %q: want pause, resume, drain, eta, depth or limits", word)
}
