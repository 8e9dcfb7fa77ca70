package main

import (
	"fmt"
	"regexp"
)

// release is a version as a release has it: v1.2.3, 1.2.3-rc.1, 1.2.3-SNAPSHOT-5a8b79e.
var release = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.?(\d+)|-(?:SNAPSHOT-?|dev\+?)([0-9a-f]*))?$`)

// pythonVersion writes a version as Python's packages do (PEP 440): 1.2.3, 1.2.3rc1, 1.2.3.dev0+g5a8b79e.
func pythonVersion(version string) (string, error) {
	m := release.FindStringSubmatch(version)
	switch {
	case m == nil:
		return "", fmt.Errorf("version %q: want one such as 1.2.3, v1.2.3-rc.1 or 1.2.3-SNAPSHOT-5a8b79e", version)
	case m[2] != "":
		return m[1] + map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[2]] + m[3], nil
	case m[4] != "":
		return m[1] + ".dev0+g" + m[4], nil
	case len(m[0]) > len(m[1])+1:
		return m[1] + ".dev0", nil
	}
	return m[1], nil
}
