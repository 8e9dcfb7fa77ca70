package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-rl/weir/gpu"
)

func file(header string, body int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, body)...)
}

func drawWeights(t *rapid.T) *gpu.Weights {
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-zé"\\<.0-9]{1,12}`), 0, 6, rapid.ID[string]).Draw(t, "names")
	w := &gpu.Weights{Tensors: []gpu.Tensor{}}
	for _, name := range names {
		shape := rapid.SliceOfN(rapid.IntRange(1, 5), 0, 3).Draw(t, "shape")
		n := 1
		for _, s := range shape {
			n *= s
		}
		data := make([]float32, n)
		for i := range data {
			data[i] = math.Float32frombits(rapid.Uint32().Draw(t, "bits"))
		}
		w.Tensors = append(w.Tensors, gpu.Tensor{Name: name, Shape: shape, Data: data})
	}
	return w
}

func bitsOf(x []float32) []uint32 {
	b := make([]uint32, len(x))
	for i := range x {
		b[i] = math.Float32bits(x[i])
	}
	return b
}

func TestRoundTripKeepsEveryBitAndTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWeights(t)
		b, err := Encode(w, F32)
		require.NoError(t, err)
		var stream bytes.Buffer
		require.NoError(t, Write(&stream, w, F32))
		require.Equal(t, b, stream.Bytes(), "Write gives Encode's bytes")
		got, err := Decode(b)
		require.NoError(t, err)
		require.Len(t, got.Tensors, len(w.Tensors))
		for i, want := range w.Tensors {
			require.Equal(t, want.Name, got.Tensors[i].Name)
			require.Equal(t, append([]int{}, want.Shape...), got.Tensors[i].Shape)
			require.Equal(t, bitsOf(want.Data), bitsOf(got.Tensors[i].Data))
		}
	})
}

func TestBF16RoundsToNearestEven(t *testing.T) {
	f := math.Float32frombits
	nan := math.Float32frombits(0xff800001)
	for _, c := range []struct{ in, want float32 }{
		{1, 1},
		{-2.5, -2.5},
		{0, 0},
		{f(0x80000000), f(0x80000000)},
		{f(0x3f808000), f(0x3f800000)}, // a tie goes down to even
		{f(0x3f818000), f(0x3f820000)}, // a tie goes up to even
		{f(0x3f808001), f(0x3f810000)},
		{f(0x3f807fff), f(0x3f800000)},
		{math.MaxFloat32, float32(math.Inf(1))},
		{float32(math.Inf(-1)), float32(math.Inf(-1))},
		{f(1), 0},
		{f(0x00008001), f(0x00010000)},
	} {
		require.Equal(t, math.Float32bits(c.want), math.Float32bits(RoundBF16(c.in)), "%x", math.Float32bits(c.in))
	}
	got := RoundBF16(nan)
	require.True(t, got != got, "NaN stays NaN")
	require.True(t, math.Signbit(float64(got)))

	rapid.Check(t, func(t *rapid.T) {
		w := drawWeights(t)
		b, err := Encode(w, BF16)
		require.NoError(t, err)
		back, err := Decode(b)
		require.NoError(t, err)
		for i, tensor := range w.Tensors {
			for j, v := range tensor.Data {
				require.Equal(t, math.Float32bits(RoundBF16(v)), math.Float32bits(back.Tensors[i].Data[j]))
			}
		}
		again, err := Encode(back, BF16)
		require.NoError(t, err)
		require.Equal(t, b, again, "a second pass changes nothing")
	})
}

func TestEncodeBytes(t *testing.T) {
	w := &gpu.Weights{Tensors: []gpu.Tensor{
		{Name: "b", Shape: []int{2}, Data: []float32{1, 2}},
		{Name: "a", Shape: []int{1, 1}, Data: []float32{3}},
	}}
	b, err := Encode(w, F32)
	require.NoError(t, err)
	n := int(binary.LittleEndian.Uint64(b))
	require.Zero(t, (8+n)%8, "the numbers begin on a multiple of 8 bytes")
	head := string(b[8 : 8+n])
	require.Equal(t, `{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,1],"data_offsets":[8,12]},`+
		`"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, strings.TrimRight(head, " "))
	require.True(t, json.Valid([]byte(head)))
	require.Equal(t, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40}, b[8+n:])
}

func TestEncodeRefuses(t *testing.T) {
	one := []float32{1}
	for fault, w := range map[string][]gpu.Tensor{
		`encode tensor "": the name is empty`:                                                  {{Shape: []int{1}, Data: one}},
		`encode tensor "__metadata__": the name is reserved`:                                   {{Name: "__metadata__", Shape: []int{1}, Data: one}},
		`encode tensor "x": the name is used twice`:                                            {{Name: "x", Shape: []int{1}, Data: one}, {Name: "x", Shape: []int{1}, Data: one}},
		`encode tensor "x": shape [-1] has a negative size`:                                    {{Name: "x", Shape: []int{-1}, Data: one}},
		`encode tensor "x": shape [2 3] does not hold the data's 1 elements`:                   {{Name: "x", Shape: []int{2, 3}, Data: one}},
		`encode tensor "x": shape [0] does not hold the data's 1 elements`:                     {{Name: "x", Shape: []int{0}, Data: one}},
		`encode tensor "x": shape [4294967296 4294967296] does not hold the data's 1 elements`: {{Name: "x", Shape: []int{1 << 32, 1 << 32}, Data: one}},
	} {
		_, err := Encode(&gpu.Weights{Tensors: w}, F32)
		require.EqualError(t, err, fault)
	}
	big := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	_, err := Encode(&gpu.Weights{Tensors: []gpu.Tensor{{Name: "x", Shape: []int{4, 1<<62 + 2}, Data: big}}}, F32)
	require.ErrorContains(t, err, "does not hold the data's 8 elements", "a product that overflows to the right number")
	empty, err := Encode(&gpu.Weights{Tensors: []gpu.Tensor{{Name: "x", Shape: []int{2, 0}, Data: nil}}}, F32)
	require.NoError(t, err)
	_, err = Decode(empty)
	require.NoError(t, err)
	_, err = Encode(&gpu.Weights{}, "F64")
	require.EqualError(t, err, `encode safetensors: type "F64" is not supported: want F32, BF16 or F16`)
}

