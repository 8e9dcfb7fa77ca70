package torch

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// askTimeout bounds the words that two machines exchange before a rank's frames.
const askTimeout = 30 * time.Second

// maxWords bounds them, in bytes.
const maxWords = 1 << 16

// wanted asks another machine for a rank. Beside its frames, nothing else is said.
type wanted struct {
	Title   string `json:"title"`
	Threads int    `json:"threads"`
}

// granted is the answer.
type granted struct {
	PID   int    `json:"pid"`
	Error string `json:"error,omitempty"`
}

// borrowRank asks a machine's weir torch-worker for a rank and returns the connection to it.
func borrowRank(ctx context.Context, machine string, secured *tls.Config, ask wanted) (net.Conn, granted, error) {
	var got granted
	conn, err := (&tls.Dialer{Config: secured, NetDialer: &net.Dialer{Timeout: askTimeout}}).DialContext(ctx, "tcp", machine)
	if err != nil {
		return nil, got, fmt.Errorf("torch.machines: %s: %w", machine, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_ = conn.SetDeadline(time.Now().Add(askTimeout)) // a closed connection reports it when it is used
	if err = writeWords(conn, ask); err == nil {
		err = readWords(conn, &got)
	}
	if err == nil && got.Error != "" {
		err = fmt.Errorf("it starts no rank: %s", got.Error)
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, got, fmt.Errorf("torch.machines: %s: %w", machine, err)
	}
	_ = conn.SetDeadline(time.Time{})
	return conn, got, nil
}

func writeWords(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(withLength(data))
	return err
}

func readWords(r io.Reader, into any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := int(size[0]) | int(size[1])<<8 | int(size[2])<<16 | int(size[3])<<24
	if n < 0 || n > maxWords {
		return fmt.Errorf("words of %d bytes: at most %d", n, maxWords)
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r, data); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
