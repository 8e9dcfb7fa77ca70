package archiver

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/streamtest"
	"github.com/weir-rl/weir/trainer/archive/messages"
)

// childEnv makes the test binary an archiver.
const childEnv = "WEIR_TEST_ARCHIVER"

// child is how an archiver's process works.
type child struct {
	URL, Folder string
	// Dies is the number of the stage after which the process kills itself, 0 for never.
	Dies int
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		if err := runChild(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	streamtest.Main(m)
}

func runChild(text string) error {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	conn, err := streams.Connect(ctx, streams.ConnectConfig{URL: c.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer conn.Close()
	run, err := conn.Attach(ctx, "test")
	if err != nil {
		return err
	}
	folder := messages.Folder{Dir: c.Folder}
	unlock, err := folder.Lock()
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }()
	store := &dyingStore{Folder: folder, after: func() {
		if c.Dies--; c.Dies == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}}
	return Run(ctx, messages.Config{Bytes: 1 << 30}, Deps{
		Stream: run, Store: store, Log: slog.New(slog.DiscardHandler), After: func(string) { store.after() },
	})
}

// dyingStore is a folder around each of whose writes the process may die.
type dyingStore struct {
	messages.Folder
	after func()
}

func (s *dyingStore) Put(name string, data []byte) error {
	// What a Put that is cut off leaves.
	if err := os.WriteFile(s.Dir+"/"+name+".tmp", data[:len(data)/2], 0o600); err != nil {
		return err
	}
	s.after()
	err := s.Folder.Put(name, data)
	s.after()
	return err
}

func (s *dyingStore) Remove(name string) error {
	err := s.Folder.Remove(name)
	s.after()
	return err
}
