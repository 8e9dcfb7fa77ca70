package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-rl/weir/consumers"
)

// Checksummer is a [Speaker] of a server that can compute a checksum of each of its tensors.
type Checksummer interface {
	// Checksums has an entry for each tensor of each rank. A key is a prefix for the rank, a colon, and the tensor's name in the server's
	// model. It is nil, without an error, for a server that computes none.
	Checksums(ctx context.Context) (map[string]string, error)
}

// The results of a verification, as the label of weir_inference_weight_checks_total.
const (
	checkRight   = "right"
	checkStale   = "stale"
	checkUnknown = "unknown"
)

// errStale is a server that reported a load as done and still runs on tensors of the version before.
var errStale = errors.New("it runs on old tensors")

// errTooLittle is a load that changed too little for a verdict: a server that loaded it may have the same checksums as before.
var errTooLittle = errors.New("too little changed to see whether it was loaded")

// evidence has a server's checksums before a load, or its log-probabilities where it has no checksums. It is compared with the server's
// checksums or log-probabilities after the load.
type evidence struct {
	// snapshot is the version that the server had; release lets go of its folder.
	snapshot *consumers.Snapshot
	release  func()
	// checksums is nil where the server computes none; likely then has the most likely tokens after some contexts.
	checksums map[string]string
	likely    [][]Likely
}

// isCheckDue reports whether the next load is to be verified: every inference.server.verify_every-th, and the first after the server came,
// was taken down, or was seen on old tensors. A load that fails, or a look that does, uses up no turn.
func (s *server) isCheckDue() bool {
	every := s.pool.cfg.Server.VerifyEvery
	return every > 0 && (!s.keeper.proven || s.keeper.unchecked >= every-1)
}

// gatherEvidence looks at the server before a load that is to be verified. It is nil for a load that is not verified, and where the weights
// before the load are not known: then the next load is verified. After a load that failed its verification the evidence stays until a load
// passes.
func (s *server) gatherEvidence(ctx context.Context) *evidence {
	if s.keeper.doubted != nil || !s.isCheckDue() {
		return s.keeper.doubted
	}
	from := s.knownWeights(ctx)
	if from == nil {
		return nil
	}
	release, there := from.Hold()
	if !there {
		return nil
	}
	e := &evidence{snapshot: from, release: release}
	err := s.observeWeights(ctx, e)
	if err != nil {
		s.pool.log.Debug("the weights of an inference server cannot be looked at", "server", s.name, "err", err)
		s.pool.metrics.WeightChecks.WithLabelValues(checkUnknown).Inc()
		release()
		return nil
	}
	return e
}

// knownWeights is the version that the server has: also after it was taken down, where its label is still the label of then. nil where it
// is not known.
func (s *server) knownWeights(ctx context.Context) *consumers.Snapshot {
	if was := s.keeper.was; s.keeper.have == nil && was != nil && s.checkLabel(ctx, s.pool.labelOf(was.Version)) == nil {
		return was
	}
	return s.keeper.have
}

// observeWeights fills evidence with the server's checksums where it computes them, else with its log-probabilities.
func (s *server) observeWeights(ctx context.Context, e *evidence) error {
	if c, is := s.speaker.(Checksummer); is && e.likely == nil {
		err := limitTime(ctx, s.pool.cfg.Server.LoadTimeout, "load_timeout", func(ctx context.Context) (err error) {
			e.checksums, err = c.Checksums(ctx)
			return err
		})
		if err != nil || len(e.checksums) > 0 {
			return err
		}
		e.checksums = nil // an empty list is none
	}
	for _, tokens := range [][]int32{{0}, {1, 0}} {
		var a *Answer
		err := limitTime(ctx, s.pool.cfg.Server.ControlTimeout, "control_timeout", func(ctx context.Context) (err error) {
			id := s.pool.nextRequestID()
			a, err = s.speaker.Generate(ctx, &Query{ID: id, Salt: id, Tokens: tokens, MaxTokens: 1, Temperature: 1, Top: Alternatives}, func() {})
			return err
		})
		if err == nil && (len(a.Likely) != 1 || len(a.Likely[0]) == 0) {
			err = fmt.Errorf("%w: the most likely tokens were asked for, and did not come: it ended with %q: %s", ErrMalformed, a.Finish, a.Message)
		}
		if err != nil {
			return err
		}
		e.likely = append(e.likely, slices.Concat(a.Likely...))
	}
	return nil
}

