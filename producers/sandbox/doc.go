// Package sandbox runs programs that nobody has read: code that a model wrote, and the servers beside it. Each program runs in
// a sandbox of its own, which is thrown away with it.
//
// # Processes
//
//	weir ── keeper ──┬── bwrap ── pid 1 of the sandbox ── ...
//	  (control)      └── bwrap ── pid 1 of the sandbox ── ...
//
// A [Pool] starts one keeper, which is this very program started again, with an empty environment and no descriptor but its
// own socket. The keeper is the parent of every sandbox, sets its limits and is told when it ends. It kills them all and ends when its
// socket closes, however the pool's process came to its end, SIGKILL included. It is a process of its own and not
// a goroutine because a parent of sandboxes has to be the subreaper of orphans, wait for children that it did not start,
// and fork on one thread that lives as long as the sandboxes do (Linux sends the parent's death signal when the forking
// thread ends, golang/go#27505): none of these suits a process that starts others, such as engines.
//
// # Limits
//
// bwrap tells the keeper the pid of the sandbox's first process and waits (--info-fd, --block-fd); the keeper sets that process's
// limits with prlimit(2) and lets it go on. So all limits are there before anything of the sandbox runs, they count
// inside the sandbox's own user namespace (RLIMIT_NPROC set before it would count every process of the user, bwrap among them), and no
// program has to be bound into the sandbox to set them. Without namespaces (tiers landlock and none) this program,
// started again, sets them before it becomes the program that was asked for.
//
// # Tiers
//
// full: bubblewrap, user namespaces and seccomp. landlock: files by Landlock, sockets and system calls by seccomp, limits; other
// processes of the machine can be seen, and /tmp is a folder of the machine, which is counted file by file. command: what the operator's
// command line holds. none: limits alone, and only where the operator wrote sandbox.unsafe: i-understand. [Open] tries the
// very command line that programs are started with, and refuses with the cause and what to do.
//
// # Concurrency
//
// All methods of a Pool and of a [Process] may be called at once. Close of the Pool ends every process.
package sandbox
