package hf

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-rl/weir/gpu"
)

// arrangeTensors puts the tensors in the model's order. It reports every tensor that is missing, of another shape, or not the
// model's, wrapping gpu.ErrMismatch. It leaves out tensors that follow from the others, which Transformers has stored at times:
// the angles' frequencies, and the head when it is tied.
func arrangeTensors(c gpu.Config, tensors []gpu.Tensor) (*gpu.Weights, error) {
	byName := make(map[string]gpu.Tensor, len(tensors))
	for _, t := range tensors {
		byName[t.Name] = t
	}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", gpu.ErrMismatch, fmt.Sprintf(format, args...)))
	}
	if len(byName) < len(tensors) {
		bad("a tensor's name is used twice")
	}
	want := c.Layout()
	w := &gpu.Weights{Tensors: make([]gpu.Tensor, 0, len(want))}
	for _, s := range want {
		t, ok := byName[s.Name]
		delete(byName, s.Name)
		switch {
		case !ok:
			bad("tensor %q is missing", s.Name)
		case !slices.Equal(t.Shape, s.Shape):
			bad("tensor %q has shape %v, the configuration says %v", s.Name, t.Shape, s.Shape)
		default:
			w.Tensors = append(w.Tensors, t)
		}
	}
	for _, t := range tensors {
		_, left := byName[t.Name]
		derived := strings.HasSuffix(t.Name, derivedAngles) || t.Name == gpu.HeadTensor && c.TieEmbeddings
		if left && !derived {
			bad("tensor %q is not the model's", t.Name)
		}
	}
	if len(errs) == 0 {
		return w, nil
	}
	if left := len(errs) - mostFaults; left > 1 {
		errs = append(errs[:mostFaults], fmt.Errorf("and %d more", left))
	}
	what := fmt.Errorf("%s and the weights are not of one model: take both from the same place", configName)
	if bare := strings.TrimPrefix(embeddings, "model."); slices.ContainsFunc(tensors, func(t gpu.Tensor) bool { return t.Name == bare }) {
		what = fmt.Errorf("the tensors lack the prefix model.: the folder was saved without its language model's head; save it with")
	}
	return nil, errors.Join(append(errs, what)...)
}

// derivedAngles ends the names of the rotary angles' frequencies, which some files store.
const derivedAngles = ".rotary_emb.inv_freq"

// mostFaults is the number of tensors that a single refusal names.
const mostFaults = 40
