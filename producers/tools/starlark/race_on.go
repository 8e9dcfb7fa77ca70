//go:build race

package starlark

const raceDetector = true
