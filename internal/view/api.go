package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/trainer/batch"
)

// api answers the page's questions.
type api struct {
	mu   sync.Mutex
	runs []*shownRun
	more func(shown func(dir string) bool) []Run
	log  *slog.Logger
	now  func() time.Time
	// life ends when the server stops, by end; long answers end with it.
	life context.Context //nolint:containedctx // it is the server's, and requests bring their own
	end  context.CancelFunc
}

func newAPI(deps Deps) *api {
	a := &api{more: deps.More, log: deps.Log, now: deps.Now}
	a.life, a.end = context.WithCancel(context.Background())
	for _, r := range deps.Runs {
		a.runs = append(a.runs, openRun(r))
	}
	return a
}

func (a *api) close() {
	a.end()
	for _, f := range a.shownRuns() {
		f.folder.Close()
		if f.Chat != nil {
			f.Chat.Close()
		}
	}
}

// shownRuns returns the runs that are shown. The caller must not change the list.
func (a *api) shownRuns() []*shownRun {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.runs
}

// findNewRuns shows the runs that have begun since.
func (a *api) findNewRuns() {
	if a.more == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.life.Err() != nil {
		return // they are being closed
	}
	for _, r := range a.more(func(dir string) bool {
		return slices.ContainsFunc(a.runs, func(s *shownRun) bool { return s.Dir == dir })
	}) {
		if !slices.ContainsFunc(a.runs, func(s *shownRun) bool { return s.Name == r.Name }) {
			a.runs = append(slices.Clip(a.runs), openRun(r))
		}
	}
}

// asked is a question about a run.
type asked struct {
	*http.Request
	run *shownRun
}

// usageError is an error of whoever asks.
type usageError struct{ error }

// routes are the API's addresses, and the page itself.
func (a *api) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", servePages())
	mux.HandleFunc("GET /api/runs", func(w http.ResponseWriter, r *http.Request) { writeAnswer(w, a.listRuns(r.Context())) })
	for path, handle := range map[string]func(asked) (any, error){
		"GET /api/runs/{run}/overview":          a.overview,
		"GET /api/runs/{run}/series":            a.series,
		"GET /api/runs/{run}/accounting":        a.accounting,
		"GET /api/runs/{run}/trajectories":      a.trajectories,
		"GET /api/runs/{run}/trajectories/{id}": a.trajectory,
		"GET /api/runs/{run}/groups":            a.groups,
		"GET /api/runs/{run}/groups/{id}":       a.groupMembers,
		"GET /api/runs/{run}/picked":            a.picked,
		"GET /api/runs/{run}/distributions":     a.distributions,
		"GET /api/runs/{run}/settings":          a.settings,
		"GET /api/runs/{run}/log":               a.readLog,
		"GET /api/runs/{run}/lanes":             a.lanes,
		"GET /api/runs/{run}/bias":              a.bias,
		"GET /api/runs/{run}/streams":           a.runStreams,
		"POST /api/runs/{run}/control":          a.doAct,
		"GET /api/runs/{run}/chat":              a.chatOffer,
		"POST /api/runs/{run}/chat/tasks":       a.chatTasks,
	} {
		mux.HandleFunc(path, a.answerAbout(handle))
	}
	mux.HandleFunc("POST /api/runs/{run}/chat", a.withinRun(a.answerChat))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, fmt.Sprintf("no such address: %s %s", r.Method, r.URL.Path))
	})
	return mux
}

// withinRun finds the run that a question is about.
func (a *api) withinRun(handle func(http.ResponseWriter, *http.Request, *shownRun)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("run")
		runs := a.shownRuns()
		at := slices.IndexFunc(runs, func(f *shownRun) bool { return f.Name == name })
		if at < 0 {
			writeError(w, http.StatusNotFound, fmt.Sprintf("no run %q is shown here", name))
			return
		}
		handle(w, r, runs[at])
	}
}

// answerAbout refreshes the run that a question is about, and writes the answer.
func (a *api) answerAbout(handle func(asked) (any, error)) http.HandlerFunc {
	return a.withinRun(func(w http.ResponseWriter, r *http.Request, f *shownRun) {
		if err := f.folder.Refresh(); err != nil {
			writeError(w, http.StatusInternalServerError, err.Error())
			return
		}
		v, err := handle(asked{r, f})
		switch {
		case err == nil:
			writeAnswer(w, v)
		case errors.Is(err, runfolder.ErrUnknown):
			writeError(w, http.StatusNotFound, err.Error())
		case errors.As(err, new(usageError)):
			writeError(w, http.StatusBadRequest, err.Error())
		case r.Context().Err() != nil: // whoever asked is gone
		default:
			a.log.Warn("the page's question failed", "path", r.URL.Path, "err", err)
			writeError(w, http.StatusInternalServerError, err.Error())
		}
	})
}

