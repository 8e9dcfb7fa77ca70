package schemas

import (
	"bytes"
	"encoding/hex"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
	"pgregory.net/rapid"
)

// kinds makes an empty message of every kind.
func kinds() map[Kind]func() message {
	return map[Kind]func() message{
		KindTicket:          func() message { return new(Ticket) },
		KindTrajectory:      func() message { return new(Trajectory) },
		KindGroupClosed:     func() message { return new(GroupClosed) },
		KindManifest:        func() message { return new(Manifest) },
		KindControl:         func() message { return new(Control) },
		KindEvent:           func() message { return new(Event) },
		KindGenerateRequest: func() message { return new(GenerateRequest) },
		KindGenerateChunk:   func() message { return new(GenerateChunk) },
		KindToolRequest:     func() message { return new(ToolRequest) },
		KindToolReply:       func() message { return new(ToolReply) },
		KindEvaluation:      func() message { return new(Evaluation) },
		KindJournalRecord:   func() message { return new(JournalRecord) },
	}
}

func sortedKinds() []Kind { return slices.Sorted(maps.Keys(kinds())) }

// draw fills every field of v, found by reflection, so that a field missing from a field list is noticed.
func draw(t *rapid.T, v reflect.Value, label string) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		sec := rapid.OneOf(rapid.Int64Range(-1<<40, 1<<40), rapid.Int64Range(0, 1<<32)).Draw(t, label)
		v.Set(reflect.ValueOf(time.Unix(sec, rapid.SampledFrom([]int64{0, 1, 999_999_999}).Draw(t, label)).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(rapid.OneOf(rapid.Just(""), rapid.String(), rapid.StringN(0, 400, -1)).Draw(t, label))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, label))
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(rapid.Int64Range(math.MinInt64>>(64-v.Type().Bits()), math.MaxInt64>>(64-v.Type().Bits())).Draw(t, label))
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(rapid.Uint64Max(math.MaxUint64>>(64-v.Type().Bits())).Draw(t, label))
	case reflect.Float32:
		v.SetFloat(float64(rapid.Float32().Draw(t, label)))
	case reflect.Float64:
		v.SetFloat(rapid.Float64().Draw(t, label))
	case reflect.Slice:
		n := rapid.IntRange(0, 20).Draw(t, label)
		if n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		for i := range n {
			draw(t, v.Index(i), label)
		}
	case reflect.Map:
		if n := rapid.IntRange(0, 20).Draw(t, label); n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				draw(t, key, label)
				draw(t, value, label)
				v.SetMapIndex(key, value)
			}
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, label) {
			v.Set(reflect.New(v.Type().Elem()))
			draw(t, v.Elem(), label)
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			draw(t, value, field.Name)
		}
		// Arrays that the wire ties together.
		if runs := v.FieldByName("Versions"); runs.IsValid() {
			n := v.FieldByName("Tokens").Len()
			value := Runs(nil)
			for len(value) < n {
				run := min(rapid.IntRange(1, 700).Draw(t, "run"), n-len(value))
				version := rapid.Int32Range(-1, 3).Draw(t, "version")
				value = append(value, slices.Repeat([]int32{version}, run)...)
			}
			runs.Set(reflect.ValueOf(value))
		}
	default:
		t.Fatalf("no way to draw a %s", v.Type())
	}
}

func TestRoundTrip(t *testing.T) {
	for _, kind := range sortedKinds() {
		t.Run(string(kind), rapid.MakeCheck(func(t *rapid.T) {
			in, out := kinds()[kind](), kinds()[kind]()
			draw(t, reflect.ValueOf(in).Elem(), string(kind))
			data, err := Marshal(in)
			require.NoError(t, err)
			require.NoError(t, Unmarshal(data, out))
			require.Equal(t, in, out)

			again, err := Marshal(reflect.ValueOf(out).Elem().Interface())
			require.NoError(t, err)
			require.Equal(t, data, again, "equal messages are equal bytes, by pointer and by value")

			got, version, err := Peek(data)
			require.NoError(t, err)
			require.Equal(t, kind, got)
			require.Equal(t, Version, version)
		}))
	}
}

func TestUnmarshalOverwritesAll(t *testing.T) {
	for _, kind := range sortedKinds() {
		t.Run(string(kind), rapid.MakeCheck(func(t *rapid.T) {
			old, in := kinds()[kind](), kinds()[kind]()
			draw(t, reflect.ValueOf(old).Elem(), "old")
			draw(t, reflect.ValueOf(in).Elem(), "new")
			data, err := Marshal(in)
			require.NoError(t, err)
			require.NoError(t, Unmarshal(data, old))
			again, err := Marshal(old)
			require.NoError(t, err)
			require.Equal(t, data, again)
		}))
	}
}

