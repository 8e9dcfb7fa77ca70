package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/weir-rl/weir/streams"
)

// Chat asks versions of a run's policy questions, each in an episode of its own. It is safe for concurrent use.
type Chat interface {
	// Offer returns the versions, tasks and tools by their names alone: every viewer gets it, so it starts and opens nothing. run are the run's streams, nil
	// where no broker is up.
	Offer(ctx context.Context, run *streams.Run) (*ChatOffer, error)
	// Tasks opens the run's tasks with their tools, and has questions of each. It is called only with the token.
	Tasks(ctx context.Context) ([]ChatTask, error)
	// Ask runs an episode and calls tell with each of its moves as it comes. It ends early when ctx does.
	Ask(ctx context.Context, run *streams.Run, q ChatQuestion, tell func(ChatMove)) (*ChatEnd, error)
	// Close frees the models and tools; no other method is called after it.
	Close()
}

// The keys of versions that have no number.
const (
	// ChatEngines stands for the run's own inference engines, with whatever they sample from.
	ChatEngines = "engines"
	// ChatNewest stands for the newest checkpoint.
	ChatNewest = "newest"
)

// ChatOffer lists the versions, tasks, agents and tools of a question.
type ChatOffer struct {
	// Versions that can be asked, the best choice first; empty where none can.
	Versions []ChatVersion `json:"versions"`
	// Notes say why some or all versions of the run cannot be asked.
	Notes []string   `json:"notes"`
	Tasks []ChatTask `json:"tasks"`
	// Agents and Tools are the configured sections that can take the place of the task's.
	Agents []string `json:"agents"`
	Tools  []string `json:"tools"`
}

// ChatVersion is a version that can be asked.
type ChatVersion struct {
	// Key names it in a question: ChatEngines, ChatNewest, or the number of a version whose checkpoint is kept.
	Key  string `json:"key"`
	Name string `json:"name"`
	// Cost is a sentence about the cost of a question, and about the machine that pays it.
	Cost string `json:"cost"`
}

// ChatTask is a task of the run, with questions as it asks them, where it was opened.
type ChatTask struct {
	Name string `json:"name"`
	// Agent is the section of agents that the task names, "" where it brings its own; Tools are the tools of its episodes.
	Agent    string   `json:"agent"`
	Tools    []string `json:"tools"`
	Examples []string `json:"examples"`
}

// ChatQuestion is a question to a version.
type ChatQuestion struct {
	Version string `json:"version"`
	// Task may be empty where the run has one; where Agent or Tools are empty, the task's own are used.
	Task  string   `json:"task"`
	Agent string   `json:"agent"`
	Tools []string `json:"tools"`
	// NoTool takes the tools away.
	NoTool      bool    `json:"no_tool"`
	Question    string  `json:"question"`
	Temperature float32 `json:"temperature"`
	Seed        uint64  `json:"seed"`
}

// maxQuestion bounds a question, in bytes.
const maxQuestion = 16 << 10

// Validate reports every fault that does not depend on the run.
func (q *ChatQuestion) Validate() error {
	var faults []error
	if q.Question == "" || len(q.Question) > maxQuestion {
		faults = append(faults, fmt.Errorf("question: %d bytes: want 1 to %d", len(q.Question), maxQuestion))
	}
	if q.Version == "" {
		faults = append(faults, errors.New("version: none is chosen"))
	}
	if !(q.Temperature >= 0 && q.Temperature <= 10) {
		faults = append(faults, fmt.Errorf("temperature: %v: want 0 to 10; 0 is greedy", q.Temperature))
	}
	return errors.Join(faults...)
}

// ChatMove is something that happens in an episode; the fields are a producers.Move's.
type ChatMove struct {
	Kind    string  `json:"kind"`
	Agent   string  `json:"agent,omitempty"`
	Segment int     `json:"segment"`
	Text    string  `json:"text"`
	Tool    string  `json:"tool,omitempty"`
	Call    int     `json:"call"`
	Seconds float64 `json:"seconds"`
	Failed  bool    `json:"failed,omitempty"`
}

