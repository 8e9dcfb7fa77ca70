package fakeserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is which server is stood in for.
type Kind string

// The kinds.
const (
	VLLM   Kind = "vllm"
	SGLang Kind = "sglang"
)

// Options describe a server. The zero value is a server of today, without the settings that training needs.
type Options struct {
	// Pace is the least time between two tokens of a call; 0 is none.
	Pace time.Duration
	// NewDecoder makes the decoder that samples.
	NewDecoder NewDecoder
	// Dir is the model folder to begin with.
	Dir string
	// Room is how many tokens SGLang has room for, where that is less than its context (max_total_num_tokens); 0 is the context.
	Room int
	// Slots is how many calls sample at once; 0 is 64.
	Slots int
	// APIKey and AdminAPIKey are asked for where they are not "".
	APIKey, AdminAPIKey string

	// Release is which release it is; "" is VLLM27 or SGLang18.
	Release Release
	// MaxLogprobs bounds the alternatives that a call may ask for at vLLM; 0 is vLLM's default, 20.
	MaxLogprobs int
	// PromptDetails has vLLM's usage say how much of a context was in the cache.
	PromptDetails bool
	// NoSalt has SGLang not know cache_salt, as before 0.5.18.
	NoSalt bool
	// Packed has vLLM be a build for processors. Its checksums of linear layers are those of no bytes: their weights are laid out
	// for the products, and the parameters are emptied (0.32.0, model_executor/layers/utils.py:544). A head that is the embedding
	// is laid out once: loads do not reach it (:71 of vocab_parallel_embedding.py).
	Packed bool
	// NoHealthToken has SGLang answer /health without sampling a token.
	NoHealthToken bool
	// Foreign is how many calls of another user the server's metrics count.
	Foreign int
	// NoMetrics answers 404 at /metrics, as SGLang does unless it is started otherwise.
	NoMetrics bool

	// Processed makes log-probabilities of the sampling distribution; vLLM's default is from before the temperature.
	Processed bool
	// NoDefaults leaves generation_config.json unread.
	NoDefaults bool
	// TopK is applied to every call, whatever it asks for.
	TopK int

	// NoSpans leaves weight_versions out of answers, NoLabel weight_version too.
	NoSpans, NoLabel bool
	// NoTokenRoute answers 404 at the route of tokens, 403 from 0.30.0 on.
	NoTokenRoute bool
	// NoWeightInfo answers 404 at the routes of the version.
	NoWeightInfo bool
	// OldPaths has /get_model_info alone, as an SGLang before 0.5.10.
	OldPaths bool
	// AbortRound is how long SGLang takes at least to abort running calls: 1 s in the real server (0.5.23,
	// managers/tokenizer_manager.py:2280); 0 is none.
	AbortRound time.Duration
	// ShyEnds draws half of the sampled stop tokens again, and sends the same log-probabilities: its answers end too seldom.
	ShyEnds bool
	// Incremental streams send only new tokens in each event.
	Incremental bool
	// Plugin has the workers have Weir's plugin.
	Plugin bool
	// Whole answers are no streams.
	Whole bool
	// Faults happen again and again: the name of each, and at every how manieth chance.
	Faults map[string]int
}

// Server is a fake. Its methods may be called from any goroutine.
type Server struct {
	kind   Kind
	o      Options
	engine *engine
	http   *http.Server
	url    string
	done   chan struct{}

	mu            sync.Mutex
	faults        map[string]*fault
	chances       map[string]int // by fault of Options.Faults
	calls         map[string]int // requests by path
	live          map[net.Conn]bool
	defaults      defaults
	dead          bool
	staged, armed staged
	room          int // tokens that there is room for; 0 is the context
}

// fault is injected under a name.
type fault struct {
	left int
	hit  chan struct{} // closed when the last is used up
}

// Inject has a fault happen n times, and returns a channel that is closed when it has. These are known:
//
//   - "503 /path", "400 /path", "401 /path": a request is refused;
//   - "hang /path": a request is never answered;
//   - "reset /path": the connection is reset; "reset" resets that of a generate call after its first tokens;
//   - "cut": an answer's stream ends without its end;
//   - "queue": a call is aborted before its first token, without log-probabilities;
//   - "sentinel": a log-probability is -9999; "null": it is null;
//   - "positive", "token", "fewer", "spans", "finish", "foreign": an answer with a log-probability above 0, a token out of the
//     vocabulary, a log-probability too few, spans that do not fit, a finish_reason that nobody knows, another's weights;
//   - "error": a stream has an error;
//   - "refused": SGLang aborts a call that it will never take, with a status_code;
//   - "lost": a resume is answered and does nothing;
//   - "load": loading fails half way, and leaves a part of the tensors new at vLLM, all at SGLang; "unread": it fails before anything is
//     loaded; "broken": it fails half way for good, of which SGLang dies;
//   - "quantized": the plugin takes nothing; "unstaged": it cannot take a version; "half": a load of a staged version
//     fails half way; "slow": a version is not staged yet;
//   - "lie": it succeeds under another label; "stale": it succeeds and loads nothing; "partial": it succeeds and leaves some tensors old.
func (s *Server) Inject(name string, n int) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &fault{left: n, hit: make(chan struct{})}
	s.faults[name] = f
	return f.hit
}