func TestDecodeRefuses(t *testing.T) {
	const x = `"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`
	whole := file(`{`+x+`}`, 8)
	_, err := Decode(whole)
	require.NoError(t, err)
	for _, c := range []struct {
		data  []byte
		fault string
	}{
		{nil, "0 bytes: cut short in the header's length"},
		{whole[:5], "5 bytes: cut short in the header's length"},
		{whole[:20], "the file has 12 after its length: cut short"},
		{whole[:len(whole)-1], `tensor "x": its numbers end at byte 8, the file has 7: cut short`},
		{binary.LittleEndian.AppendUint64(nil, 1<<63), "at most 100000000"},
		{file(`[]`, 0), "the header is not a JSON object"},
		{file(`{"x"`, 0), `tensor "x": `},
		{file(`{`+x, 8), "the header is not JSON"},
		{file(`{"x":`, 8), `tensor "x": EOF`},
		{file(`{`+x+`}{}`, 8), "the header goes on after its JSON object"},
		{file(`{`+x+`,`+x+`}`, 8), `tensor "x": the name is used twice`},
		{file(`{"":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8), "a tensor has no name"},
		{file(`{"x":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}`, 8), `tensor "x": type "I64" is not supported`},
		{file(`{"x":{"dtype":"F32","data_offsets":[0,8]}}`, 8), `tensor "x": it has no shape`},
		{file(`{"x":{"dtype":"F32","shape":[2]}}`, 8), `tensor "x": it has no data_offsets`},
		{file(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}}`, 8), `tensor "x"`},
		{file(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8), `tensor "x": offsets [8, 0] are not a range`},
		{file(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}}`, 8), `tensor "x": offsets [-8, 0] are not a range`},
		{file(`{"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8), `tensor "x": shape [-2] is out of range`},
		{file(`{"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, 8), `is out of range`},
		{file(`{"x":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8), `tensor "x": shape [3] takes 12 bytes as F32, its offsets hold 8`},
		{file(`{"x":{"dtype":"F32","shape":[1e99],"data_offsets":[0,8]}}`, 8), `tensor "x"`},
		{file(`{`+x+`,"y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), `tensor "y": its numbers begin at byte 4, inside those before it`},
		{file(`{`+x+`,"y":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}`, 16), `tensor "y": its numbers begin at byte 12, 4 after those before it`},
		{file(`{`+x+`}`, 9), "1 bytes follow the last tensor's numbers"},
		{file(`{"__metadata__":{"a":1},`+x+`}`, 8), "__metadata__"},
		{[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"), "git lfs pull"},
	} {
		_, err := Decode(c.data)
		require.ErrorIs(t, err, ErrMalformed)
		require.ErrorContains(t, err, c.fault)
	}
}

// Whatever the bytes, Decode returns; what it accepts holds no more numbers than the bytes do, and encodes
// and decodes to itself.
func FuzzDecode(f *testing.F) {
	w := &gpu.Weights{Tensors: []gpu.Tensor{{Name: "a", Shape: []int{2, 2}, Data: []float32{1, 2, 3, 4}}, {Name: "b", Data: []float32{5}}}}
	for _, d := range []DType{F32, BF16, F16} {
		b, err := Encode(w, d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-3])
	}
	f.Add(file(`{"x":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := Decode(data)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		numbers := 0
		for _, tensor := range w.Tensors {
			numbers += len(tensor.Data)
		}
		require.LessOrEqual(t, 2*numbers, len(data))
		b, err := Encode(w, F32)
		require.NoError(t, err)
		again, err := Decode(b)
		require.NoError(t, err)
		require.Len(t, again.Tensors, len(w.Tensors))
		for i := range w.Tensors {
			require.Equal(t, w.Tensors[i].Name, again.Tensors[i].Name)
			require.Equal(t, bitsOf(w.Tensors[i].Data), bitsOf(again.Tensors[i].Data))
		}
	})
}
