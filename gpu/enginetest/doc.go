// Package enginetest is the conformance suite of gpu.Engine. Run checks any engine against a reference
// model written in float64 as the equations read, with no thought for speed: outputs directly, gradients by
// central differences.
package enginetest
