package schemas

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// benchTrajectory is a rollout of 8192 tokens: eight turns, a new policy version in the middle of every second.
func benchTrajectory() *Trajectory {
	const n, turns = 8192, 8
	t := sampleTrajectory()
	s := Segment{
		Tokens: make(Int32s, n), ActionMask: make(Bytes, n), Logprobs: make(Float32s, n), Versions: make(Runs, n), Temperature: 1,
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		s.Tokens[i], s.Versions[i] = r.Int32N(150_000), NoVersion
	}
	t.Turns = nil
	for turn := range turns {
		start, end := turn*n/turns+400, (turn+1)*n/turns
		for i := start; i < end; i++ {
			s.ActionMask[i], s.Logprobs[i], s.Versions[i] = 1, -r.Float32(), int32(11+(turn+min((i-start)/300, 1))/2)
		}
		t.Turns = append(t.Turns, Turn{Start: start, End: end, Calls: []ToolCall{{Tool: "search", Duration: time.Second}}})
	}
	t.Segments = []Segment{s}
	return t
}

// BenchmarkCodec measures the codec beside a copy of the same trajectory's arrays in the same run: x-copy is
// how many copies one operation costs. Blocks of each go in turn, and the best block of each counts, as other work on
// the machine only ever adds.
func BenchmarkCodec(b *testing.B) {
	traj := benchTrajectory()
	require.NoError(b, traj.Validate())
	s := &traj.Segments[0]
	data, err := Marshal(traj)
	require.NoError(b, err)
	size := int64(13 * len(s.Tokens))

	to := Segment{
		Tokens: make(Int32s, len(s.Tokens)), ActionMask: make(Bytes, len(s.Tokens)),
		Logprobs: make(Float32s, len(s.Tokens)), Versions: make(Runs, len(s.Tokens)),
	}
	copyArrays := func() {
		copy(to.Tokens, s.Tokens)
		copy(to.ActionMask, s.ActionMask)
		copy(to.Logprobs, s.Logprobs)
		copy(to.Versions, s.Versions)
	}
	run := func(name string, op func()) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			copies, ops := time.Hour, time.Hour
			const block = 64
			for b.Loop() {
				start := time.Now()
				for range block {
					copyArrays()
				}
				middle := time.Now()
				for range block {
					op()
				}
				ops = min(ops, time.Since(middle))
				copies = min(copies, middle.Sub(start))
			}
			b.ReportMetric(float64(ops)/float64(copies), "x-copy")
			b.ReportMetric(float64(copies.Nanoseconds())/block, "copy-ns")
			b.ReportMetric(float64(ops.Nanoseconds())/block, "codec-ns")
			b.ReportMetric(0, "ns/op")
		})
	}
	var e Encoder
	run("encode/reused", func() { _, _ = e.Encode(traj) })
	run("encode/fresh", func() { _, _ = Marshal(traj) })
	var d Decoder
	var into Trajectory
	run("decode/reused", func() { _ = d.Decode(data, &into) })
	run("decode/fresh", func() { _ = Unmarshal(data, new(Trajectory)) })
	run("validate", func() { _ = traj.Validate() })
}
