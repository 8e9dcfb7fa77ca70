package tasks

// Printed is a result of [Functions.Call] that the code's cell shows; the function returns None to the code.
type Printed string

// Record is a result of [Functions.Call] whose entries code reads by name: in a Starlark cell as attributes, find("sweden").code, in a
// Python session as the entries of a dict. Its values are JSON values, its keys identifiers.
type Record map[string]any

// Valued are [Functions] with variables beside them, which code can read.
type Valued interface {
	Functions
	// Values are the variables by name, as JSON values.
	Values() map[string]any
}
