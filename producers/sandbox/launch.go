package sandbox

// launch is a program, ready to start.
type launch struct {
	Tier    string            `json:"tier"`
	Command []string          `json:"command,omitempty"`
	Argv    []string          `json:"argv"`
	Env     []string          `json:"env,omitempty"`
	Files   []string          `json:"files,omitempty"`
	Binds   map[string]string `json:"binds,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	Limits  Limits            `json:"limits"`
	// Port is the TCP port of the program's own loopback that its owner hears; 0 is no network.
	Port int `json:"port,omitempty"`
	// First makes the program the first process of its process namespace, which ends with it.
	First bool `json:"first,omitempty"`
	// UID is the user that the program has; 0 is this process's own.
	UID int `json:"uid,omitempty"`
	// Without names a defence to leave out, for tests that show its effect.
	Without string `json:"without,omitempty"`
}
