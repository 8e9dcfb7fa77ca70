package api

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
)

// signature is how a function is called.
type signature struct {
	Name string `json:"name"`
	// Swapped says that the second number comes first, Word is the third argument, and Twice says that the result goes through the function
	// again.
	Swapped bool   `json:"swapped"`
	Word    string `json:"word"`
	Twice   bool   `json:"twice"`
}

// drawSignature draws a signature.
func drawSignature(rng *rand.Rand, name string) signature {
	return signature{Name: name, Swapped: rng.IntN(2) == 0, Word: materials[rng.IntN(len(materials))], Twice: rng.IntN(2) == 0}
}

// helpText returns the output of help ( name ).
func (s signature) helpText() string {
	order, times := "the first , the second", "once"
	if s.Swapped {
		order = "the second , the first"
	}
	if s.Twice {
		times = "twice"
	}
	return fmt.Sprintf("%s takes %s and %s , %s .", s.Name, order, s.Word, times)
}

// rightCall returns a right call of the function.
func (s signature) rightCall(first, second string) string {
	if s.Swapped {
		first, second = second, first
	}
	made := fmt.Sprintf("%s ( %s , %s , %s )", s.Name, first, second, s.Word)
	if s.Twice {
		made = fmt.Sprintf("%s ( %s )", s.Name, made)
	}
	return made
}

// results is the bound of a function's results.
const results = 1_000_000

// hashOperation returns the value of an operation on two numbers. Both are hashed with the name and the key of the question, so that no
// value can be computed without the function.
func hashOperation(key uint64, name string, first, second int64) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d %d", key, name, first, second) // it never fails
	return int64(h.Sum64() % results)
}

// hashAgain returns the value of a result that goes through the function once more.
func hashAgain(key uint64, name string, result int64) int64 {
	return hashOperation(key, name, result, -1)
}

// valueOf returns the value of the question's operation: the function called as its signature says.
func (s signature) valueOf(key uint64, first, second int64) int64 {
	v := hashOperation(key, s.Name, first, second)
	if s.Twice {
		v = hashAgain(key, s.Name, v)
	}
	return v
}

// materials are the words that a function may take beside its numbers.
var materials = []string{
	"tin", "oak", "wax", "salt", "silk", "clay", "jade", "wool", "zinc", "lime", "rope", "coal", "moss", "flax", "horn", "pine", "rust", "sand", "tar", "yarn",
}

// functionNames returns names of functions: syllables that mean nothing, and no word of the language.
func functionNames(n int) []string {
	rng := rand.New(rand.NewPCG(19, 0))
	onset := []string{"b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "dr", "fl", "gr", "kl", "pl", "sn", "tr"}
	vowel := []string{"a", "e", "i", "o", "u"}
	coda := []string{"b", "d", "g", "k", "l", "m", "n", "p", "st", "mp", "nd", "lt", "rk"}
	var out []string
	for len(out) < n {
		name := onset[rng.IntN(len(onset))] + vowel[rng.IntN(5)] + coda[rng.IntN(len(coda))]
		if rng.IntN(2) == 0 {
			name += vowel[rng.IntN(5)]
		}
		if !slices.Contains(out, name) && !slices.Contains(taken, name) && !slices.Contains(materials, name) {
			out = append(out, name)
		}
	}
	return out
}

// taken are words that a name must not be.
var taken = []string{"def", "del", "for", "and", "not", "min", "max", "set", "dir", "bag", "sum", "help", "once"}
