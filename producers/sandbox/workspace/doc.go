// Package workspace keeps one sandbox for each episode, which all tools of the episode share: sessions of Python whose variables stay,
// commands, and the files below /tmp.
//
// The first program of such a sandbox is runner.py, in the machine's own python3: it forks sessions, so that the next one starts in a moment, and
// starts commands. A session that is killed costs its variables; the files and the other programs stay.
//
// Everything that a session says is the policy's word, for its code shares the session's interpreter: good enough to show to the policy, and never for a
// reward. What a command did, and what a file holds, comes by way of the runner and of the machine.
package workspace
