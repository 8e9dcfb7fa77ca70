package view_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// browser is a headless Chromium that a test talks to over a pipe, by the DevTools protocol.
type browser struct {
	t   *testing.T
	in  io.WriteCloser
	ctx context.Context //nolint:containedctx // it bounds what the test asks of the browser

	mu      sync.Mutex
	next    int
	waiting map[int]chan reply
	session string
	// errors are what the page's console, the network and the content policy complained of.
	errors []string
}

type reply struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// startBrowser starts Chromium, or skips where there is none and WEIR_NEED_CHROMIUM does not ask for it.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		if os.Getenv("WEIR_NEED_CHROMIUM") != "" {
			t.Fatal("WEIR_NEED_CHROMIUM is set and there is no chromium: apt-get install chromium")
		}
		t.Skip("SKIPPED: the page was not looked at in a browser: there is no chromium (apt-get install chromium)")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience())
	commandsRead, commands, err := os.Pipe()
	require.NoError(t, err)
	answers, answersWrite, err := os.Pipe()
	require.NoError(t, err)
	// Not the test's own folder: what Chromium's other processes write as they end would fail the test.
	profile, err := os.MkdirTemp("", "weir-view-chromium") //nolint:usetesting // see above
	require.NoError(t, err)
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
		"--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars", "--mute-audio", "--lang=en", "--user-data-dir="+profile, "about:blank")
	cmd.ExtraFiles = []*os.File{commandsRead, answersWrite}
	require.NoError(t, cmd.Start())
	require.NoError(t, errors.Join(commandsRead.Close(), answersWrite.Close()))
	b := &browser{t: t, in: commands, ctx: ctx, waiting: map[int]chan reply{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.read(answers)
	}()
	t.Cleanup(func() {
		// It ends by itself once nobody talks to it; what it has written is removed as far as that goes.
		_ = commands.Close()
		_ = cmd.Wait()
		_ = answers.Close()
		<-ended
		cancel()
		_ = os.RemoveAll(profile)
	})
	var target struct {
		ID string `json:"targetId"`
	}
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct {
		Session string `json:"sessionId"`
	}
	b.call("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached)
	b.session = attached.Session
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	b.size(1280, 860)
	return b
}

// read gives each answer to whoever waits for it.
func (b *browser) read(from io.Reader) {
	in := bufio.NewReaderSize(from, 1<<20)
	for {
		data, err := in.ReadBytes(0)
		if err != nil {
			b.mu.Lock()
			for id, ch := range b.waiting {
				close(ch)
				delete(b.waiting, id)
			}
			b.mu.Unlock()
			return
		}
		var r reply
		if json.Unmarshal(data[:len(data)-1], &r) != nil {
			continue
		}
		b.mu.Lock()
		if r.ID > 0 {
			if ch := b.waiting[r.ID]; ch != nil {
				ch <- r
				delete(b.waiting, r.ID)
			}
		} else if told := complaint(r); told != "" {
			b.errors = append(b.errors, told)
		}
		b.mu.Unlock()
	}
}

// complaint is what an event says went wrong; "" where it says nothing of the kind.
func complaint(r reply) string {
	var p struct {
		Type  string `json:"type"`
		Entry struct {
			Level, Text, URL string
		} `json:"entry"`
		ExceptionDetails struct {
			Text      string
			Exception struct{ Description string } `json:"exception"`
		} `json:"exceptionDetails"`
		Args []struct {
			Value       any    `json:"value"`
			Description string `json:"description"`
		} `json:"args"`
	}
	if json.Unmarshal(r.Params, &p) != nil {
		return ""
	}
	switch {
	case r.Method == "Log.entryAdded" && p.Entry.Level == "error":
		return p.Entry.Text + " " + p.Entry.URL
	case r.Method == "Runtime.exceptionThrown":
		return p.ExceptionDetails.Text + " " + p.ExceptionDetails.Exception.Description
	case r.Method == "Runtime.consoleAPICalled" && (p.Type == "error" || p.Type == "assert"):
		return fmt.Sprint(p.Args)
	}
	return ""
}

func (b *browser) call(method string, params, result any) {
	b.t.Helper()
	b.mu.Lock()
	b.next++
	id, ch := b.next, make(chan reply, 1)
	b.waiting[id] = ch
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	data, err := json.Marshal(message)
	if err == nil {
		_, err = b.in.Write(append(data, 0))
	}
	b.mu.Unlock()
	require.NoError(b.t, err)
	select {
	case r, ok := <-ch:
		require.True(b.t, ok, "%s: the browser has ended", method)
		if r.Error != nil {
			require.Fail(b.t, method, r.Error.Message)
		}
		if result != nil {
			require.NoError(b.t, json.Unmarshal(r.Result, result))
		}
	case <-b.ctx.Done():
		require.Fail(b.t, method, "no answer: %v", b.ctx.Err())
	}
}

// size sets the window's.
func (b *browser) size(width, height int) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

// prefer chooses dark or light.
func (b *browser) prefer(scheme string) {
	b.t.Helper()
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// open goes to an address, anew.
func (b *browser) open(url string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": url}, nil)
}

// eval is the value of an expression, of a promise too.
func (b *browser) eval(expression string, to any) {
	b.t.Helper()
	var out struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string } `json:"exception"`
		} `json:"exceptionDetails"`
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true}, &out)
	if d := out.ExceptionDetails; d != nil {
		require.Fail(b.t, expression, "%s %s", d.Text, d.Exception.Description)
	}
	if to != nil && len(out.Result.Value) > 0 {
		require.NoError(b.t, json.Unmarshal(out.Result.Value, to), "%s", out.Result.Value)
	}
}

// until waits for a condition to hold, and says what the page shows where it does not within a minute.
func (b *browser) until(condition string) {
	b.t.Helper()
	var held bool
	b.eval(`new Promise((resolve) => { const end = Date.now() + 60000; const look = () => { let ok = false; try { ok = `+condition+`; } catch {} if (ok) resolve(true); else if (Date.now() > end) resolve(false); else setTimeout(look, 20); }; look(); })`, &held)
	if !held {
		require.Fail(b.t, "the page did not come to it", "%s\nthe page says: %s\ncomplaints: %v", condition, b.text("body"), b.complaints())
	}
}

// text is what an element shows.
func (b *browser) text(selector string) string {
	b.t.Helper()
	var text string
	b.eval(`(document.querySelector(`+quoteJS(selector)+`) || {innerText: ''}).innerText`, &text)
	return text
}

// click clicks an element.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.eval(`document.querySelector(`+quoteJS(selector)+`).click()`, nil)
}

// press sends a key to the page.
func (b *browser) press(key string) {
	b.t.Helper()
	text := key
	if len(key) > 1 {
		text = map[string]string{"Enter": "\r"}[key]
	}
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": key, "text": text}, nil)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key}, nil)
}

// complaints are all so far.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.errors...)
}

// picture is what the window shows, as PNG.
func (b *browser) picture() []byte {
	b.t.Helper()
	var out struct {
		Data string `json:"data"`
	}
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &out)
	data, err := base64.StdEncoding.DecodeString(out.Data)
	require.NoError(b.t, err)
	return data
}

func quoteJS(text string) string {
	data, _ := json.Marshal(text) // a string is JSON
	return strings.ReplaceAll(string(data), "</", "<\\/")
}
