//go:build !unix

package torch

import (
	"errors"
	"os"
)

func spawnProcess(string, string, []string, *tail) (*process, error) {
	return nil, errors.New("the engine torch needs Linux or another Unix: its processes inherit a socket")
}

func killGroup(int) {}

func endSignal(*os.ProcessState) int { return 0 }
