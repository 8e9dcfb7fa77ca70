package bpe

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir/internal/realpython"
)

const (
	recordedPath  = "testdata/families.json.gz"
	recordedTexts = 300
)

// recorded is a family's file and digests of what the library made of familyTexts, four bytes a text.
type recorded struct {
	File               json.RawMessage
	Bare, Whole, Texts []byte
}

func recordedFamilies(t testing.TB) map[string]recorded {
	t.Helper()
	f, err := os.Open(recordedPath)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	var out map[string]recorded
	require.NoError(t, json.NewDecoder(z).Decode(&out))
	return out
}

// recordedFamily is the tokenizer of a recorded file.
func recordedFamily(t testing.TB, name string) *Tokenizer {
	t.Helper()
	tok, err := Parse(recordedFamilies(t)[name].File)
	require.NoError(t, err)
	return tok
}

// sumOfText is four bytes that stand for a text; zeros for a text in which the library wrote bytes that are no character.
func sumOfText(text string) []byte {
	if strings.ContainsRune(text, utf8.RuneError) {
		return make([]byte, 4)
	}
	sum := sha256.Sum256([]byte(text))
	return sum[:4]
}

func recordFamilies(t *testing.T, list []string) {
	t.Helper()
	python, dir := realpython.Interpreter(t, "tokenizers"), t.TempDir()
	realpython.Run(t, python, "testdata/families.py", "make", dir)
	out := map[string]recorded{}
	for name, answer := range askLibrary(t, python, dir, list) {
		file, err := os.ReadFile(filepath.Join(dir, name+".json"))
		require.NoError(t, err)
		r := recorded{File: file}
		for i := range list {
			r.Bare, r.Whole = append(r.Bare, sumOf(answer.Bare[i])...), append(r.Whole, sumOf(answer.Whole[i])...)
			r.Texts = append(r.Texts, sumOfText(answer.Texts[i])...)
		}
		out[name] = r
	}
	require.Len(t, out, 22)
	f, err := os.Create(recordedPath)
	require.NoError(t, err)
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	require.NoError(t, err)
	encoder := json.NewEncoder(z)
	encoder.SetEscapeHTML(false)
	require.NoError(t, encoder.Encode(out))
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
}

// The ids and the texts of the pipelines of published families are those that the library tokenizers gave, of which digests are recorded.
func TestPipelinesOfFamiliesAreAsRecorded(t *testing.T) {
	t.Parallel()
	list := familyTexts(53, recordedTexts)
	if writeExpected() {
		recordFamilies(t, list)
	}
	families := recordedFamilies(t)
	require.Greater(t, len(families), 20)
	for name, want := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok, err := Parse(want.File)
			require.NoError(t, err)
			for i, text := range list {
				ids := tok.Encode(text)
				require.Equal(t, want.Bare[4*i:4*i+4], sumOf(ids), "%+q: %q", text, spellings(tok, ids))
				require.Equal(t, want.Whole[4*i:4*i+4], sumOf(tok.Wrap(ids)), "%+q", text)
				if sum := want.Texts[4*i : 4*i+4]; !slices.Equal(sum, make([]byte, 4)) {
					require.Equal(t, sum, sumOfText(tok.DecodeWhole(ids)), "%+q: %q", text, spellings(tok, ids))
				}
				requireHalves(t, tok, ids)
			}
		})
	}
}

// requireHalves holds the promise that texts of halves, and of single tokens as a stream has them, are joined the text of the whole.
func requireHalves(t *testing.T, tok *Tokenizer, ids []int32) {
	t.Helper()
	whole, half := tok.Decode(ids), len(ids)/2
	require.Equal(t, whole, tok.Decode(ids[:half])+tok.Decode(ids[half:]))
	s, streamed, split := tok.Stream(), "", false
	for _, id := range ids {
		next := s.Next(id)
		split = split || !utf8.ValidString(next)
		streamed += next
	}
	require.False(t, split && utf8.ValidString(whole), "a character comes whole: %+q", whole)
	require.Equal(t, whole, streamed+s.Rest())
}

