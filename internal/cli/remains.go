package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-rl/weir/internal/assembly"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/streams"
)

// explainByFolder adds to an error about a run that was looked for and not found what the run's folder shows, and the commands to type
// next. elsewhere is what to do where the run is on another machine.
func (a *app) explainByFolder(s *assembly.Run, remains runfolder.Remains, elsewhere string, err error) error {
	cfg := s.Config
	lines := remains.Lines(time.Now())
	if others := listOtherRuns(cfg.Run.Dir, cfg.Run.Name); !remains.There && others != "" {
		lines = append(lines, "other runs in "+cfg.Run.Dir+": "+report.Plain(others))
	}
	lines = append(lines, a.nextCommands(s, &remains)...)
	if !remains.Finished() && !remains.Up {
		lines = append(lines, "elsewhere      "+elsewhere)
	}
	return fmt.Errorf("run %s: %w\n  %s", cfg.Run.Name, err, strings.Join(lines, "\n  "))
}

// readRemains reads what the run's folder shows. noted is the broker that the folder names, and up reports that it answers.
func readRemains(s *assembly.Run, noted string, up bool) runfolder.Remains {
	cfg := s.Config
	r := runfolder.ReadRemains(runfolder.Run{Name: cfg.Run.Name, Dir: cfg.Folder(), Checkpoints: cfg.Trainer.Checkpoint.Dir})
	r.Noted, r.Up = noted, up
	return r
}

// explainNoStatus adds what the run's folder shows where the run's broker does not answer or does not have the run. named reports whether the
// user named the broker: then the folder is left out where it is no run's.
func (a *app) explainNoStatus(s *assembly.Run, named bool, noted string, err error) error {
	absent := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, streams.ErrNoRun)
	if !absent || named && !runfolder.Is(s.Config.Folder()) {
		return err
	}
	elsewhere := fmt.Sprintf("weir status%s --broker.url URL, where its broker is on another machine", a.runFlags(s))
	return a.explainByFolder(s, readRemains(s, noted, false), elsewhere, err)
}

// explainNoFiles adds what the run's folder shows to the error of a command that reads files of the run: no record, no checkpoint.
func (a *app) explainNoFiles(s *assembly.Run, command string, err error) error {
	if !errors.Is(err, runfolder.ErrNoRecord) && !errors.Is(err, assembly.ErrNoCheckpoint) {
		return err
	}
	noted := assembly.NotedBroker(s.Config.Folder())
	elsewhere := fmt.Sprintf("weir %s reads files: type it on the trainer's machine, or name the folder of runs with --run.dir", command)
	return a.explainByFolder(s, readRemains(s, noted, answersAt(noted)), elsewhere, err)
}

// answersAt reports whether something listens at the address of a broker.
func answersAt(broker string) bool {
	at, err := url.Parse(broker)
	if err != nil || at.Host == "" {
		return false
	}
	conn, err := net.DialTimeout("tcp", at.Host, time.Second)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was asked
	return true
}

// nextCommands are the commands that go on from a run's remains.
func (a *app) nextCommands(s *assembly.Run, r *runfolder.Remains) []string {
	run := a.runFlags(s)
	var out []string
	if r.Checkpoint >= 0 {
		out = append(out, "ask it         weir chat"+run, "its record     weir audit"+run)
	}
	if r.There {
		out = append(out, "its page       weir view "+r.Dir)
	}
	switch {
	case r.Finished():
	case r.Up:
		out = append(out, "wait for it    weir status"+run+" --follow")
	case !r.There:
		out = append(out, "start it       weir up"+run)
	case r.Checkpoint >= 0:
		out = append(out, fmt.Sprintf("go on          weir up%s, with the flags that started it: it goes on after step %d", run, r.Checkpoint))
	default:
		out = append(out, fmt.Sprintf("start it again weir up%s, with the flags that started it", run))
	}
	return out
}

// listOtherRuns names the runs whose folders are in dir, at most eight, without the run of a name.
func listOtherRuns(dir, without string) string {
	const most = 8
	names, _ := runfolder.List(dir) // a folder that cannot be read has none
	names = slices.DeleteFunc(names, func(name string) bool { return name == without })
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
