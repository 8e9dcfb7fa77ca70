package bpe

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"
	"github.com/stretchr/testify/require"
)

// writeExpected is -update: what the reference in Python says is recorded anew.
func writeExpected() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "record anew what testdata/reference.py says")
	os.Exit(m.Run())
}

const compared = 10_000

// sumOf is four bytes that stand for ids.
func sumOf(ids []int32) []byte {
	var b []byte
	for _, id := range ids {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	sum := sha256.Sum256(b)
	return sum[:4]
}

// The ids are those of another implementation, in another language, of which a digest is recorded.
func TestIDsAreThoseOfTheReference(t *testing.T) {
	t.Parallel()
	for i, f := range fixtures() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			path := "testdata/expected-" + f.name + ".bin"
			list := texts(uint64(i+1), compared)
			if writeExpected() {
				var sums []byte
				for _, pair := range inPython(t, f.file(t), list) {
					sums = append(append(sums, sumOf(pair[0])...), sumOf(pair[1])...)
				}
				require.NoError(t, os.WriteFile(path, sums, 0o644))
			}
			want, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Len(t, want, 8*compared)
			tok := f.tokenizer(t)
			for i, text := range list {
				ids, plain := tok.Encode(text), tok.EncodeText(text)
				if !bytes.Equal(want[8*i:8*i+4], sumOf(ids)) || !bytes.Equal(want[8*i+4:8*i+8], sumOf(plain)) {
					t.Fatalf("text %d: %+q: %v, as text %v", i, text, ids, plain)
				}
			}
		})
	}
}

// The same, text by text, where Python is there: other texts than those that are recorded.
func TestIDsAreThoseOfPython(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "python3", "-c", "import regex").Run(); err != nil {
		t.Skip("there is no Python with the module regex")
	}
	for i, f := range fixtures() {
		list := texts(uint64(i+77), 500)
		sameAsPython(t, f.file(t), list)
	}
	if path := os.Getenv("WEIR_TOKENIZER"); path != "" { // a published model's
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		sameAsPython(t, data, texts(99, compared))
	}
}

func sameAsPython(t *testing.T, file []byte, list []string) {
	t.Helper()
	tok, err := Parse(file)
	require.NoError(t, err)
	for k, pair := range inPython(t, file, list) {
		require.Equal(t, pair[0], noNil(tok.Encode(list[k])), "%+q", list[k])
		require.Equal(t, pair[1], noNil(tok.EncodeText(list[k])), "%+q, as text", list[k])
	}
}

func noNil(ids []int32) []int32 { return append([]int32{}, ids...) }

// inPython are the ids of texts, with added tokens and without, as reference.py has them.
func inPython(t *testing.T, file []byte, list []string) (out [][2][]int32) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	var in bytes.Buffer
	for _, text := range list {
		in.WriteString(base64.StdEncoding.EncodeToString([]byte(text)) + "\n")
	}
	cmd := exec.CommandContext(t.Context(), "python3", "testdata/reference.py", path)
	cmd.Stdin = &in
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	data, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	dec := json.NewDecoder(bytes.NewReader(data))
	for range list {
		var pair [2][]int32
		require.NoError(t, dec.Decode(&pair))
		out = append(out, pair)
	}
	return out
}

// naive encodes with strings, a regular expression and a walk over all pairs at each merge.
type naive struct {
	fixture fixture
	pattern *regexp2.Regexp
	vocab   map[string]int32
	ranks   map[string]int
	letters *alphabet
}

func newNaive(t testing.TB, f fixture) *naive {
	t.Helper()
	var parsed struct {
		Model struct {
			Vocab  map[string]int32  `json:"vocab"`
			Merges []json.RawMessage `json:"merges"`
		} `json:"model"`
	}
	require.NoError(t, json.Unmarshal(f.file(t), &parsed))
	n := &naive{f, regexp2.MustCompile(f.pattern), parsed.Model.Vocab, map[string]int{}, newAlphabet()}
	for rank, raw := range parsed.Model.Merges {
		var pair []string
		if json.Unmarshal(raw, &pair) != nil {
			var one string
			require.NoError(t, json.Unmarshal(raw, &one))
			pair = strings.Fields(one)
		}
		n.ranks[strings.Join(pair, " ")] = rank
	}
	return n
}

func (n *naive) encode(text string) (ids []int32) {
	if n.fixture.nfc {
		text = nfc().arrangeMarks(text)
	}
	for len(text) > 0 {
		m, err := n.pattern.FindStringMatch(text)
		if err != nil || m == nil {
			panic(err)
		}
		end, chars := len(text), utf8.RuneCountInString(m.String())
		for i := range text {
			if chars == 0 {
				end = i
				break
			}
			chars--
		}
		ids = append(ids, n.piece(text[:end])...)
		text = text[end:]
	}
	return ids
}

func (n *naive) piece(piece string) (ids []int32) {
	if id, ok := n.vocab[n.letters.spellToken(piece)]; ok && n.fixture.whole {
		return []int32{id}
	}
	var parts []string
	for i := range len(piece) {
		parts = append(parts, n.letters.spellToken(piece[i:i+1]))
	}
	for {
		at, least := -1, 0
		for i := range len(parts) - 1 {
			if rank, ok := n.ranks[parts[i]+" "+parts[i+1]]; ok && (at < 0 || rank < least) {
				at, least = i, rank
			}
		}
		if at < 0 {
			break
		}
		parts = slices.Replace(parts, at, at+2, parts[at]+parts[at+1])
	}
	for _, p := range parts {
		ids = append(ids, n.vocab[p])
	}
	return ids
}

func nfc() form {
	f, _ := newForm("NFC")
	return f
}
