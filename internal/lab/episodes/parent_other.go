//go:build !linux

package episodes

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
