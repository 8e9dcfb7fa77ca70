package schemas

import (
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// What is adopted is what is unmarshalled, wherever the bytes lie, and they can be had back.
func TestAdoptReadsWhatUnmarshalReads(t *testing.T) {
	t.Parallel()
	for _, traj := range []*Trajectory{sampleTrajectory(), benchTrajectory(), {}} {
		data, err := Marshal(traj)
		require.NoError(t, err)
		var want Trajectory
		require.NoError(t, Unmarshal(data, &want))
		for offset := range 8 {
			own := append(make([]byte, offset), data...)[offset:]
			var got Trajectory
			undo, err := Adopt(own, &got)
			require.NoError(t, err)
			require.Equal(t, want, got)
			for i := range got.Segments {
				s := &got.Segments[i]
				require.Equal(t, len(s.Tokens), cap(s.Tokens), "nothing is appended over what follows")
				require.Equal(t, len(s.ActionMask), cap(s.ActionMask))
				require.Equal(t, len(s.Logprobs), cap(s.Logprobs))
				if nativeLittle() {
					require.True(t, within(viewAsBytes(s.Tokens), own), "not copied")
					require.True(t, within(viewAsBytes(s.Logprobs), own))
				}
			}
			again, err := Marshal(&got)
			require.NoError(t, err)
			require.Equal(t, data, again)
			undo()
			require.Equal(t, data, own)
		}
	}
}

// A message that is not one is left as it came.
func TestAdoptLeavesWhatItRefuses(t *testing.T) {
	t.Parallel()
	data, err := Marshal(sampleTrajectory())
	require.NoError(t, err)
	for cut := range data {
		own := slices.Clone(data[:cut])
		_, err := Adopt(own, new(Trajectory))
		require.ErrorIs(t, err, ErrMalformed)
		require.Equal(t, data[:cut], own)
	}
}

func FuzzAdopt(f *testing.F) {
	data := golden(f, KindTrajectory)
	f.Add(data, 0)
	f.Add(data, 1)
	f.Add(data[:len(data)/2], 3)
	f.Fuzz(func(t *testing.T, data []byte, offset int) {
		offset &= 7
		own := append(make([]byte, offset), data...)[offset:]
		var got, want Trajectory
		undo, err := Adopt(own, &got)
		if plain := Unmarshal(data, &want); (plain == nil) != (err == nil) || err != nil && err.Error() != plain.Error() {
			t.Fatalf("adopted: %v; unmarshalled: %v", err, plain)
		}
		if err == nil {
			first, _ := Marshal(&got)
			second, _ := Marshal(&want)
			if string(first) != string(second) {
				t.Fatalf("not the same:\n%x\n%x", first, second)
			}
			undo()
		}
		if string(own) != string(data) {
			t.Fatalf("changed:\n%x\n%x", own, data)
		}
	})
}

// within says whether part lies in the memory of whole.
func within(part, whole []byte) bool {
	if len(part) == 0 {
		return true
	}
	begin, end := uintptr(unsafe.Pointer(unsafe.SliceData(part))), reflect.ValueOf(whole).Pointer()
	return begin >= end && begin+uintptr(len(part)) <= end+uintptr(len(whole))
}
