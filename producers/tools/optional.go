package tools

// Sandboxed is the configuration of a tool or an agent that may start a program of the operator's in a sandbox. weir doctor looks whether
// this machine can.
type Sandboxed interface {
	// Sandboxed reports whether the program is confined as it is configured.
	Sandboxed() bool
}

// Unrewarded is the configuration of a tool whose calls bring no process reward, so that a key which weighs such rewards reads nothing
// of it.
type Unrewarded interface {
	// NoProcessReward marks the type, and is never called.
	NoProcessReward()
}

// Bounded is the configuration of a tool that has room for so many sessions of a task at once in a process. Further sessions wait, with
// their first call, until others are closed.
type Bounded interface {
	// MostSessions is how many, > 0.
	MostSessions() int
}

// Common is the configuration of a tool that may give all episodes the same session, which then takes a single place in the pool of
// sandboxes.
type Common interface {
	// Common reports whether it does.
	Common() bool
}