// verifyWeights refuses a server that kept tensors of the version before through a load. It is called with the evidence from before the
// load, when the server samples again and takes no calls yet. The evidence of a load that fails stays in doubted.
func (s *server) verifyWeights(ctx context.Context, e *evidence, want *consumers.Snapshot) error {
	now := &evidence{likely: e.likely[:0:0]} // of the same sort
	v := verdict{result: checkUnknown, err: s.observeWeights(ctx, now)}
	if v.err == nil {
		v = compareWeights(ctx, e, now, want)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.pool.metrics.WeightChecks.WithLabelValues(v.result).Inc()
	if v.result == checkStale || v.result == checkUnknown && s.keeper.doubted != nil {
		s.keeper.doubted = e // a look that fails says nothing for a server that was seen on old tensors
		return v.err
	}
	if v.settled {
		s.keeper.doubted, s.keeper.proven, s.keeper.unchecked = nil, true, 0
	} else {
		s.keeper.unchecked++
	}
	switch {
	case errors.Is(v.err, errTooLittle): // the next load is verified
		s.pool.log.Info("a load of an inference server cannot be judged", "server", s.name, "policy_version", want.Version, "err", v.err)
	case v.err != nil:
		s.pool.log.Warn("the weights of an inference server cannot be verified", "server", s.name, "policy_version", want.Version, "err", v.err)
	}
	return nil
}

// dropEvidence forgets a load that failed its verification.
func (s *server) dropEvidence() {
	if s.keeper.doubted != nil {
		s.keeper.doubted.release()
		s.keeper.doubted = nil
	}
}

// verdict is what a look after a load came to.
type verdict struct {
	result string
	// settled is whether the load was verified, as far as this server can be: not where the look failed, or the load had too little to change.
	settled bool
	err     error
}

// compareWeights judges a load by the evidence from before and after it. An error of [checkStale] names tensors.
func compareWeights(ctx context.Context, before, now *evidence, want *consumers.Snapshot) verdict {
	changes, compared, err := changedTensors(ctx, before.snapshot.Dir, want.Dir)
	switch {
	case err != nil:
		return verdict{result: checkUnknown, err: err}
	case before.checksums != nil && now.checksums == nil:
		return verdict{result: checkUnknown, err: errNoChecksums}
	case len(changes) == 0:
		return compareSame(before, now, want)
	case before.checksums == nil:
		return compareLikely(before, now, want, changes, compared)
	}
	found := matchTensors(changes, before.checksums, now.checksums)
	switch {
	case found.matched == 0:
		return verdict{result: checkUnknown, settled: true, err: fmt.Errorf(
			"none of its %d tensors has a name of the model folder: quantized, or of a model that is not known", len(now.checksums))}
	case found.isStale():
		return verdict{result: checkStale, err: fmt.Errorf("%w: %d of the %d tensors that version %d changed are those of version %d: %s",
			errStale, len(found.unmoved), found.matched, want.Version, before.snapshot.Version, strings.Join(found.unmoved[:min(len(found.unmoved), shownTensors)], ", "))}
	case found.evident == 0 || len(found.unmoved) > 0:
		return verdict{result: checkUnknown, err: fmt.Errorf("%w: version %d changed %d tensors of version %d, %d of them so that their checksums must change, and %d of those are the same",
			errTooLittle, want.Version, len(changes), before.snapshot.Version, found.evident, len(found.unmoved))}
	}
	return verdict{result: checkRight, settled: true}
}

// errNoChecksums is a server that computed checksums before a load, and has no route for them after it.
var errNoChecksums = errors.New("it computed checksums before the load, and computes none after it")

// compareLikely judges a load by log-probabilities. A load that changed few tensors may leave the few compared ones as they were.
func compareLikely(before, now *evidence, want *consumers.Snapshot, changes []change, compared int) verdict {
	if !slices.EqualFunc(before.likely, now.likely, isSameLikely) {
		return verdict{result: checkRight, settled: true}
	}
	decisive := 0
	for _, c := range changes {
		if c.numbers >= manyNumbers {
			decisive++
		}
	}
	if decisive*leastShare < compared {
		return verdict{result: checkUnknown, err: fmt.Errorf("%w: version %d changed %d of %d tensors of version %d in many numbers, and its log-probabilities are the same",
			errTooLittle, want.Version, decisive, compared, before.snapshot.Version)}
	}
	return verdict{result: checkStale, err: fmt.Errorf("%w: version %d changed %d tensors of version %d, and its log-probabilities are the same to the last bit",
		errStale, want.Version, len(changes), before.snapshot.Version)}
}

// isSameLikely reports whether the tokens that two lists have in common have the same numbers to the last bit. A list has the
// sampled token too, which another draw leaves out: vLLM and SGLang list it beside the most likely tokens, or in the place of the
// last of them.
func isSameLikely(a, b []Likely) bool {
	common := 0
	for _, x := range a {
		for _, y := range b {
			if x.Token != y.Token {
				continue
			}
			if common++; x != y {
				return false
			}
		}
	}
	return common > 0 || len(a) == len(b) && common == len(a)
}

// compareSame judges a load that had nothing to change. After a load that left old tensors the version before is loaded again: then each
// checksum must be as it was before both loads.
func compareSame(before, now *evidence, want *consumers.Snapshot) verdict {
	if before.snapshot.Dir != want.Dir {
		return verdict{result: checkRight}
	}
	var moved []string
	for _, key := range slices.Sorted(maps.Keys(before.checksums)) {
		if now.checksums[key] != before.checksums[key] {
			moved = append(moved, key)
		}
	}
	if len(moved) > 0 {
		return verdict{result: checkStale, err: fmt.Errorf("%w: version %d was loaded again, and %d of its %d tensors are not as they were: %s",
			errStale, want.Version, len(moved), len(before.checksums), strings.Join(moved[:min(len(moved), shownTensors)], ", "))}
	}
	return verdict{result: checkRight}
}

// shownTensors is how many tensors an error names.
const shownTensors = 3

// fusedName is the parameter of vLLM's and SGLang's models that holds a tensor of a model folder: both keep query, key and value in one
// parameter, and gate and up (packed_modules_mapping in models/llama.py and qwen2.py of both).
func fusedName(name string) string {
	for _, part := range []string{".q_proj.", ".k_proj.", ".v_proj."} {
		name = strings.Replace(name, part, ".qkv_proj.", 1)
	}
	for _, part := range []string{".gate_proj.", ".up_proj."} {
		name = strings.Replace(name, part, ".gate_up_proj.", 1)
	}
	return name
}
