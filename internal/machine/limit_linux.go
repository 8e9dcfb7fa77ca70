package machine

import "os"

// Limit is how much memory this process can have.
func Limit() Memory { return machineMemory(os.DirFS("/")) }