// faultDue reports whether to inject a fault now.
func (s *Server) faultDue(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if every := s.o.Faults[name]; every > 0 {
		s.chances[name]++
		if s.chances[name]%every == 0 {
			return true
		}
	}
	f := s.faults[name]
	if f == nil || f.left == 0 {
		return false
	}
	if f.left--; f.left == 0 {
		close(f.hit)
	}
	return true
}

// Calls is how many requests a path had.
func (s *Server) Calls(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[path]
}

// Sampled is how many tokens the server has sampled so far.
func (s *Server) Sampled() int {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	return s.engine.drawn
}

// Label is the name of the weights that the server has.
func (s *Server) Label() string { return s.engine.version() }

// Replace has the server be another at the same address: all connections are reset, and it has the weights of a folder that nobody
// named.
func (s *Server) Replace(dir string) error {
	s.engine.abortCalls(nil)
	err := s.engine.loadFolder(dir, "default", false, nil)
	s.engine.resumeSteps()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.live {
		resetConn(c)
	}
	return err
}

// resetForGood has the server be gone without its port: every connection is reset from now on.
func (s *Server) resetForGood() {
	s.engine.abortCalls(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	for c := range s.live {
		resetConn(c)
	}
}

// Dead reports whether the server has died of a request.
func (s *Server) Dead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// SetRoom changes how many tokens SGLang has room for, as another start of the server does; 0 is its context.
func (s *Server) SetRoom(tokens int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = tokens
}

// roomTokens bounds a sequence, by the context and by the room for tokens.
func (s *Server) roomTokens() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.room > 0 {
		return min(s.room, s.engine.config.MaxPositions)
	}
	return s.engine.config.MaxPositions
}

// URL is where the server listens.
func (s *Server) URL() string { return s.url }

// New makes a server and listens on an address. Serve answers.
func New(kind Kind, address string, o Options) (*Server, error) {
	if o.Slots == 0 {
		o.Slots = 64
	}
	s := &Server{
		kind: kind, o: o, engine: newEngine(o.NewDecoder, o.Slots, o.Pace, o.ShyEnds), faults: map[string]*fault{}, chances: map[string]int{}, calls: map[string]int{},
		live: map[net.Conn]bool{}, done: make(chan struct{}), room: o.Room,
	}
	s.engine.packed = o.Packed
	if !o.NoDefaults {
		if err := s.defaults.readDefaults(o.Dir); err != nil {
			return nil, err
		}
	}
	if err := s.engine.loadFolder(o.Dir, "", false, nil); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	s.addRoutes(mux)
	s.http = &http.Server{Handler: s.guardHandler(mux), ReadHeaderTimeout: time.Minute, ConnState: s.watchConn}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s.url = "http://" + l.Addr().String()
	go func() {
		defer close(s.done)
		_ = s.http.Serve(l) // ends with Close
	}()
	return s, nil
}

// Run samples until ctx ends, and closes the server.
func (s *Server) Run(ctx context.Context) {
	s.engine.runSteps(ctx)
	s.engine.abortCalls(nil)
	_ = s.http.Close()
	<-s.done
}

func (s *Server) watchConn(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.live[c] = true
	case http.StateClosed, http.StateHijacked:
		delete(s.live, c)
	case http.StateActive, http.StateIdle:
	}
}

