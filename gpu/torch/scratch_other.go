//go:build !unix

package torch

import "errors"

var errNoLocks = errors.New("the engine torch needs Linux or another Unix: it locks its scratch folders")

func lockFile(string) (unlock func() error, err error) { return nil, errNoLocks }

func lockExisting(string) (unlock func() error, err error) { return nil, errNoLocks }
