// Package config reads a run's configuration: defaults, then files, then WEIR_ environment variables, then
// flags, the later winning. Unknown keys and wrong values are refused, all at once, with the nearest valid
// key. [Config] is the whole tree; each section is declared by the package that uses it.
package config
