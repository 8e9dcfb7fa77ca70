package fakeserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

// staged is the version that the plugin of consumers/vllm/weir_vllm.py has staged; its label is "" where there is none.
type staged struct{ label, dir string }

// callPlugin calls a method of the plugin in the single worker.
func (s *Server) callPlugin(w http.ResponseWriter, request []byte) {
	var body struct {
		Method string `json:"method"`
		Kwargs struct {
			Label  string  `json:"label"`
			Folder string  `json:"folder"`
			Files  [][]any `json:"files"`
		} `json:"kwargs"`
	}
	if err := json.Unmarshal(request, &body); err != nil {
		writeRefusal(w, http.StatusBadRequest, err.Error())
		return
	}
	answer := func(state string, err error) {
		result := map[string]any{"state": state, "why": nil}
		if err != nil {
			result["why"] = err.Error()
		}
		writeAnswer(w, map[string]any{"results": []any{result}})
	}
	x := body.Kwargs
	switch body.Method {
	case "weir_begin":
		s.keepStaged(staged{})
		if s.faultDue("quantized") {
			answer("ready", fmt.Errorf("injected: its model is %w", errQuantized))
			return
		}
		answer("ready", nil)
	case "weir_stage":
		err := s.checkStaged(x.Folder, x.Files)
		switch {
		case err != nil:
			answer("failed", err)
		case s.faultDue("slow"):
			answer("staging", nil)
		default:
			s.keepStaged(staged{x.Label, x.Folder})
			answer("staged", nil)
		}
	case "weir_load":
		if err := s.loadStaged(x.Label); err != nil {
			writeRefusal(w, http.StatusInternalServerError, rpcFailed+err.Error())
			return
		}
		answer("loaded", nil)
	}
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

// loadStaged loads what is staged under a label, as faults let it.
func (s *Server) loadStaged(label string) error {
	was := s.keepStaged(staged{})
	if was.label != label {
		return fmt.Errorf("%s: %w", label, errStage)
	}
	if s.faultDue("half") {
		_ = s.engine.loadFolder(was.dir, "", true, outsideLastMLP)
		return fmt.Errorf("injected: %s %w", was.dir, errBroken)
	}
	return s.reloadFolder(was.dir, "", true)
}
