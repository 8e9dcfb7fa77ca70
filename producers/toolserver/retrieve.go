package toolserver

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/weir-rl/weir/internal/openai"
	"github.com/weir-rl/weir/producers/tools"
)

// Bounds of a request.
const (
	maxBody    = 4 << 20
	maxQueries = 4096
	maxTopK    = 1000
)

// Finder finds passages; [tools.Search] is a Finder.
type Finder interface {
	Top(query string, k int) []tools.Found
}

// Retrieve answers POST /retrieve as Search-R1's retrieval server does: for each query a list of documents, best first, each with
// its score where that is asked for.
func Retrieve(find Finder, topK int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Queries      []string `json:"queries"`
			TopK         *int     `json:"topk"`
			ReturnScores bool     `json:"return_scores"`
		}
		if !readJSON(w, r, &request) {
			return
		}
		k := topK
		if request.TopK != nil {
			k = *request.TopK
		}
		switch {
		case len(request.Queries) == 0 || len(request.Queries) > maxQueries:
			refuseRequest(w, http.StatusUnprocessableEntity, fmt.Sprintf("queries: %d: want 1 to %d texts", len(request.Queries), maxQueries))
			return
		case k < 1 || k > maxTopK:
			refuseRequest(w, http.StatusUnprocessableEntity, fmt.Sprintf("topk: %d: want 1 to %d", k, maxTopK))
			return
		}
		type document struct {
			ID       string `json:"id"`
			Contents string `json:"contents"`
		}
		type scored struct {
			Document document `json:"document"`
			Score    float64  `json:"score"`
		}
		result := make([][]any, len(request.Queries))
		for i, query := range request.Queries {
			result[i] = []any{}
			for _, found := range find.Top(query, k) {
				d := document{fmt.Sprint(found.At), fmt.Sprintf("%q\n%s", found.Title, found.Text)}
				if request.ReturnScores {
					result[i] = append(result[i], scored{d, found.Score})
				} else {
					result[i] = append(result[i], d)
				}
			}
		}
		writeAnswer(w, map[string]any{"result": result})
	})
}

// readJSON reads a JSON body; where it cannot, it refuses and returns false.
func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		refuseRequest(w, http.StatusMethodNotAllowed, "want POST")
		return false
	}
	if err := json.NewDecoder(openai.NewTimedBody(w, r, maxBody)).Decode(into); err != nil {
		refuseRequest(w, http.StatusUnprocessableEntity, "the body: "+err.Error())
		return false
	}
	return true
}

// refuseRequest answers as FastAPI does, which Search-R1's clients expect, and in the form that Weir's own clients read.
func refuseRequest(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"detail": why}) // a client that has gone away hears nothing
}

func writeAnswer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // a client that has gone away hears nothing
}
