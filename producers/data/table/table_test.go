package table

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// read gives all rows, and the faults as text.
func read(t testing.TB, path string) (rows []Row, faults []string) {
	t.Helper()
	for row, err := range Rows(t.Context(), path) {
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		rows = append(rows, row)
	}
	return rows, faults
}

func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

const verl = `{"data_source": "openai/gsm8k", "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": "1+1?"}],
 "ability": "math", "reward_model": {"style": "rule", "ground_truth": "2"}, "extra_info": {"index": 12345678901234567, "split": "train", "scale": 0.5, "none": null}}`

func TestJSON(t *testing.T) {
	t.Parallel()
	one := bytes.ReplaceAll([]byte(verl), []byte("\n"), nil)
	lines := append(append([]byte("\ufeff\n  "), one...), "\n\n{\"a\": [1]}\n"...)
	array := append(append([]byte("\n [ "), one...), ", {\"a\": [1]} ]"...)
	var gz, zst bytes.Buffer
	w := gzip.NewWriter(&gz)
	_, err := w.Write(lines)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	z, err := zstd.NewWriter(&zst)
	require.NoError(t, err)
	_, err = z.Write(lines)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for name, c := range map[string]struct {
		data []byte
		at   []int
	}{
		"lines": {lines, []int{2, 4}}, "array": {array, []int{1, 2}}, "gzip": {gz.Bytes(), []int{2, 4}}, "zstd": {zst.Bytes(), []int{2, 4}},
	} {
		rows, faults := read(t, write(t, name, c.data))
		require.Empty(t, faults, name)
		require.Len(t, rows, 2, name)
		require.Equal(t, c.at[0], rows[0].At, name)
		require.Equal(t, c.at[1], rows[1].At, name)
		index, ok := rows[0].Lookup("extra_info.index")
		require.True(t, ok)
		require.Equal(t, json.Number("12345678901234567"), index, "no digit is lost")
		require.Equal(t, []any{json.Number("1")}, rows[1].Fields["a"])
	}
}

func TestFaultsNameTheLine(t *testing.T) {
	t.Parallel()
	path := write(t, "d.jsonl", []byte("{\"a\": 1}\n[1]\n{\"a\": 2} {}\n{\"a\n\"\xff\"\n{\"a\": 3}\n"))
	rows, faults := read(t, path)
	require.Equal(t, []string{
		path + ":2: a list: want an object", path + ":3: more than one JSON value", path + ":4: not JSON: the text ends within its JSON",
		path + ":5: not UTF-8 text",
	}, faults)
	require.Len(t, rows, 2, "the rows around a fault are read")
	path = write(t, "d.json", []byte(`[{"a": 1}, 3, {"a"`))
	rows, faults = read(t, path)
	require.Len(t, rows, 1)
	require.Equal(t, []string{path + ":2: a number: want an object", path + ": row 3: the text ends within its JSON"}, faults)
	_, faults = read(t, filepath.Join(t.TempDir(), "none"))
	require.Len(t, faults, 1)
}

func TestParquetAndBack(t *testing.T) {
	t.Parallel()
	rows, faults := read(t, write(t, "d.jsonl", append(bytes.ReplaceAll([]byte(verl), []byte("\n"), nil), `
{"prompt": [], "extra_info": {"index": 1, "split": null}, "empty": {}, "yes": true, "lists": [[], [["a"], []], null]}`...)))
	require.Empty(t, faults)
	path := filepath.Join(t.TempDir(), "d.parquet")
	require.NoError(t, Write(path, []map[string]any{rows[0].Fields, rows[1].Fields}))
	back, faults := read(t, path)
	require.Empty(t, faults)
	require.Len(t, back, 2)
	require.Equal(t, 2, back[1].At)
	for _, field := range []string{"data_source", "prompt", "ability", "reward_model", "extra_info"} {
		require.Equal(t, rows[0].Fields[field], back[0].Fields[field], field)
	}
	require.Equal(t, []any{}, back[1].Fields["prompt"])
	require.Nil(t, back[1].Fields["reward_model"])
	require.Equal(t, true, back[1].Fields["yes"])
	require.Equal(t, rows[1].Fields["lists"], back[1].Fields["lists"])
	require.NotContains(t, back[1].Fields, "empty", "Parquet has no object without fields")
	require.ErrorContains(t, Write(path, nil), "it is there already")
	require.ErrorContains(t, Write(path+".csv", nil), "want .jsonl or .parquet")
	err := WriteParquet(&bytes.Buffer{}, []map[string]any{{"a": "x"}, {"a": json.Number("1")}})
	require.EqualError(t, err, "row 2: a: a whole number, where rows before have text: a column of Parquet has values of one kind")
	require.ErrorContains(t, WriteParquet(&bytes.Buffer{}, nil), "no column")
}