// decodeJSON reads a single JSON value and nothing else.
func decodeJSON(from io.Reader, to any) error {
	d := json.NewDecoder(from)
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return fmt.Errorf("read what was sent: %w", err)
	}
	if d.More() {
		return errors.New("read what was sent: more than one value")
	}
	return nil
}

// listRuns are the runs in a line each.
func (a *api) listRuns(ctx context.Context) any {
	out := struct {
		Runs []Summary `json:"runs"`
	}{[]Summary{}}
	a.findNewRuns()
	for _, f := range a.shownRuns() {
		if err := f.folder.Refresh(); err != nil {
			out.Runs = append(out.Runs, Summary{Name: f.Name, Folder: f.Dir, State: runfolder.StateBroken, Detail: err.Error()})
			continue
		}
		out.Runs = append(out.Runs, f.readOverview(ctx, a.now()).Summary)
	}
	return out
}

func (a *api) overview(q asked) (any, error) { return q.run.readOverview(q.Context(), a.now()), nil }

// series are the numbers under ?keys=, comma between, thinned to ?points=.
func (a *api) series(q asked) (any, error) {
	v := q.URL.Query()
	keys := strings.Split(v.Get("keys"), ",")
	if v.Get("keys") == "" || len(keys) > 64 {
		return nil, usageError{errors.New("keys: want 1 to 64 keys of metrics.jsonl, with commas between; a key that ends with / takes all below it")}
	}
	points, err := parsePoints(v)
	if err != nil {
		return nil, err
	}
	return q.run.folder.Metrics.Series(keys, points), nil
}

// parsePoints reads to how many points a curve is thinned.
func parsePoints(v url.Values) (int, error) {
	text := v.Get("points")
	if text == "" {
		return 400, nil
	}
	points, err := strconv.Atoi(text)
	if err != nil || points < 2 || points > 10000 {
		return 0, usageError{fmt.Errorf("points: %q: want a number between 2 and 10000", text)}
	}
	return points, nil
}

// distributions are those of the steps, thinned to ?points=.
func (a *api) distributions(q asked) (any, error) {
	points, err := parsePoints(q.URL.Query())
	if err != nil {
		return nil, err
	}
	return q.run.folder.Distributions(points), nil
}

// settings are the configuration and the build of the run.
func (a *api) settings(q asked) (any, error) {
	return Configuration{Build: q.run.folder.Build(), Settings: q.run.folder.Settings()}, nil
}

// logLines is how many lines of the log the page shows.
const logLines = 300

// readLog are the newest lines of the log, warnings and errors alone by ?severe=1.
func (a *api) readLog(q asked) (any, error) {
	lines, err := q.run.folder.Log(logLines, q.URL.Query().Get("severe") == "1")
	if err != nil {
		return nil, err
	}
	return Log{Lines: lines}, nil
}

// picked are three rollouts as examples.
func (a *api) picked(q asked) (any, error) { return q.run.pickRollouts(q.Context()) }

func (a *api) groups(q asked) (any, error) {
	query, err := parseQuery(q.URL.Query())
	if err != nil {
		return nil, usageError{err}
	}
	return q.run.folder.Groups(query), nil
}

func (a *api) accounting(q asked) (any, error) {
	return q.run.folder.Steps.Accounting(q.run.folder.GroupSize()), nil
}

func (a *api) trajectories(q asked) (any, error) {
	query, err := parseQuery(q.URL.Query())
	if err != nil {
		return nil, usageError{err}
	}
	page := q.run.folder.Steps.List(query, q.run.folder.GroupSize())
	q.run.folder.Archive.AddFacts(page.Rows)
	return page, nil
}

func (a *api) trajectory(q asked) (any, error) {
	return q.run.readDetail(q.Context(), q.PathValue("id"))
}

// groupMembers are the members of a group.
func (a *api) groupMembers(q asked) (any, error) {
	id := q.PathValue("id")
	if _, _, ok := batch.ParseGroupID(id); !ok {
		return nil, usageError{fmt.Errorf("%q is not the id of a group, such as g000012-a0", id)}
	}
	members := q.run.folder.Steps.Members(id)
	if len(members) == 0 {
		return nil, fmt.Errorf("group %s: %w", id, runfolder.ErrUnknown)
	}
	q.run.folder.Archive.AddFacts(members)
	return map[string]any{"id": id, "members": members}, nil
}
