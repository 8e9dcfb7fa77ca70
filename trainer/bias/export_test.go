package bias

// Exceedance is for the tests.
var Exceedance = exceedance
