// Package workspace keeps a sandbox for each episode, shared by all tools of the episode: sessions of Python whose variables
// stay, commands, and the files below /tmp.
//
// The first program of such a sandbox is runner.py, in the machine's own python3: it forks sessions, so that the next session
// starts in a moment, and starts commands. A session that is killed costs its variables; the files and the other programs stay.
//
// Everything that comes from a session may be the policy's doing, for its code shares the session's interpreter: good enough to
// show to the policy, and never for a reward. A command's result and a file's content come by way of the runner and of the
// machine
package workspace