// What others write: lists of two levels, maps, times, decimals, numbers of every width, missing numbers.
func TestParquetOfOtherWriters(t *testing.T) {
	t.Parallel()
	type row struct {
		Plain []string             `parquet:"plain"`
		List  []string             `parquet:"list,list"`
		Map   map[string]int32     `parquet:"map"`
		Inner []struct{ A, B int } `parquet:"inner"`
		Day   int32                `parquet:"day,date"`
		Price int64                `parquet:"price,decimal(2:12)"`
		Small uint32               `parquet:"small"`
		Float float32              `parquet:"float"`
		Bytes []byte               `parquet:"bytes"`
	}
	var out bytes.Buffer
	nan := float32(0)
	nan /= nan
	require.NoError(t, parquet.Write(&out, []row{
		{Plain: []string{"a", "b"}, List: []string{"c"}, Map: map[string]int32{"k": 7}, Inner: []struct{ A, B int }{{1, 2}, {3, 4}}, Day: 19000, Price: -1234, Small: 1 << 31, Float: 0.1, Bytes: []byte{0xff}},
		{Float: nan},
	}))
	rows, faults := read(t, write(t, "o.parquet", out.Bytes()))
	require.Empty(t, faults)
	n := func(s string) json.Number { return json.Number(s) }
	require.Equal(t, map[string]any{
		"plain": []any{"a", "b"}, "list": []any{"c"}, "map": map[string]any{"k": n("7")}, "day": "2022-01-08", "price": n("-12.34"),
		"inner": []any{map[string]any{"A": n("1"), "B": n("2")}, map[string]any{"A": n("3"), "B": n("4")}},
		"small": n("2147483648"), "float": n("0.1"), "bytes": []byte{0xff},
	}, rows[0].Fields)
	require.Equal(t, []any{}, rows[1].Fields["plain"])
	require.Nil(t, rows[1].Fields["float"])
}

// Any rows come back from Parquet as they went in, but for what it has not: empty objects, and a null beside a missing field.
func TestRowsSurviveParquet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		leaf := rapid.SampledFrom([]any{nil, "", "é", "x"})
		list := rapid.Map(rapid.SliceOfN(leaf, 0, 3), func(v []any) any { return v })
		object := rapid.Custom(func(t *rapid.T) any {
			return map[string]any{"p": leaf.Draw(t, "p"), "q": list.Draw(t, "q")}
		})
		deep := rapid.Map(rapid.SliceOfN(rapid.OneOf(object, rapid.Just[any](nil)), 0, 3), func(v []any) any { return v })
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) map[string]any {
			return map[string]any{
				"a": leaf.Draw(t, "a"), "b": list.Draw(t, "b"), "c": deep.Draw(t, "c"), "d": object.Draw(t, "d"),
				"e": rapid.Map(rapid.SliceOfN(deep, 0, 2), func(v []any) any { return v }).Draw(t, "e"),
			}
		}), 1, 8).Draw(t, "rows")
		var out bytes.Buffer
		require.NoError(t, WriteParquet(&out, rows))
		file, err := os.CreateTemp(dir, "rows-*.parquet")
		require.NoError(t, err)
		defer func() { _ = os.Remove(file.Name()) }()
		_, err = file.Write(out.Bytes())
		require.NoError(t, err)
		require.NoError(t, file.Close())
		var back []map[string]any
		for row, err := range Rows(context.Background(), file.Name()) {
			require.NoError(t, err)
			back = append(back, row.Fields)
		}
		require.Len(t, back, len(rows))
		for i := range rows {
			for key, want := range rows[i] {
				if got, there := back[i][key]; there {
					require.Equal(t, shown(want), shown(got), key)
				}
			}
		}
	})
}

