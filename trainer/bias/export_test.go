package bias

// Exceedance is for the tests.
var ProbabilityBeyond = probabilityBeyond