func TestEveryTagIsOnTheWire(t *testing.T) {
	for _, kind := range sortedKinds() {
		t.Run(string(kind), func(t *testing.T) {
			full := kinds()[kind]()
			fillOnes(reflect.ValueOf(full).Elem())
			data, err := Marshal(full)
			require.NoError(t, err)
			var got map[string]any
			require.NoError(t, msgpack.Unmarshal(data, &got), "a general msgpack reader takes it")
			delete(got, "schema")
			delete(got, "kind")
			requireTags(t, string(kind), reflect.TypeOf(full).Elem(), got)
		})
	}
}

// fillOnes sets every field to something that is not its zero value.
func fillOnes(v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1, 1).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(1)
	case reflect.Uint64, reflect.Uint8:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillOnes(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fillOnes(value)
		v.SetMapIndex(reflect.ValueOf("x"), value)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillOnes(v.Elem())
	case reflect.Struct:
		for _, value := range v.Fields() {
			fillOnes(value)
		}
	}
}

func requireTags(t *testing.T, path string, typ reflect.Type, got map[string]any) {
	t.Helper()
	var want []string
	for field := range typ.Fields() {
		tag, _, _ := strings.Cut(field.Tag.Get("msgpack"), ",")
		want = append(want, tag)
		inner := field.Type
		value := got[tag]
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct {
			inner, value = inner.Elem(), value.([]any)[0]
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() {
			requireTags(t, path+"."+tag, inner, value.(map[string]any))
		}
	}
	require.ElementsMatch(t, want, slices.Collect(maps.Keys(got)), path)
}

// wire is values one after the other, as the library writes them.
func wire(values ...any) []byte {
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	enc.UseCompactInts(true)
	for _, v := range values {
		switch v := v.(type) {
		case mapOf:
			_ = enc.EncodeMapLen(int(v))
		case asIs:
			b.Write(v)
		default:
			_ = enc.Encode(v)
		}
	}
	return b.Bytes()
}

type (
	mapOf int
	asIs  []byte
)

// field is a key and the bytes after it.
func field(key string, value ...byte) []byte { return wire(key, asIs(value)) }

func TestHeaderFaults(t *testing.T) {
	tests := []struct {
		name string
		data []byte
		want error
		text string
	}{
		{"nothing", nil, ErrMalformed, "cut short"},
		{"not a map", []byte{0x01}, ErrMalformed, "not a map"},
		{"no keys", wire(mapOf(0)), ErrMalformed, "no schema and kind"},
		{"kind first", wire(mapOf(2), "kind", "control", "schema", Version), ErrMalformed, "schema: not the first key"},
		{"schema alone", wire(mapOf(2), "schema", Version, "run", "x"), ErrMalformed, "kind: not the second key"},
		{"schema as text", wire(mapOf(2), "schema", "1", "kind", "control"), ErrMalformed, "schema: not an integer"},
		{"version below 0", wire(mapOf(2), "schema", -1, "kind", "control"), ErrMalformed, "schema: integer out of range"},
		{"later version", wire(mapOf(2), "schema", 4, "kind", "control"), ErrVersion, "4; this build reads 3"},
		{"version 0", wire(mapOf(2), "schema", 0, "kind", "control"), ErrVersion, "0; this build reads 3"},
		{"earlier version", wire(mapOf(2), "schema", 2, "kind", "control"), ErrVersion, "2; this build reads 3"},
		{"foreign kind", wire(mapOf(2), "schema", Version, "kind", "weather"), ErrKind, `"weather"`},
		{"other kind", wire(mapOf(2), "schema", Version, "kind", "ticket"), ErrKind, "ticket instead of control"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Unmarshal(tt.data, new(Control))
			require.ErrorIs(t, err, tt.want)
			require.ErrorContains(t, err, tt.text)
		})
	}
	_, version, err := Peek(wire(mapOf(2), "schema", 7, "kind", "control"))
	require.ErrorIs(t, err, ErrVersion)
	require.Equal(t, 7, version)
	_, err = Marshal(42)
	require.ErrorIs(t, err, ErrKind)
	require.ErrorIs(t, Unmarshal(nil, Control{}), ErrKind)
}

// replace changes the first bytes old of data, which must be there.
func replace(t *testing.T, data, old, new []byte) []byte {
	t.Helper()
	at := strings.Index(string(data), string(old))
	require.GreaterOrEqual(t, at, 0, "the bytes to break are there")
	return slices.Concat(data[:at], new, data[at+len(old):])
}