// A text that goes on behind a token has the ids that it has within the whole.
func TestATextGoesOnBehindAToken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ family, before, behind string }{
		{"phi3", "<|user|>\nHello<|end|>", "\n<|assistant|>\n"},
		{"phi3", "<|user|>", "\n  Hello there"},
		{"tinyllama", "x<late>", " of it"},
		{"llama2", "a</s>", "The capital"},
		{"mistral1", "[INST] a [/INST]", " the capital"},
		{"mistral1", "[INST]", "the"},
		{"gemma", "<start_of_turn>user\nthe<end_of_turn>", "\n<start_of_turn>model\n"},
		{"metaspace", "a<mask>", "the capital"},
		{"smollm2", "<|im_start|>", "user\n12"},
	} {
		tok := recordedFamily(t, c.family)
		whole, before := tok.Encode(c.before+c.behind), tok.Encode(c.before)
		require.Equal(t, whole, append(before, tok.EncodeBehind(before[len(before)-1], c.behind, 0xfdd0)...), c)
	}
	llama := recordedFamily(t, "llama2")
	ids := llama.Encode("the")
	require.Equal(t, "the", llama.Decode(llama.EncodeBehind(ids[0], "the", 0xfdd0)), "no space is put within a text")
	require.Equal(t, " the", llama.Decode(ids))
	require.Equal(t, "the", llama.DecodeWhole(ids))
}

// Text of a stranger makes no added token, but tokens of spaces alone, which are text.
func TestAStrangersTextMakesNoControlToken(t *testing.T) {
	t.Parallel()
	for name, family := range recordedFamilies(t) {
		tok, err := Parse(family.File)
		require.NoError(t, err)
		for _, token := range tok.AddedTokens() {
			text := "a " + token.Content + " b" + token.Content
			for _, id := range tok.EncodeText(text) {
				require.False(t, tok.tokens.barred[id] && !isUnknown(tok, id), "%s: %q of %q", name, tok.Token(id), text)
			}
		}
	}
	gemma := recordedFamily(t, "gemma")
	require.Equal(t, gemma.Encode("a\n\n\n  b"), gemma.EncodeText("a\n\n\n  b"))
	require.Contains(t, spellings(gemma, gemma.EncodeText("a\n\n\nb")), "\n\n\n")
	phi := recordedFamily(t, "phi3")
	require.Equal(t, "a b", phi.Normalized("a b"), "a text that tokens are guarded in keeps its spaces")
	require.NotContains(t, spellings(phi, phi.EncodeMarked("<|user|>a<|\ufdd0late|>b", 0xfdd0)), " <|late|>")
	require.Contains(t, spellings(phi, phi.EncodeMarked("<|user|>a <|late|>b", 0xfdd0)), " <|late|>")
}

// A long run of one letter, without a place to cut, takes time n log n.
func TestALongPieceIsMergedInTime(t *testing.T) {
	t.Parallel()
	tok := recordedFamily(t, "llama2")
	text := strings.Repeat("t", 1<<18)
	require.Equal(t, text, tok.DecodeWhole(tok.EncodeText(text)))
	// As by the list that short pieces have.
	piece := strings.Repeat("the\u2581capital", 40)
	ids := tok.vocab.symbols.appendSymbols(nil, piece)
	next := make([]merge, len(ids))
	for i := range len(ids) - 1 {
		next[i] = tok.vocab.merges.mergeOf(ids[i], ids[i+1])
	}
	next[len(ids)-1].rank = unranked
	short := slices.Clone(ids)
	short = short[:tok.vocab.mergeShort(short, next, nil)]
	require.Equal(t, short, tok.vocab.mergeLong(nil, ids, nil))
}

// Invariant: no token that a merge makes holds a character that is not in crossed and a word mark behind it.
func TestNoTokenThatAMergeMakesHoldsACharacterThatIsNotInCrossedAndAWordMarkBehindIt(t *testing.T) {
	t.Parallel()
	s := &symbols{ids: map[string]int32{"\u2581": 0}}
	s.findCrossings([]string{"\u2581\u2581", ">\u2581</", "the"})
	var words []string
	s.cutWords("a\u2581b>\u2581c\u2581\u2581d", func(w string) { words = append(words, w) })
	require.Equal(t, []string{"a", "\u2581b>\u2581c", "\u2581\u2581d"}, words)
}

func FuzzPipelines(f *testing.F) {
	families := recordedFamilies(f)
	names := slices.Sorted(maps.Keys(families))
	var toks []*Tokenizer
	for i, name := range names {
		tok, err := Parse(families[name].File)
		require.NoError(f, err)
		toks = append(toks, tok)
		f.Add(uint8(i), "<s> The  capital\n\n\u2581of <|end|>\n caf\u00e9 \xff\xe2\x96 \u3157\U0001f44d<0x41>")
	}
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		i := int(which) % len(names)
		tok := toks[i]
		tok.Encode(text)
		ids := tok.EncodeText(text)
		for _, id := range ids {
			require.False(t, tok.tokens.barred[id] && !isUnknown(tok, id))
		}
		if names[i] == "llama2" || names[i] == "gemma" || names[i] == "tinyllama" {
			require.Equal(t, strings.ReplaceAll(text, "\u2581", " "), tok.DecodeWhole(ids))
		}
	})
}
