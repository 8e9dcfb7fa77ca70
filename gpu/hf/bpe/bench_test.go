//go:build unix

package bpe

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// benchTexts are prose with tables, code, and many scripts. Each is long enough that most pieces come again.
func benchTexts(b *testing.B) map[string]string {
	b.Helper()
	read := func(pattern string) string {
		paths, err := filepath.Glob(pattern)
		require.NoError(b, err)
		require.NotEmpty(b, paths)
		var all strings.Builder
		for _, path := range paths {
			data, err := os.ReadFile(path)
			require.NoError(b, err)
			all.Write(data)
		}
		return all.String()
	}
	return map[string]string{
		"prose": read("../../../docs/*.md"), "code": read("../../../trainer/*/*.go"),
		"scripts": strings.Repeat(read("testdata/corpus.txt"), 64),
		"chinese": sentences(),
		"noise":   strings.Join(texts(1, 5000), ""), // seldom the same piece twice
	}
}

// sentences are of three thousand Han characters, the first ones the most frequent, no two alike: pieces are long and never come again.
func sentences() string {
	rng := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	for range 20_000 {
		for range 4 + rng.IntN(16) {
			b.WriteRune(rune(0x4e00 + int(3000*math.Pow(rng.Float64(), 3))))
		}
		b.WriteString([]string{"，", "。", "、"}[rng.IntN(3)])
	}
	return b.String()
}

// benchTokenizer is the file that WEIR_TOKENIZER names, such as a published model's, or the fixture.
func benchTokenizer(b *testing.B) *Tokenizer {
	b.Helper()
	path := os.Getenv("WEIR_TOKENIZER")
	if path == "" {
		return fixtures()[0].tokenizer(b)
	}
	t, err := Load(path)
	require.NoError(b, err)
	return t
}

// perCore repeats work on so many bytes and reports them by the time that a core was at work for them, all threads of the process
// together, which other programs on the machine take less of than of the time that passes.
func perCore(b *testing.B, size int, work func()) {
	b.Helper()
	b.SetBytes(int64(size))
	before := busy(b)
	for b.Loop() {
		work()
	}
	b.ReportMetric(float64(size)*float64(b.N)/1e6/(busy(b)-before).Seconds(), "MB/core-s")
}

func busy(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Text of a stranger: with the splitter by hand and with the expression in its place.
func BenchmarkEncode(b *testing.B) {
	t := benchTokenizer(b)
	expression, err := newExpression(PatternQwen2)
	require.NoError(b, err)
	for name, text := range benchTexts(b) {
		for how, s := range map[string]splitter{"by-hand": t.splitter, "regexp2": expression} {
			b.Run(name+"/"+how, func(b *testing.B) {
				with := *t
				with.splitter = s
				b.ReportAllocs()
				perCore(b, len(text), func() { with.EncodeText(text) })
			})
		}
		b.Run(name+"/by-hand-without-memory", func(b *testing.B) {
			with := *t
			b.ReportAllocs()
			perCore(b, len(text), func() {
				with.cache = newCache()
				with.EncodeText(text)
			})
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	t := benchTokenizer(b)
	for name, text := range benchTexts(b) {
		b.Run(name, func(b *testing.B) {
			ids := t.EncodeText(text)
			perCore(b, len(text), func() { t.Decode(ids) })
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	data := benchTokenizer(b).JSON()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		_, err := Parse(data)
		require.NoError(b, err)
	}
}

// Text of a stranger by pipelines that are not split by hand.
func BenchmarkEncodeFamilies(b *testing.B) {
	for _, family := range []string{"llama2", "gemma", "phi3", "mistral3", "deepseek3"} {
		t := recordedFamily(b, family)
		if path := os.Getenv("WEIR_TOKENIZERS"); path != "" {
			if published, err := Load(filepath.Join(path, family+".json")); err == nil {
				t = published
			}
		}
		for name, text := range benchTexts(b) {
			b.Run(family+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				perCore(b, len(text), func() { t.EncodeText(text) })
			})
		}
	}
}