// resetConn ends a connection as a dead process does.
func resetConn(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// guardHandler counts requests, asks for keys, and lets faults of a path happen.
func (s *Server) guardHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		s.mu.Lock()
		s.calls[path]++
		dead := s.dead
		s.mu.Unlock()
		if dead {
			resetRequest(w)
			return
		}
		if key := s.keyFor(path); key != "" && r.Header.Get("Authorization") != "Bearer "+key {
			writeRefusal(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		for _, code := range []int{400, 401, 404, 500, 503} {
			if s.faultDue(fmt.Sprintf("%d %s", code, path)) {
				writeRefusal(w, code, "injected")
				return
			}
		}
		if s.faultDue("hang " + path) {
			_, _ = io.Copy(io.Discard, r.Body) // until it is read whole the server does not see the client go
			<-r.Context().Done()
			return
		}
		if s.faultDue("reset " + path) {
			resetRequest(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// keyFor is the key that a path asks for. vLLM's covers its routes for callers alone.
func (s *Server) keyFor(path string) string {
	open := strings.HasPrefix(path, "/v1") || strings.HasPrefix(path, "/inference")
	switch {
	case s.kind == VLLM && open:
		return s.o.APIKey
	case s.kind == VLLM:
		return ""
	case path == "/generate" || path == "/health" || path == "/v1/models" || strings.HasSuffix(path, "model_info") || path == "/get_weight_version":
		return s.o.APIKey
	}
	return s.o.AdminAPIKey
}

// resetRequest resets the connection of a request.
func resetRequest(w http.ResponseWriter) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		resetConn(c)
	}
}

// waitFor waits for some time; false where ctx ended first.
func waitFor(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func writeRefusal(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"message": message, "type": "BadRequestError", "param": nil, "code": code}})
}

func writeAnswer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// defaults are the settings of generation_config.json, for calls that leave them out.
type defaults struct {
	Temperature *float64 `json:"temperature"`
	TopP        *float64 `json:"top_p"`
	TopK        *int     `json:"top_k"`
	MinP        *float64 `json:"min_p"`
	Repetition  *float64 `json:"repetition_penalty"`
}

func (d *defaults) readDefaults(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "generation_config.json"))
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(data, d)
}

// asked are the sampling fields of a call; nil is not sent.
type asked struct {
	Temperature *float64 `json:"temperature"`
	TopP        *float64 `json:"top_p"`
	TopK        *int     `json:"top_k"`
	MinP        *float64 `json:"min_p"`
	Repetition  *float64 `json:"repetition_penalty"`
	Stop        []int32  `json:"stop_token_ids"`
	IgnoreEOS   bool     `json:"ignore_eos"`
}

// fillNeutral has each field set: on vLLM's route of tokens generation_config.json fills max_tokens alone
// (0.27.0, entrypoints/scale_out/token_in_token_out/serving.py:210).
func (a asked) fillNeutral() asked {
	one, zero, off := 1.0, 0.0, -1
	a.Temperature, a.TopP, a.TopK = cmp.Or(a.Temperature, &one), cmp.Or(a.TopP, &one), cmp.Or(a.TopK, &off)
	a.MinP, a.Repetition = cmp.Or(a.MinP, &zero), cmp.Or(a.Repetition, &one)
	return a
}

// paramsOf fills in the settings that a call leaves out.
func (s *Server) paramsOf(a asked, maxTokens int, seed uint64, top int, salt string) params {
	d := s.defaults
	first := func(x, y *float64, otherwise float64) float64 {
		switch {
		case x != nil:
			return *x
		case y != nil:
			return *y
		}
		return otherwise
	}
	p := params{
		maxTokens: maxTokens, seed: seed, top: top, salt: salt, raw: !s.o.Processed,
		temperature: first(a.Temperature, d.Temperature, 1), topP: first(a.TopP, d.TopP, 1), minP: first(a.MinP, d.MinP, 0),
		rep: first(a.Repetition, d.Repetition, 1), topK: -1,
	}
	if s.kind == VLLM && p.temperature > 0 {
		p.temperature = max(p.temperature, 0.01) // 0.32.0, sampling_params.py:557
	}
	switch {
	case s.o.TopK > 0:
		p.topK = s.o.TopK
	case a.TopK != nil:
		p.topK = *a.TopK
	case d.TopK != nil:
		p.topK = *d.TopK
	}
	p.stop = s.stopsOf(a)
	return p
}

// stopsOf are the tokens that end a call. With ignore_eos vLLM looks at the call's stop tokens alone (0.27.0, v1/core/sched/utils.py:104),
// and SGLang at none at all (0.5.10, managers/schedule_batch.py:1091; 0.5.23, :1857).
func (s *Server) stopsOf(a asked) []int32 {
	if a.IgnoreEOS && s.kind == SGLang {
		return nil
	}
	out := slices.Clone(a.Stop)
	if !a.IgnoreEOS {
		s.engine.mu.Lock()
		out = append(append(out, s.engine.config.EOSToken), s.engine.config.StopTokens...)
		s.engine.mu.Unlock()
	}
	return out
}
