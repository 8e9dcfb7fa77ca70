package torch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Serving is how a machine lends its devices to a trainer of another machine: see [Serving.Serve].
type Serving struct {
	// Python is the interpreter, as Config.Python.
	Python string
	// Secret is the file that [WriteSecret] wrote. Anybody who has it may run programs here.
	Secret string
	// Interface is the network interface by which ranks speak to each other; "" lets PyTorch choose.
	Interface string
	// Log may be nil.
	Log *slog.Logger
}

// Serve starts a rank for each connection of a trainer that has the secret, and passes frames between the two; a rank ends with its
// connection. It returns when ctx has ended, and with it every rank.
func (s Serving) Serve(ctx context.Context, l net.Listener) error {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	secret, err := readSecret(s.Secret)
	if err != nil {
		return errors.Join(fmt.Errorf("--secret: %w", err), l.Close())
	}
	secured, err := tlsConfig(secret)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	python, err := findInterpreter(ctx, s.Python)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	var ranks sync.WaitGroup
	defer ranks.Wait()
	room := make(chan struct{}, maxRanks)
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil // the listener was closed
		}
		if err != nil {
			cancel()
			return fmt.Errorf("accept a trainer: %w", err)
		}
		select {
		case room <- struct{}{}:
		default:
			_ = conn.Close() // more than any trainer asks for
			continue
		}
		ranks.Go(func() {
			defer func() { <-room }()
			if err := s.lendRank(ctx, tls.Server(conn, secured), python); err != nil && ctx.Err() == nil {
				s.Log.Warn("a rank was not lent, or has ended", "trainer", conn.RemoteAddr().String(), "err", err)
			}
		})
	}
}

// lendRank starts a rank for a connection and passes frames until either ends.
func (s Serving) lendRank(ctx context.Context, conn *tls.Conn, python string) error {
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return err
	}
	if err := conn.HandshakeContext(ctx); err != nil {
		return err
	}
	var ask wanted
	if err := readWords(conn, &ask); err != nil {
		return fmt.Errorf("read what is asked for: %w", err)
	}
	p, err := spawnProcess(python, ask.Title, rankEnvironment(max(1, ask.Threads), s.Interface))
	if err != nil {
		return errors.Join(err, writeWords(conn, granted{Error: err.Error()}))
	}
	defer p.killAndWait()
	if err := writeWords(conn, granted{PID: p.PID()}); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	s.Log.Info("a rank is lent", "trainer", conn.RemoteAddr().String(), "rank", ask.Title, "pid", p.PID())
	over := make(chan error, 2)
	go func() { over <- passBytes(p.conn, conn) }()
	go func() { over <- passBytes(conn, p.conn) }()
	err = <-over
	_ = conn.Close()
	p.killAndWait()
	other := <-over // it ends because the first direction did
	s.Log.Info("a rank has ended", "rank", ask.Title, "other_direction", other, "pid", p.PID(), "how", p.howEnded(), "printed", p.output.Lines())
	return err
}

// passBytes copies until the source ends, which is no error.
func passBytes(to io.Writer, from io.Reader) error {
	_, err := io.Copy(to, from)
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}