func TestFieldFaultsAreNamed(t *testing.T) {
	traj := sampleTrajectory()
	data, err := Marshal(traj)
	require.NoError(t, err)
	var decoder Decoder
	key := func(name string) []byte { return wire(name) }
	with := field
	tests := []struct {
		name string
		data []byte
		text string
	}{
		{"unknown key", replace(t, data, key("task"), key("tisk")), `trajectory."tisk": unknown key`},
		{"empty key", replace(t, data, key("task"), key("")), `trajectory."": unknown key`},
		{"key twice", replace(t, data, key("group"), key("id")), "trajectory.id: key twice"},
		{"nested unknown key", replace(t, data, key("action_mask"), key("actoin_mask")), `trajectory.segments[0]."actoin_mask": unknown key`},
		{"wrong type", replace(t, data, with("attempt", 0), with("attempt", msgpcode.True)), "trajectory.attempt: not an integer"},
		{"integer too large", replace(t, data, with("attempt", 0), append(with("attempt", msgpcode.Uint64), slices.Repeat([]byte{0xff}, 8)...)), "trajectory.attempt: integer out of range"},
		{"negative count", replace(t, data, with("cursor", 7), with("cursor", 0xff)), "trajectory.cursor: integer out of range"},
		{"bad UTF-8", replace(t, data, wire("paris"), []byte{0xa5, 0xff, 0xff, 0xff, 0xff, 0xff}), "trajectory.answer: not valid UTF-8"},
		{"tokens not whole", replace(t, data, with("tokens", msgpcode.Bin8, 24), with("tokens", msgpcode.Bin8, 23)), "trajectory.segments[0].tokens: not a whole number of values"},
		{"run of nothing", replace(t, data, []byte{2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, []byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}), "trajectory.segments[0].versions: a run of no values"},
		{"runs too long", replace(t, data, []byte{2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}, []byte{0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff}), "trajectory.segments[0].versions: runs do not add up"},
		{"key missing", replace(t, data, append(append(key("segment"), 0), append(key("start"), 2)...), append(append(key("calls"), 0x90), append(key("start"), 2)...)), "trajectory.turns[0].calls: key twice"},
		{"trailing", append(slices.Clone(data), 0), "trajectory: 1 bytes after the message"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Unmarshal(tt.data, new(Trajectory))
			require.ErrorIs(t, err, ErrMalformed)
			require.ErrorContains(t, err, tt.text)
			require.Equal(t, err, decoder.Decode(tt.data, new(Trajectory)))
			require.NoError(t, decoder.Decode(data, new(Trajectory)), "a fault does not outlive its message")
		})
	}
	for n := range data {
		require.Error(t, Unmarshal(data[:n], new(Trajectory)), "cut at %d", n)
	}
	control, err := Marshal(Control{})
	require.NoError(t, err)
	control[2]-- // one key fewer than there are: the last, "at", becomes trailing bytes
	require.ErrorContains(t, Unmarshal(control, new(Control)), "control.at: key missing")
}

func TestKeysInAnyOrder(t *testing.T) {
	data := wire(mapOf(10), "schema", Version, "kind", "control", "at", time.Unix(5, 0), "depth", 2, "eta", 4, "min_version", 1,
		"policy_version", 3, "draining", false, "paused", true, "run", "r")
	var got Control
	require.NoError(t, Unmarshal(data, &got))
	require.Equal(t, Control{Run: "r", Paused: true, PolicyVersion: 3, MinVersion: 1, Eta: 4, Depth: 2, At: time.Unix(5, 0).UTC()}, got)
}

func TestVersionsMayComeBeforeTokens(t *testing.T) {
	words := []byte{1, 0, 0, 0, 2, 0, 0, 0}
	segment := wire(mapOf(5), "versions", []byte{2, 0, 0, 0, 5, 0, 0, 0}, "tokens", words, "logprobs", words,
		"action_mask", []byte{0, 1}, "temperature", float32(1))
	full := sampleTrajectory()
	full.Segments = nil
	data, err := Marshal(full)
	require.NoError(t, err)
	data = replace(t, data, field("segments", 0x90), field("segments", append([]byte{0x91}, segment...)...))
	var got Trajectory
	require.NoError(t, Unmarshal(data, &got))
	require.Equal(t, Runs{5, 5}, got.Segments[0].Versions)
}

func TestStringsAreAlwaysReadable(t *testing.T) {
	data, err := Marshal(Event{Message: "caf\xe9"})
	require.NoError(t, err)
	var got Event
	require.NoError(t, Unmarshal(data, &got))
	require.Equal(t, "caf\uFFFD", got.Message)
}

func TestEncoderReusesItsBuffer(t *testing.T) {
	var e Encoder
	traj := sampleTrajectory()
	first, err := e.Encode(traj)
	require.NoError(t, err)
	want := slices.Clone(first)
	second, err := e.Encode(traj)
	require.NoError(t, err)
	require.Equal(t, want, second)
	require.Same(t, &first[0], &second[0])

	dst, err := Append([]byte("head"), traj)
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(dst[4:]))
	require.Equal(t, "head", string(dst[:4]))
}
