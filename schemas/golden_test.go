package schemas

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew; only with a new wire version")

func goldenPath(kind Kind) string {
	return filepath.Join("testdata", "v"+strconv.Itoa(Version), string(kind)+".msgpack")
}

func golden(tb testing.TB, kind Kind) []byte {
	tb.Helper()
	data, err := os.ReadFile(goldenPath(kind))
	require.NoError(tb, err)
	return data
}

func TestGoldenBytes(t *testing.T) {
	for kind, sample := range samples() {
		t.Run(string(kind), func(t *testing.T) {
			data, err := Marshal(sample)
			require.NoError(t, err)
			path := goldenPath(kind)
			if *update {
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, data, 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, want, data, "the wire has changed: that is a new Version")
			got := kinds()[kind]()
			require.NoError(t, Unmarshal(golden(t, kind), got))
			require.Equal(t, sample, got)
			require.NoError(t, got.(interface{ Validate() error }).Validate())
		})
	}
}

// A message of any other version is refused, and the error names both versions.
func TestAnotherVersionIsRefused(t *testing.T) {
	for kind := range samples() {
		for _, version := range []byte{0, Version - 1, Version + 1, 127} {
			data := bytes.Replace(golden(t, kind), append([]byte("schema"), Version), append([]byte("schema"), version), 1)
			require.NotEqual(t, golden(t, kind), data)
			err := Unmarshal(data, kinds()[kind]())
			require.ErrorIs(t, err, ErrVersion)
			require.ErrorContains(t, err, strconv.Itoa(int(version))+"; this build reads "+strconv.Itoa(Version))
			_, found, err := Peek(data)
			require.ErrorIs(t, err, ErrVersion)
			require.Equal(t, int(version), found)
		}
	}
}

// readByPython prints what python3-msgpack makes of a file, with the types that JSON lacks spelt out.
const readByPython = `
import base64, json, math, sys
import msgpack

def plain(v):
    if isinstance(v, dict):
        return {"map": [[k, plain(x)] for k, x in v.items()]}
    if isinstance(v, list):
        return {"array": [plain(x) for x in v]}
    if isinstance(v, bytes):
        return {"bin": base64.b64encode(v).decode()}
    if isinstance(v, msgpack.Timestamp):
        return {"time": [v.seconds, v.nanoseconds]}
    if isinstance(v, bool):
        return {"bool": v}
    if isinstance(v, int):
        return {"int": str(v)}
    if isinstance(v, float):
        return {"float": repr(v)}
    if isinstance(v, str):
        return {"str": v}
    raise TypeError(type(v))

print(json.dumps([plain(msgpack.unpackb(open(path, "rb").read(), strict_map_key=True)) for path in sys.argv[1:]]))
`

// pythonWithMsgpack is an interpreter that has the second implementation: Debian's own first, for its packages are
// found by no other.
func pythonWithMsgpack(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(python, "-c", "import msgpack").Run() == nil {
			return python
		}
	}
	const missing = "the golden bytes are read back by a second msgpack implementation, and no python3 here has it: apt-get install python3-msgpack"
	if os.Getenv("CI") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing + "; continuous integration has it and never skips this")
	return ""
}

// plain is a value as python3-msgpack saw it; one field is set.
type plain struct {
	Map   [][2]json.RawMessage `json:"map"`
	Array []plain              `json:"array"`
	Bin   *string              `json:"bin"`
	Time  *[2]int64            `json:"time"`
	Bool  *bool                `json:"bool"`
	Int   *string              `json:"int"`
	Float *string              `json:"float"`
	Str   *string              `json:"str"`
}

func (p plain) fields(t *testing.T) (names []string, values map[string]plain) {
	t.Helper()
	values = make(map[string]plain)
	for _, pair := range p.Map {
		var name string
		var value plain
		require.NoError(t, json.Unmarshal(pair[0], &name))
		require.NoError(t, json.Unmarshal(pair[1], &value))
		names = append(names, name)
		values[name] = value
	}
	return names, values
}

