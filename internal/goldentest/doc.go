// Package goldentest holds the test that compares Weir's mathematics with the numbers that the authors' own code
// gave: TestGolden walks testdata, or the folder named by WEIR_GOLDEN_DIR, where each file is a function of a
// project at a commit.
//
// A file is {"name", "source": {repo, path, function, commit}, "params", "note", "cases": [{"id", "tags", "params",
// "inputs", "expected"}]}. Inputs are exact decimals; everything was computed in float64. Numbers that are not
// finite are the strings "NaN", "Infinity" and "-Infinity". A case whose source raises expects {"error"}, and any
// error is right there. Keys that start with grad_ are d(loss)/d(input) by autograd.
package goldentest
