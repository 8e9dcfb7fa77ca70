package sandbox

import (
	"bytes"
	"fmt"
	"strings"
)

// RefusedError explains why a tier does not work on this machine, and what to do.
type RefusedError struct {
	Tier string
	// Cause is the observation, Remedy the thing to do about it.
	Cause, Remedy string
}

func (r *RefusedError) Error() string {
	return fmt.Sprintf("sandbox tier %s: %s: %s", r.Tier, r.Cause, r.Remedy)
}

// machine holds the facts by which a refusal is explained.
type machine struct {
	root bool
	read func(path string) ([]byte, error)
}

// switches turn user namespaces off.
var switches = []struct{ file, off, cause, remedy string }{
	{
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor keeps user namespaces from programs without a profile",
		"install bubblewrap's own profile (apt install apparmor-profiles; then ln -s /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ and " +
			"apparmor_parser -r it), or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
	},
	{
		"/proc/sys/kernel/unprivileged_userns_clone", "0", "this kernel keeps user namespaces from users", "sysctl -w kernel.unprivileged_userns_clone=1",
	},
	{"/proc/sys/user/max_user_namespaces", "0", "user namespaces are turned off", "sysctl -w user.max_user_namespaces=10000"},
}

// explainRefusal finds the cause of bwrap's output.
func explainRefusal(tier, said string, m machine) *RefusedError {
	said = strings.TrimSpace(strings.Join(strings.Fields(said), " "))
	r := &RefusedError{Tier: tier, Cause: said, Remedy: "run the same on another machine, or set sandbox.tier"}
	switch tier {
	case TierCommand:
		r.Remedy = "mend sandbox.command: docs/sandbox.md says what it must do, and has command lines that do"
		return r
	case TierLandlock:
		r.Remedy = "boot a kernel >= 5.13 with lsm=landlock"
		return r
	}
	for _, s := range switches {
		data, err := m.read(s.file)
		if err == nil && string(bytes.TrimSpace(data)) == s.off {
			r.Cause, r.Remedy = fmt.Sprintf("%s (%s is %s): %s", s.cause, s.file, s.off, said), s.remedy
			return r
		}
	}
	status, _ := m.read("/proc/self/status")
	filtered := strings.Contains(string(status), "Seccomp:\t2")
	switch {
	case containsAny(said, "no such file", "not found") && containsAny(said, "bwrap"):
		r.Cause, r.Remedy = "bubblewrap is not installed", "apt install bubblewrap"
	case containsAny(said, "unknown option"):
		r.Remedy = "install bubblewrap 0.8 or later"
	case containsAny(said, "mount proc", "mount /proc", "/newroot/proc"):
		r.Cause = "this container's /proc is masked, so that no new one can be mounted: " + said
		r.Remedy = "start the container with --security-opt systempaths=unconfined, as deploy/compose.sandbox.yaml does; on Kubernetes set procMount: Unmasked " +
			"with hostUsers: false"
	case filtered && containsAny(said, "namespace", "permitted", "clone"):
		r.Cause = "this container's seccomp profile keeps user namespaces from programs: " + said
		r.Remedy = "start the container with --security-opt seccomp=deploy/sandbox/seccomp.json, a file of Weir's sources, as deploy/compose.sandbox.yaml does; " +
			"on Kubernetes with the same file as a Localhost profile"
	case m.root && containsAny(said, "operation not permitted", "invalid argument"):
		r.Cause = "this process is root and may not become another user, and nothing is started as uid 0: " + said
		r.Remedy = "start Weir as a user of its own, or leave it CAP_SETUID and CAP_SETGID; in a container with few ids set sandbox.first_uid"
	}
	return r
}

func containsAny(said string, any ...string) bool {
	said = strings.ToLower(said)
	for _, word := range any {
		if strings.Contains(said, word) {
			return true
		}
	}
	return false
}
