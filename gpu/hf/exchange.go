package hf

import "os"

// exchangeInSteps swaps two folders by renames. If the process dies between them, b is missing and the old
// folder lies beside it with the suffix .old; nothing is lost.
func exchangeInSteps(a, b string) error {
	if err := os.Rename(b, a+".old"); err != nil {
		return err
	}
	if err := os.Rename(a, b); err != nil {
		return err
	}
	return os.Rename(a+".old", a)
}
