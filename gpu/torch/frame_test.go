package torch

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFramesComeBack(t *testing.T) {
	t.Parallel()
	floats, bytesIn := []float32{1, -2.5, 3e38}, []uint8{1, 0, 255}
	data, err := appendFrame(nil, map[string]any{"id": 7, "op": "forward"},
		buffer{"a", []int32{-1, 2}}, buffer{"b", floats}, buffer{"c", []float64{0.1}}, buffer{"d", bytesIn}, buffer{"e", []float32{}})
	require.NoError(t, err)
	in := bytes.NewReader(append(data, data...))
	for range 2 {
		f, err := readFrame(in)
		require.NoError(t, err)
		require.Equal(t, uint64(7), f.ID)
		require.Equal(t, "forward", f.Op)
		require.Equal(t, []int32{-1, 2}, f.buffers["a"])
		require.Equal(t, floats, f.buffers["b"])
		require.Equal(t, []float64{0.1}, f.buffers["c"])
		require.Equal(t, bytesIn, f.buffers["d"])
		require.Equal(t, []float32{}, f.buffers["e"])
		_, err = f.floatBuffer("b", 4)
		require.EqualError(t, err, "a rank answered with 3 b for 4 tokens")
		_, err = f.floatBuffer("none", 1)
		require.Error(t, err)
	}
	_, err = appendFrame(nil, map[string]any{}, buffer{"a", "text"})
	require.EqualError(t, err, "buffer a is a string")
}

func frameOf(header string, rest ...byte) []byte {
	return append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(header))), header...), rest...)
}

func TestFramesThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{
		"nothing":           nil,
		"a length cut off":  {1, 0},
		"a header too long": {0, 0, 0, 255},
		"a header cut off":  frameOf(`{"id":1}`)[:8],
		"no JSON":           frameOf(`{"id":`),
		"a buffer's kind":   frameOf(`{"id":1,"bufs":[["a","f16",1]]}`, 0, 0),
		"a buffer's count":  frameOf(`{"id":1,"bufs":[["a","u8",-1]]}`),
		"a huge count":      frameOf(`{"id":1,"bufs":[["a","f64",9223372036854775807]]}`),
		"a buffer cut off":  frameOf(`{"id":1,"bufs":[["a","u8",3]]}`, 1, 2),
		"no triple":         frameOf(`{"id":1,"bufs":[["a","u8"]]}`),
	} {
		_, err := readFrame(bytes.NewReader(data))
		require.Error(t, err, name)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(frameOf(`{"id":1,"bufs":[["a","u8",3],["b","f32",1]]}`, 1, 2, 3, 0, 0, 128, 63))
	f.Add(frameOf(`{"id":0,"op":"forward","done":3}`))
	f.Add(frameOf(`{"id":2,"error":{"kind":"oom","message":"x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readFrame(bytes.NewReader(data))
		if err != nil {
			return
		}
		total := int64(4 + len(got.header))
		for _, d := range got.Bufs {
			total += d.count * kinds[d.kind]
		}
		require.LessOrEqual(t, total, int64(len(data)), "no frame is longer than what came")
	})
}
