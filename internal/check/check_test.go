package check

import (
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFaultsSayKeyValueAndRule(t *testing.T) {
	t.Parallel()
	nan, inf := math.NaN(), math.Inf(1)
	for want, err := range map[string]error{
		"n: 0: must be positive":          Positive("n", 0),
		"n: -1.5: must be positive":       Positive("n", -1.5),
		"n: NaN: must be finite":          Positive("n", nan),
		"n: +Inf: must be finite":         NotNegative("n", inf),
		"n: -1s: must not be negative":    NotNegative("n", -time.Second),
		"n: 1: must be at least 2":        AtLeast("n", 1, 2),
		"n: NaN: must be between 0 and 1": Between("n", nan, 0, 1),
		"n: 1.1: must be between 0 and 1": Between("n", 1.1, 0, 1),
		"n: empty: name a task":           Given("n", "", "name a task"),
		"n: 5: must not exceed 4":         That(false, "n", "%d: must not exceed %d", 5, 4),
		"n: -Inf: must be finite":         Finite("n", math.Inf(-1)),
	} {
		require.EqualError(t, err, want)
	}
	require.NoError(t, All(
		Positive("n", 1), Positive("n", time.Nanosecond), NotNegative("n", 0.0), AtLeast("n", uint8(2), 2), Between("n", 1.0, 0, 1),
		Given("n", "x", ""),
		Finite("n", 0.0), That(true, "n", "never"), Section("s", nil), nil,
	))
}

// Invariant: every fault stands alone, under the whole path of its key.
func TestInvariantEveryFaultStandsAloneUnderItsWholePath(t *testing.T) {
	t.Parallel()
	inner := All(Positive("a", 0), errors.Join(Positive("b", 0), errors.Join(NotNegative("c", -1), io.EOF)))
	err := All(nil, Section("kl", inner), Section("", Positive("d", 0)), Section("x", Section("y", Positive("e", 0))))
	var got []string
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		got = append(got, e.Error())
	}
	require.Equal(t, []string{
		"kl.a: 0: must be positive", "kl.b: 0: must be positive", "kl.c: -1: must not be negative", "kl.EOF", "d: 0: must be positive",
		"x.y.e: 0: must be positive",
	}, got)
	require.ErrorIs(t, err, io.EOF, "what a fault wraps is found")
}

func TestOneOfNamesTheNearest(t *testing.T) {
	t.Parallel()
	require.NoError(t, OneOf("mode", "b", "a", "b"))
	require.EqualError(t, OneOf("mode", "tokn", "token", "sequence"), `mode: unknown "tokn": did you mean "token"? (valid: token, sequence)`)
	require.EqualError(t, OneOf("mode", "ebst", "beast", "best"), `mode: unknown "ebst": did you mean "best"? (valid: beast, best)`, "letters that changed places")
	require.EqualError(t, OneOf("mode", "zzzzzzz", "token"), `mode: unknown "zzzzzzz" (valid: token)`)
	require.EqualError(t, OneOf("mode", "", "token"), `mode: unknown "" (valid: token)`)
}

func TestDistanceIsThatOfOneEditMoreOrLess(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[ab]{0,8}`)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		require.Equal(t, a == b, Distance(a, b) == 0)
		require.Equal(t, Distance(a, b), Distance(b, a))
		require.LessOrEqual(t, Distance(a, b), max(len(a), len(b)))
		require.GreaterOrEqual(t, Distance(a, b), max(len(a), len(b))-min(len(a), len(b)))
		require.LessOrEqual(t, Distance(a+"c", b), Distance(a, b)+1)
	})
	require.Equal(t, 1, Distance("ab", "ba"))
	require.Equal(t, 3, Distance("kitten", "sitting"))
}
