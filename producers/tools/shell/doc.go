// Package shell is the tool of that type: scripts of a shell in the episode's sandbox, whose files stay until the episode ends.
//
//	tools: {shell: {type: shell, command_timeout: 10s}}
//
// Each call is a shell of its own in the working folder; both outputs are shown, and how the script ended where it failed. The sandbox
// starts with the first call of any of its tools. See package workspace, and the section sandbox for its limits.
package shell