func TestASecondImplementationReadsTheSame(t *testing.T) {
	python := pythonWithMsgpack(t)
	args := []string{"-c", readByPython}
	for _, kind := range sortedKinds() {
		args = append(args, goldenPath(kind))
	}
	out, err := exec.Command(python, args...).Output()
	require.NoError(t, err)
	var messages []plain
	require.NoError(t, json.Unmarshal(out, &messages))
	for i, kind := range sortedKinds() {
		t.Run(string(kind), func(t *testing.T) {
			names, values := messages[i].fields(t)
			require.Equal(t, []string{"schema", "kind"}, names[:2], "the first two keys")
			require.Equal(t, strconv.Itoa(Version), *values["schema"].Int)
			require.Equal(t, string(kind), *values["kind"].Str)
			requireSame(t, string(kind), reflect.ValueOf(samples()[kind]).Elem(), messages[i], 2)
		})
	}
}

// requireSame compares every field of want with what the other implementation read. extra is how many keys the
// map has besides.
func requireSame(t *testing.T, path string, want reflect.Value, got plain, extra int) {
	t.Helper()
	switch v := want.Interface().(type) {
	case time.Time:
		require.Equal(t, [2]int64{v.Unix(), int64(v.Nanosecond())}, *got.Time, path)
		return
	case Runs:
		var values []int32
		raw := unbase64(t, got)
		for i := 0; i < len(raw); i += 8 {
			for range binary.LittleEndian.Uint32(raw[i:]) {
				values = append(values, int32(binary.LittleEndian.Uint32(raw[i+4:])))
			}
		}
		require.Equal(t, []int32(v), values, path)
		return
	case Int32s:
		raw := unbase64(t, got)
		require.Len(t, raw, 4*len(v), path)
		for i, x := range v {
			require.Equal(t, x, int32(binary.LittleEndian.Uint32(raw[4*i:])), path)
		}
		return
	case Float32s:
		raw := unbase64(t, got)
		require.Len(t, raw, 4*len(v), path)
		for i, x := range v {
			require.Equal(t, math.Float32bits(x), binary.LittleEndian.Uint32(raw[4*i:]), path)
		}
		return
	}
	switch want.Kind() {
	case reflect.String:
		require.Equal(t, want.String(), *got.Str, path)
	case reflect.Bool:
		require.Equal(t, want.Bool(), *got.Bool, path)
	case reflect.Int, reflect.Int64:
		require.Equal(t, strconv.FormatInt(want.Int(), 10), *got.Int, path)
	case reflect.Uint64:
		require.Equal(t, strconv.FormatUint(want.Uint(), 10), *got.Int, path)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(*got.Float, 64)
		require.NoError(t, err)
		require.InDelta(t, want.Float(), f, 0, path)
	case reflect.Slice:
		if want.Type().Elem().Kind() == reflect.Uint8 {
			require.Equal(t, want.Bytes(), unbase64(t, got), path)
			return
		}
		require.Len(t, got.Array, want.Len(), path)
		for i := range want.Len() {
			requireSame(t, path+"["+strconv.Itoa(i)+"]", want.Index(i), got.Array[i], 0)
		}
	case reflect.Map:
		_, values := got.fields(t)
		require.Len(t, values, want.Len(), path)
		for _, key := range want.MapKeys() {
			requireSame(t, path+"."+key.String(), want.MapIndex(key), values[key.String()], 0)
		}
	case reflect.Struct:
		_, values := got.fields(t)
		there := 0
		for i := range want.NumField() {
			name, options, _ := strings.Cut(want.Type().Field(i).Tag.Get("msgpack"), ",")
			value, ok := values[name]
			if !ok {
				require.Equal(t, "omitempty", options, path+"."+name)
				require.True(t, want.Field(i).IsZero(), path+"."+name)
				continue
			}
			there++
			requireSame(t, path+"."+name, want.Field(i), value, 0)
		}
		require.Len(t, values, there+extra, path)
	case reflect.Pointer:
		requireSame(t, path, want.Elem(), got, 0)
	default:
		t.Fatalf("%s: no way to compare a %s", path, want.Type())
	}
}

func unbase64(t *testing.T, p plain) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(*p.Bin)
	require.NoError(t, err)
	return raw
}
