package rescore

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// RunOf returns the run whose rows a file has.
func RunOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the rows: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	line, err := bufio.NewReader(f).ReadBytes('\n')
	var head header
	if err != nil || json.Unmarshal(line, &head) != nil || head.Run == "" {
		return "", fmt.Errorf("%s is no file of weir rescore: its first line names no run", path)
	}
	return head.Run, nil
}
