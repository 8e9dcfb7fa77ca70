// Package fulltest decides which tests run. `go test ./...` runs the tests that together take minutes on two cores; with WEIR_TEST=full
// in the environment every test runs, as in continuous integration.
package fulltest

import (
	"os"
	"testing"
)

// Variable is the environment variable that has every test run when its value is "full".
const Variable = "WEIR_TEST"

// Enabled is whether every test runs. A test that is never skipped may do more then.
func Enabled() bool { return os.Getenv(Variable) == "full" }

// Need skips a test unless every test runs. cost is what makes the test long, in words.
func Need(tb testing.TB, cost string) {
	tb.Helper()
	if !Enabled() {
		tb.Skipf("only with %s=full: %s", Variable, cost)
	}
}
