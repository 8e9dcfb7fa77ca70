package schemas

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
	"pgregory.net/rapid"
)

// requestWith is a request of which one value is by hand.
func requestWith(key string, value []byte) []byte {
	b := wire(mapOf(10), "schema", Version, "kind", "generate_request")
	for _, f := range []struct {
		key   string
		value any
	}{{"run", "r"}, {"episode", "e"}, {"tokens", []byte{}}, {"max_tokens", 1}, {"temperature", 1.0}, {"seed", 1}, {"stop_tokens", []byte{}}, {"last", true}} {
		if f.key == key {
			b = append(b, field(key, value...)...)
		} else {
			b = append(b, wire(f.key, f.value)...)
		}
	}
	return b
}

func TestNumbersOfOtherWriters(t *testing.T) {
	// JavaScript sends 1.0 as the integer 1; Python sends float32 fields as float64.
	tests := []struct {
		value []byte
		want  float32
		fault string
	}{
		{[]byte{1}, 1, ""},
		{[]byte{0xff}, -1, ""},
		{wire(float32(0.5)), 0.5, ""},
		{wire(0.25), 0.25, ""},
		{wire(uint64(1) << 60), 0, "integer too large"},
		{wire(uint64(math.MaxUint64)), 0, "integer too large"},
		{wire("1"), 0, "not a number"},
		{[]byte{msgpcode.Nil}, 0, "not a number"},
	}
	for _, tt := range tests {
		var got GenerateRequest
		err := Unmarshal(requestWith("temperature", tt.value), &got)
		if tt.fault != "" {
			require.ErrorContains(t, err, "generate_request.temperature: "+tt.fault)
			continue
		}
		require.NoError(t, err)
		require.InDelta(t, tt.want, got.Temperature, 0)
	}
}

func TestWhatTheLibraryWouldTakeIsRefused(t *testing.T) {
	null := []byte{msgpcode.Nil}
	tests := []struct {
		name, key string
		value     []byte
		fault     string
	}{
		{"nil as text", "run", null, "not a string"},
		{"bytes as text", "run", wire([]byte("r")), "not a string"},
		{"nil as bytes", "tokens", null, "not binary"},
		{"text as bytes", "tokens", wire("1234"), "not binary"},
		{"nil as an integer", "max_tokens", null, "not an integer"},
		{"a float as an integer", "max_tokens", wire(1.0), "not an integer"},
		{"an integer that wraps", "max_tokens", wire(uint64(1) << 63), "integer out of range"},
		{"a negative one that wraps", "seed", wire(-1), "integer out of range"},
		{"nil as a boolean", "last", null, "not a boolean"},
		{"an integer as a boolean", "last", []byte{1}, "not a boolean"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Unmarshal(requestWith(tt.key, tt.value), new(GenerateRequest))
			require.ErrorIs(t, err, ErrMalformed)
			require.ErrorContains(t, err, "generate_request."+tt.key+": "+tt.fault)
		})
	}
}

func TestHostileLengthsTakeLittleMemory(t *testing.T) {
	head := wire(mapOf(22), "schema", Version, "kind", "trajectory")
	with := func(name string, value ...byte) []byte {
		return slices.Concat(head, field(name, value...), make([]byte, 1000))
	}
	inSegment := func(name string, value ...byte) []byte {
		return with("segments", append([]byte{0x91, 0x85}, field(name, value...)...)...)
	}
	huge := func(code byte) []byte { return []byte{code, 0xff, 0xff, 0xff, 0xff} }
	inputs := map[string][]byte{
		"map of 4G keys":       huge(msgpcode.Map32),
		"key of 4 GB":          append(slices.Clip(head), huge(msgpcode.Str32)...),
		"string of 4 GB":       with("run", huge(msgpcode.Str32)...),
		"array of 4G segments": with("segments", huge(msgpcode.Array32)...),
		"map of 4G rewards":    with("rewards", huge(msgpcode.Map32)...),
		"time of 4 GB":         with("started_at", append(huge(msgpcode.Ext32), 0xff)...),
		"time of 255 bytes":    with("started_at", msgpcode.Ext8, 0xff, 0xff),
		"1000 empty segments":  with("segments", msgpcode.Array16, 3, 0xe8),
		"tokens of 4 GB":       inSegment("tokens", huge(msgpcode.Bin32)...),
		"a run of 2G versions": inSegment("versions", msgpcode.Bin8, 8, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0),
	}
	for name, data := range inputs {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := Unmarshal(data, new(Trajectory))
			runtime.ReadMemStats(&after)
			require.ErrorIs(t, err, ErrMalformed)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10))
		})
	}
}

func TestIntegersOfEveryWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int64().Draw(t, "v") >> rapid.IntRange(0, 63).Draw(t, "shift")
		encodings := [][]byte{wire(v), must(msgpack.Marshal(v))}
		if v >= 0 {
			encodings = append(encodings, must(msgpack.Marshal(uint64(v))))
		}
		for _, data := range encodings {
			var got GenerateRequest
			require.NoError(t, Unmarshal(requestWith("max_tokens", data), &got))
			require.Equal(t, int(v), got.MaxTokens)
			if err := Unmarshal(requestWith("seed", data), &got); v >= 0 {
				require.NoError(t, err)
				require.Equal(t, uint64(v), got.Seed)
			} else {
				require.ErrorContains(t, err, "generate_request.seed: integer out of range")
			}
		}
	})
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestTimes(t *testing.T) {
	control := func(at []byte) []byte {
		data, err := Marshal(Control{})
		require.NoError(t, err)
		return replace(t, data, wire("at", time.Time{}), field("at", at...))
	}
	for _, v := range []time.Time{
		{},
		time.Unix(0, 0), time.Unix(1, 1), time.Unix(1<<32, 0), time.Unix(1<<34-1, 999_999_999),
		time.Unix(1<<34, 5), time.Unix(-1, 5), time.Unix(-1<<55, 0), time.Unix(1<<55, 0),
	} {
		var got Control
		require.NoError(t, Unmarshal(control(wire(v)), &got))
		require.Equal(t, v.UTC(), got.At)
	}
	nanos := slices.Repeat([]byte{0xff}, 4)
	for name, tt := range map[string]struct {
		at    []byte
		fault string
	}{
		"text":                   {wire("2026-01-01T00:00:00Z"), "not a whole timestamp"},
		"pair of integers":       {[]byte{0x92, 1, 1}, "not a whole timestamp"},
		"nil":                    {[]byte{msgpcode.Nil}, "not a whole timestamp"},
		"another extension":      {[]byte{msgpcode.FixExt4, 13, 0, 0, 0, 0}, "not a whole timestamp"},
		"another length":         {[]byte{msgpcode.Ext8, 5, 0xff, 0, 0, 0, 0, 0}, "not a whole timestamp"},
		"too many nanos":         {append([]byte{msgpcode.FixExt8, 0xff}, append(slices.Clone(nanos), 0, 0, 0, 0)...), "timestamp out of range"},
		"too many nanos, longer": {append([]byte{msgpcode.Ext8, 12, 0xff}, append(slices.Clone(nanos), make([]byte, 8)...)...), "timestamp out of range"},
		"too late":               {wire(time.Unix(1<<55+1, 0)), "timestamp out of range"},
		"cut":                    {[]byte{msgpcode.FixExt8, 0xff, 1}, "not a whole timestamp"},
	} {
		err := Unmarshal(control(tt.at), new(Control))
		require.ErrorIs(t, err, ErrMalformed, name)
		require.ErrorContains(t, err, "control.at: "+tt.fault, name)
	}
}