// ChatEnd is the end of an episode.
type ChatEnd struct {
	// Notes are warnings about the answer, such as words that the policy has never seen.
	Notes []string `json:"notes"`
	// Answer is "" where there is none; Stop says why the episode ended.
	Answer string `json:"answer"`
	Stop   string `json:"stop"`
	Error  string `json:"error,omitempty"`
	// Oldest and Newest are the versions that sampled, Sampled their tokens.
	Oldest  int64   `json:"oldest_version"`
	Newest  int64   `json:"newest_version"`
	Sampled int     `json:"sampled"`
	Seconds float64 `json:"seconds"`
	// Command asks the same on a command line; "" where none does.
	Command string `json:"command,omitempty"`
}

// ErrChatBusy says that another question is being answered.
var ErrChatBusy = errors.New("another question to this run is being answered: ask again when it is done")

// errNoChat says that the page cannot ask a run anything.
var errNoChat = errors.New("this page cannot ask the run's policy: its folder is not on this machine, and no way to its engines was given")

func (a *api) chatOffer(q asked) (any, error) {
	if q.run.Chat == nil {
		return &ChatOffer{Versions: []ChatVersion{}, Notes: []string{errNoChat.Error()}, Tasks: []ChatTask{}, Agents: []string{}, Tools: []string{}}, nil
	}
	run, _ := q.run.folder.Broker(q.Context()) // without a broker the folder answers
	return q.run.Chat.Offer(q.Context(), run)
}

// chatTasks are the tasks with questions of each.
func (a *api) chatTasks(q asked) (any, error) {
	if q.run.Chat == nil {
		return nil, usageError{errNoChat}
	}
	tasks, err := q.run.Chat.Tasks(q.Context())
	if err != nil {
		return nil, usageError{err}
	}
	return map[string]any{"tasks": tasks}, nil
}

// chatLine is a line of the answer to a question, which comes as the episode goes on.
type chatLine struct {
	Move  *ChatMove `json:"move,omitempty"`
	End   *ChatEnd  `json:"end,omitempty"`
	Error string    `json:"error,omitempty"`
}

// answerChat answers a question by a line of JSON for each move. The episode ends when whoever asked is gone, or when the server stops.
func (a *api) answerChat(w http.ResponseWriter, r *http.Request, f *shownRun) {
	var q ChatQuestion
	err := readRequest(r, &q)
	if err == nil {
		err = q.Validate()
	}
	if err == nil && f.Chat == nil {
		err = errNoChat
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	select {
	case f.chatting <- struct{}{}:
		defer func() { <-f.chatting }()
	default:
		writeError(w, http.StatusTooManyRequests, ErrChatBusy.Error())
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.life, cancel)()
	out := &chatWriter{w: w, control: http.NewResponseController(w), cancel: cancel}
	// An episode may take longer than a question may take to come.
	_ = out.control.SetReadDeadline(time.Time{}) // a connection without deadlines needs none taken away
	run, _ := f.folder.Broker(ctx)
	end, err := f.Chat.Ask(ctx, run, q, func(m ChatMove) { out.writeLine(chatLine{Move: &m}) })
	switch {
	case ctx.Err() != nil && r.Context().Err() != nil: // whoever asked is gone
	case err != nil && !out.begun:
		writeError(w, http.StatusBadRequest, err.Error())
	case err != nil:
		out.writeLine(chatLine{Error: err.Error()})
	default:
		out.writeLine(chatLine{End: end})
	}
}

// chatWriter writes lines as they come, from several goroutines.
type chatWriter struct {
	mu      sync.Mutex
	w       http.ResponseWriter
	control *http.ResponseController
	cancel  context.CancelFunc
	begun   bool
}

// chatWrite bounds how long whoever asked may take to read a line: the episode is not held up for longer.
const chatWrite = 10 * time.Second

func (c *chatWriter) writeLine(l chatLine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.begun {
		c.w.Header().Set("Content-Type", "application/x-ndjson; charset=utf-8")
		c.begun = true
	}
	data, err := json.Marshal(l)
	if err == nil {
		_ = c.control.SetWriteDeadline(time.Now().Add(chatWrite))
		_, err = c.w.Write(append(data, '\n'))
	}
	if err == nil {
		err = c.control.Flush()
	}
	if err != nil {
		c.cancel()
	}
}
