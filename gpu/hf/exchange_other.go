//go:build !linux

package hf

func exchangeFolders(a, b string) error { return exchangeInSteps(a, b) }
