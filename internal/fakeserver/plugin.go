package fakeserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

// staged is the version that the plugins of consumers/vllm/weir_vllm.py and consumers/sglang/weir_sglang.py have staged; its label is ""
// where there is none.
type staged struct{ label, dir string }

// pluginCall has the arguments of a method of the plugins.
type pluginCall struct {
	Label  string  `json:"label"`
	Folder string  `json:"folder"`
	Files  [][]any `json:"files"`
}

// pluginState is a worker's answer.
type pluginState struct {
	State string  `json:"state"`
	Why   *string `json:"why"`
}

// callPlugin calls a method of the plugin in the single worker. A load that fails is an error.
func (s *Server) callPlugin(method string, x pluginCall) (pluginState, error) {
	say := func(state string, err error) pluginState {
		if err == nil {
			return pluginState{state, nil}
		}
		why := err.Error()
		return pluginState{state, &why}
	}
	switch method {
	case "weir_begin":
		s.keepStaged(staged{})
		if s.faultDue("quantized") {
			return say("ready", fmt.Errorf("injected: its model is %w", errQuantized)), nil
		}
		return say("ready", nil), nil
	case "weir_stage":
		err := s.checkStaged(x.Folder, x.Files)
		switch {
		case err != nil:
			return say("failed", err), nil
		case s.faultDue("slow"):
			return say("staging", nil), nil
		}
		s.keepStaged(staged{x.Label, x.Folder})
		return say("staged", nil), nil
	default:
		was := s.keepStaged(staged{})
		if was.label != x.Label {
			return pluginState{}, fmt.Errorf("%s: %w", x.Label, errStage)
		}
		if s.kind == SGLang {
			s.arm(was) // the next load of that folder and label takes it
			return say("loaded", nil), nil
		}
		return say("loaded", nil), s.loadStaged(was)
	}
}

// arm returns the version that the next load of an SGLang takes from shared memory, and sets another.
func (s *Server) arm(x staged) staged {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.armed
	s.armed = x
	return was
}

// pluginOnPath reports whether a Python finds the entry point of the plugin for SGLang (0.5.23, plugins/__init__.py:69).
func pluginOnPath(path string) bool {
	for _, dir := range filepath.SplitList(path) {
		if found, err := filepath.Glob(filepath.Join(dir, "*.dist-info", "entry_points.txt")); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// refuseBusy answers that the server has no time, as a fault has it.
func (s *Server) refuseBusy(w http.ResponseWriter) bool {
	due := s.faultDue("busy")
	if due {
		writeRefusal(w, http.StatusServiceUnavailable, "injected: busy")
	}
	return due
}

// answerVLLMPlugin answers a method of the plugin as /collective_rpc does.
func (s *Server) answerVLLMPlugin(w http.ResponseWriter, request []byte) {
	var body struct {
		Method string     `json:"method"`
		Kwargs pluginCall `json:"kwargs"`
	}
	if err := json.Unmarshal(request, &body); err != nil {
		writeRefusal(w, http.StatusBadRequest, err.Error())
		return
	}
	if s.refuseBusy(w) {
		return
	}
	state, err := s.callPlugin(body.Method, body.Kwargs)
	if err != nil {
		writeRefusal(w, http.StatusInternalServerError, rpcFailed+err.Error())
		return
	}
	writeAnswer(w, map[string]any{"results": []any{state}})
}

// answerSGLangPlugin answers an action of the plugin as /weights_checker does (0.5.23, entrypoints/http_server.py:1599): the message has
// the states of the ranks.
func (s *Server) answerSGLangPlugin(w http.ResponseWriter, method, arguments string) {
	var call pluginCall
	if err := json.Unmarshal([]byte(arguments), &call); err != nil {
		refuseLoad(w, err.Error())
		return
	}
	if s.refuseBusy(w) {
		return
	}
	s.arm(staged{})
	state, err := s.callPlugin(method, call)
	if err != nil {
		why := err.Error()
		state = pluginState{"failed", &why}
	}
	message, err := json.Marshal([]pluginState{state})
	if err != nil {
		refuseLoad(w, err.Error())
		return
	}
	writeAnswer(w, map[string]any{"success": true, "message": string(message)})
}

func (s *Server) keepStaged(x staged) staged {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.staged
	s.staged = x
	return was
}

// checkStaged refuses files that are not the files that their writer names.
func (s *Server) checkStaged(dir string, files [][]any) error {
	if s.faultDue("unstaged") {
		return fmt.Errorf("injected: %s %w", dir, errStage)
	}
	for _, f := range files {
		if len(f) != 4 {
			return fmt.Errorf("%v: %w", f, errStage)
		}
		info, err := os.Stat(filepath.Join(dir, fmt.Sprint(f[0])))
		if err != nil {
			return err
		}
		if size, is := f[1].(float64); !is || int64(size) != info.Size() {
			return fmt.Errorf("%v: %w", f, errStage)
		}
	}
	return nil
}

// loadStaged loads a version that was staged, as faults let it.
func (s *Server) loadStaged(x staged) error {
	if s.faultDue("half") {
		_ = s.engine.loadFolder(x.dir, "", true, outsideLastMLP)
		return fmt.Errorf("injected: %s %w", x.dir, errBroken)
	}
	return s.reloadFolder(x.dir, "", true)
}