// shown is a value as JSON, without fields that are null.
func shown(v any) string {
	data, err := json.Marshal(strip(v))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func strip(v any) any {
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, strip(e))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for k, e := range v {
			if e != nil {
				out[k] = strip(e)
			}
		}
		return out
	}
	return v
}

// What a few flipped bytes make of a file is rows or a fault, never the end of the process, and never more memory than a few files of
// its kind need.
func TestSpoiltParquetIsAFault(t *testing.T) {
	t.Parallel()
	var rows []map[string]any
	for range 3 {
		row, err := Object([]byte(verl))
		require.NoError(t, err)
		rows = append(rows, row)
	}
	var out bytes.Buffer
	require.NoError(t, WriteParquet(&out, rows))
	whole, path, faulty := out.Bytes(), filepath.Join(t.TempDir(), "spoilt.parquet"), 0
	random := rand.New(rand.NewPCG(1, 2))
	for range 1500 {
		spoilt := bytes.Clone(whole)
		for range 1 + random.IntN(6) {
			at := 4 + random.IntN(len(spoilt)-8)
			spoilt[at] = []byte{byte(random.IntN(256)), spoilt[at] ^ 1<<random.IntN(8), 0xff}[random.IntN(3)]
		}
		require.NoError(t, os.WriteFile(path, spoilt, 0o600))
		for _, err := range Rows(t.Context(), path) {
			if err != nil {
				require.ErrorContains(t, err, path)
				faulty++
				break
			}
		}
	}
	require.Greater(t, faulty, 500)

	// A footer's length is not believed, and LZ4 is not read: its decoder takes all memory where the bytes are none.
	long := bytes.Clone(whole)
	binary.LittleEndian.PutUint32(long[len(long)-8:], 0xfffffff0)
	_, faults := read(t, write(t, "long.parquet", long))
	require.Len(t, faults, 1)
	require.Contains(t, faults[0], "its end is missing or spoilt")
	var lz4 bytes.Buffer
	require.NoError(t, parquet.Write(&lz4, []struct{ A string }{{"a"}}, parquet.Compression(&parquet.Lz4Raw)))
	_, faults = read(t, write(t, "lz4.parquet", lz4.Bytes()))
	require.Len(t, faults, 1)
	require.Contains(t, faults[0], "compressed by LZ4, which is not read: write the file with zstd, snappy or gzip")
}

// Nothing that a file says ends the program: it is read, or refused with the file's name.
func FuzzParquet(f *testing.F) {
	var rows []map[string]any
	for range 3 {
		row, err := Object([]byte(verl))
		if err != nil {
			f.Fatal(err)
		}
		rows = append(rows, row)
	}
	var out bytes.Buffer
	if err := WriteParquet(&out, rows); err != nil {
		f.Fatal(err)
	}
	whole := out.Bytes()
	f.Add(whole)
	for i := 4; i < len(whole); i += 97 {
		spoilt := bytes.Clone(whole)
		spoilt[i] ^= 0x41
		f.Add(spoilt)
	}
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("PAR1\xff\xff\xff\x7fPAR1"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := write(t, "f.parquet", append([]byte("PAR1"), data[min(4, len(data)):]...))
		n := 0
		for row, err := range Rows(t.Context(), path) {
			if err != nil {
				require.ErrorContains(t, err, path)
			} else {
				require.NotNil(t, row.Fields)
			}
			if n++; n > 10_000 {
				return
			}
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(verl))
	f.Add([]byte("[{}, {"))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Add([]byte("\x28\xb5\x2f\xfd"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := write(t, "f.jsonl", data)
		for row, err := range Rows(t.Context(), path) {
			if err != nil {
				require.ErrorContains(t, err, path)
			} else {
				require.NotNil(t, row.Fields)
			}
		}
	})
}
