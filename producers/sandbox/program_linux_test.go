//go:build amd64 || arm64

package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A program of the operator's that its sandbox would not show is told at the start, with the setting that shows it.
func TestWhatAProgramNamesIsShownOrRefused(t *testing.T) {
	dir := shown(t)
	outside := shown(t)
	for _, name := range []string{"agent.py", "tool"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(outside, "tool"), nil, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(outside, "tool"), filepath.Join(dir, "link")))
	t.Chdir(dir)
	t.Setenv("PATH", outside+":"+os.Getenv("PATH"))
	for _, c := range []struct {
		name   string
		change func(*Program)
		argv   []string
		want   string
	}{
		{"a program of the machine", func(*Program) {}, []string{"sh", "-c", "exec x"}, ""},
		{"its file, in no folder", func(*Program) {}, []string{"python3", "agent.py"}, "agent.py is on this machine and the program's sandbox does not show it"},
		{"its file, in its folder", func(p *Program) { p.Dir = dir }, []string{"python3", "agent.py"}, ""},
		{"its file, in a folder above", func(p *Program) { p.Dir = "." }, []string{"python3", "../agent.py"}, ""}, // which is no file
		{"itself, in its folder", func(p *Program) { p.Dir = dir }, []string{"./tool"}, ""},
		{"itself, shown", func(p *Program) { p.Binds = []string{"tool"} }, []string{filepath.Join(dir, "tool")}, ""},
		{"itself, not shown", func(*Program) {}, []string{"./tool"}, "./tool: the program's sandbox does not show it"},
		{"itself, which is a link", func(p *Program) { p.Dir = dir }, []string{"./link"}, "./link is a link to " + outside},
		{"itself, found in PATH", func(*Program) {}, []string{"tool"}, "and it is " + outside + "/tool: write the whole path"},
		{"a folder, not shown", func(*Program) {}, []string{"sh", outside}, outside + " is on this machine"},
		{"a folder, shown", func(p *Program) { p.Binds = []string{outside} }, []string{"sh", outside}, ""},
		{"a folder of the sandbox's own", func(*Program) {}, []string{"ls", "/tmp", "/", "/proc/self"}, ""},
		{"a bind that is not there", func(p *Program) { p.Binds = []string{"/no/such"} }, []string{"sh"}, "no such file"},
		{"a dir that is a file", func(p *Program) { p.Dir = "tool" }, []string{"sh"}, "not a folder"},
	} {
		p := DefaultProgram()
		c.change(&p)
		require.NoError(t, p.Validate(), c.name)
		spec, err := p.Spec(c.argv, nil)
		if c.want != "" {
			require.ErrorContains(t, err, c.want, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.NoError(t, spec.checkSpec(), c.name)
	}
	for _, p := range []Program{
		{Sandbox: true, Dir: "/"},
		{Sandbox: true, Binds: []string{"/tmp"}},
		{Sandbox: true, Binds: []string{""}},
		{Binds: []string{"/data"}},
		{Sandbox: true, Limits: Limits{Memory: -1}},
	} {
		require.Error(t, p.Validate(), "%+v", p)
	}
	require.NoError(t, Program{Dir: "/"}.Validate(), "without a sandbox any folder will do")
}

// A tier that confines programs and gives them no network is no tier for a program with a port.
func TestAProgramWithAPortNeedsItsOwnNetwork(t *testing.T) {
	cfg := Default()
	cfg.Tier = TierLandlock
	_, err := Open(guard(t), cfg, Loopback)
	require.ErrorContains(t, err, "sandbox: false")
	cfg.Tier, cfg.Unsafe = TierNone, Understood
	p, err := Open(guard(t), cfg, Loopback) // its programs have the machine's
	require.NoError(t, err)
	_, err = p.Start(guard(t), Spec{Argv: []string{"true"}, Port: doorPort})
	require.ErrorContains(t, err, "needs tier full")
	require.NoError(t, p.Close())
}
