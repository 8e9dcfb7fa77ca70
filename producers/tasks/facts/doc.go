// Package facts reads the facts of real countries, out of github.com/pariz/gountries (see NOTICE), for the tasks that ask about them, and
// divides the countries into splits.
package facts
