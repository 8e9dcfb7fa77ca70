package bucket

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-rl/weir/trainer/archive/messages"
	"github.com/weir-rl/weir/trainer/archive/messages/storetest"
)

const (
	testKey    = "AKIDTESTKEY"
	testSecret = "test-secret-that-is-in-no-text"
)

func TestMain(m *testing.M) {
	if os.Getenv("WEIR_S3_ENDPOINT") == "" {
		for key, value := range map[string]string{
			"AWS_ACCESS_KEY_ID": testKey, "AWS_SECRET_ACCESS_KEY": testSecret, "AWS_SESSION_TOKEN": "", "AWS_EC2_METADATA_DISABLED": "true",
			"AWS_REGION": "us-east-1",
		} {
			if err := os.Setenv(key, value); err != nil {
				panic(err)
			}
		}
	}
	goleak.VerifyTestMain(m)
}

// server is a store that speaks S3, with a door before it that may answer instead.
type server struct {
	*httptest.Server
	door atomic.Pointer[func(w http.ResponseWriter, r *http.Request, pass http.Handler)]
}

func (s *server) setDoor(door func(w http.ResponseWriter, r *http.Request, pass http.Handler)) {
	if door == nil {
		s.door.Store(nil)
		return
	}
	s.door.Store(&door)
}

func newServer(t *testing.T) *server {
	t.Helper()
	backend := s3mem.New()
	require.NoError(t, backend.CreateBucket("kept"))
	pass := gofakes3.New(backend).Server()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if door := s.door.Load(); door != nil {
			(*door)(w, r, pass)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) open(t *testing.T, run string) *Bucket {
	t.Helper()
	b, err := Open(messages.Config{Dir: "s3://kept/a/prefix", S3: messages.S3Config{Endpoint: s.URL}}, run)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

func TestABucketIsAStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) func() messages.Store {
		s := newServer(t)
		return func() messages.Store { return s.open(t, "run") }
	})
}

func TestASpoolBeforeABucketIsAStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) func() messages.Store {
		s, dir := newServer(t), t.TempDir()
		return reopened(t, func() messages.Store {
			spool, err := messages.OpenSpool(messages.Folder{Dir: dir}, s.open(t, "run"), messages.SpoolConfig{Bytes: 64 << 20, Delay: time.Hour},
				slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			return spool
		})
	})
}

// reopened closes the spool that was opened before.
func reopened(t *testing.T, open func() messages.Store) func() messages.Store {
	var before *messages.Spool
	closeBefore := func() {
		if before != nil {
			require.NoError(t, before.Close())
		}
		before = nil
	}
	t.Cleanup(closeBefore)
	return func() messages.Store {
		closeBefore()
		before = open().(*messages.Spool)
		return before
	}
}

// A server of somebody else, where WEIR_S3_ENDPOINT names one: WEIR_S3_BUCKET (weir-test) must exist, credentials are the environment's.
func TestARealServer(t *testing.T) {
	endpoint := os.Getenv("WEIR_S3_ENDPOINT")
	if endpoint == "" {
		t.Skip("WEIR_S3_ENDPOINT names no server")
	}
	name := os.Getenv("WEIR_S3_BUCKET")
	if name == "" {
		name = "weir-test"
	}
	runs := atomic.Int64{}
	open := func(t *testing.T, run string) *Bucket {
		b, err := Open(messages.Config{Dir: "s3://" + name + "/conformance", S3: messages.S3Config{Endpoint: endpoint}}, run)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, b.Close()) })
		return b
	}
	newRun := func(t *testing.T) string {
		run := fmt.Sprintf("run-%d-%d", time.Now().UnixNano(), runs.Add(1))
		b := open(t, run) // closed after this
		t.Cleanup(func() {
			for stored := range storetest.Names(t, b) {
				require.NoError(t, b.Remove(stored))
			}
		})
		return run
	}
	t.Run("bucket", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) func() messages.Store {
			run := newRun(t)
			return func() messages.Store { return open(t, run) }
		})
	})
	t.Run("spool", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) func() messages.Store {
			run, dir := newRun(t), t.TempDir()
			return reopened(t, func() messages.Store {
				spool, err := messages.OpenSpool(messages.Folder{Dir: dir}, open(t, run), messages.SpoolConfig{Bytes: 64 << 20, Delay: time.Hour},
					slog.New(slog.DiscardHandler))
				require.NoError(t, err)
				return spool
			})
		})
	})
	t.Run("a list of several pages", func(t *testing.T) {
		b := open(t, newRun(t))
		for i := range 1003 {
			require.NoError(t, b.Put(storetest.SegmentName(uint64(i+1)), []byte("x")))
		}
		require.Len(t, storetest.Names(t, b), 1003)
	})
	t.Run("refusals", func(t *testing.T) {
		b := open(t, newRun(t))
		require.NoError(t, b.Probe())
		name := b.name
		defer func() { b.name = name }()
		b.name += "-that-is-not-there"
		_, err := b.List()
		require.ErrorContains(t, err, "NoSuchBucket")
		require.ErrorContains(t, b.Put(storetest.SegmentName(1), []byte("x")), "NoSuchBucket")
	})
}

// answer answers with an error of S3.
func answer(status int, code string) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>of a test</Message></Error>`, code)
	}
}

// Finding by the adversary's list: whatever a store answers, a segment is either stored whole, or the call fails and the name of the object
// is in the error. No credential is.
func TestWhateverTheStoreAnswersASegmentIsWholeOrTheCallFails(t *testing.T) {
	t.Parallel()
	doors := map[string]func(http.ResponseWriter, *http.Request, http.Handler){
		"access denied":     answer(http.StatusForbidden, "AccessDenied"),
		"bad signature":     answer(http.StatusForbidden, "SignatureDoesNotMatch"),
		"no such bucket":    answer(http.StatusNotFound, "NoSuchBucket"),
		"full":              answer(http.StatusInsufficientStorage, "XMinioStorageFull"),
		"over quota":        answer(http.StatusForbidden, "QuotaExceeded"),
		"200 with an error": answer(http.StatusOK, "InternalError"),
		"200 with nothing":  func(http.ResponseWriter, *http.Request, http.Handler) {},
		"200 with a page of a proxy": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			fmt.Fprint(w, "<html><body>log in first</body></html>")
		},
		"a connection that is cut": func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) },
		"a redirect": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
	}
	for name, door := range doors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			b := s.open(t, "run")
			require.NoError(t, b.Put(storetest.SegmentName(1), []byte("before")))
			s.setDoor(door)
			putErr := b.Put(storetest.SegmentName(2), []byte("segment"))
			_, listErr := b.List()
			_, openErr := b.Open(storetest.SegmentName(1))
			for act, err := range map[string]error{"put": putErr, "list": listErr, "open": openErr} {
				require.Error(t, err, act)
				require.Contains(t, err.Error(), "s3://kept/a/prefix/run/", act)
				require.NotContains(t, err.Error(), testSecret, act)
			}
			s.setDoor(nil)
			require.Equal(t, map[string]int64{storetest.SegmentName(1): 6}, storetest.Names(t, b))
			require.Equal(t, "before", string(storetest.ReadAll(t, b, storetest.SegmentName(1))))
		})
	}
}

// A store that is busy is asked again by the client itself.
func TestABusyStoreIsAskedAgain(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open(t, "run")
	var requests atomic.Int64
	s.setDoor(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if requests.Add(1)%2 == 1 {
			answer(http.StatusServiceUnavailable, "SlowDown")(w, r, pass)
			return
		}
		pass.ServeHTTP(w, r)
	})
	require.NoError(t, b.Put(storetest.SegmentName(1), []byte("segment")))
	require.Equal(t, "segment", string(storetest.ReadAll(t, b, storetest.SegmentName(1))))
}

// changedAnswer passes requests on and changes the answers.
func changedAnswer(change func(h http.Header, body []byte) []byte) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		recorded := httptest.NewRecorder()
		pass.ServeHTTP(recorded, r)
		body := change(recorded.Header(), recorded.Body.Bytes())
		maps.Copy(w.Header(), recorded.Header())
		w.WriteHeader(recorded.Code)
		_, _ = w.Write(body) // the client may be gone
	}
}

// An ETag that is no hash of the bytes, as with encryption by a key of one's own, has the object read back.
func TestAnAnswerWithoutAHashHasTheObjectReadBack(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open(t, "run")
	s.setDoor(changedAnswer(func(h http.Header, body []byte) []byte {
		if h.Get("ETag") != "" {
			h.Set("ETag", `"0123456789abcdef0123456789abcdef-1"`)
		}
		return body
	}))
	require.NoError(t, b.Put(storetest.SegmentName(1), []byte("segment")))
	// Of other bytes the put fails: here the store has kept another object under the name.
	s.setDoor(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut {
			w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef-1"`)
			return
		}
		pass.ServeHTTP(w, r)
	})
	require.ErrorContains(t, b.Put(storetest.SegmentName(1), []byte("another")), "other bytes")
}

// Ranges that are not those that were asked for are errors, and no wrong bytes.
func TestAWrongRangeIsAnError(t *testing.T) {
	t.Parallel()
	data := storetest.Random(300 << 10)
	for name, change := range map[string]func(http.Header, []byte) []byte{
		"cut":           func(_ http.Header, body []byte) []byte { return body[:len(body)/2] },
		"another range": func(h http.Header, body []byte) []byte { h.Set("Content-Range", "bytes 1-10/307200"); return body },
		"no range":      func(h http.Header, body []byte) []byte { h.Del("Content-Range"); h.Del("Content-Length"); return body },
		"nonsense":      func(h http.Header, body []byte) []byte { h.Set("Content-Range", "bytes */x"); return body },
		"no ETag":       func(h http.Header, body []byte) []byte { h.Del("ETag"); return body },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			b := s.open(t, "run")
			require.NoError(t, b.Put(storetest.SegmentName(1), data))
			blob, err := b.Open(storetest.SegmentName(1))
			require.NoError(t, err)
			s.setDoor(changedAnswer(change))
			_, err = blob.ReadAt(make([]byte, 1000), 5000)
			require.Error(t, err)
			require.NoError(t, blob.Close())
		})
	}
}

// An object that is written again while it is read is read from its beginning, by another look at the list.
func TestAnObjectThatIsWrittenAgainIsNotMixed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open(t, "run")
	require.NoError(t, b.Put(storetest.SegmentName(1), storetest.Random(300<<10)))
	blob, err := b.Open(storetest.SegmentName(1))
	require.NoError(t, err)
	require.NoError(t, b.Put(storetest.SegmentName(1), storetest.Random(300<<10+1)))
	_, err = blob.ReadAt(make([]byte, 1000), 5000)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, blob.Close())
}

func TestClosingEndsARequest(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open(t, "run")
	asked := make(chan struct{}, requestTries)
	s.setDoor(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	ended := make(chan error)
	go func() {
		_, err := b.List()
		ended <- err
	}()
	<-asked
	require.NoError(t, b.Close())
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Error(t, b.Put(storetest.SegmentName(1), []byte("x")))
}

// Two that find no mark at the same moment: the mark that is put first stays. A bucket that does not know a put which does not overwrite
// still has a mark.
func TestAMarkInABucketIsNotWrittenOver(t *testing.T) {
	t.Parallel()
	const id, another = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"
	s := newServer(t)
	a, b := s.open(t, "run"), s.open(t, "run")
	s.setDoor(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Method == http.MethodPut { // the other was faster
			s.setDoor(nil)
			have, err := b.Claim(another, true)
			require.NoError(t, err)
			require.Equal(t, another, have)
		}
		pass.ServeHTTP(w, r)
	})
	have, err := a.Claim(id, true)
	require.NoError(t, err)
	require.Equal(t, another, have)

	// Findings 15b.5 and 16b.5: stores that do not know the condition say so in many words.
	bare := func(status int) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(status) }
	}
	for i, refuses := range []func(http.ResponseWriter, *http.Request, http.Handler){
		answer(http.StatusNotImplemented, "NotImplemented"), answer(http.StatusNotImplemented, "XNotImplemented"),
		answer(http.StatusBadRequest, "InvalidArgument"), answer(http.StatusBadRequest, "InvalidHeader"),
		answer(http.StatusMethodNotAllowed, "MethodNotAllowed"), bare(http.StatusNotImplemented), bare(http.StatusBadRequest),
	} {
		old := s.open(t, fmt.Sprint("old", i))
		s.setDoor(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.Header.Get("If-None-Match") != "" {
				refuses(w, r, pass)
				return
			}
			pass.ServeHTTP(w, r)
		})
		have, err = old.Claim(id, true)
		require.NoError(t, err, i)
		require.Equal(t, id, have)
		have, err = old.Claim(another, true)
		require.NoError(t, err, i)
		require.Equal(t, id, have)
	}
}

// Runs of one prefix do not see each other.
func TestRunsOfOneBucketAreApart(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	a, b := s.open(t, "a"), s.open(t, "ab")
	require.NoError(t, a.Put(storetest.SegmentName(1), []byte("of a")))
	require.NoError(t, b.Put(storetest.SegmentName(2), []byte("of ab")))
	require.Equal(t, map[string]int64{storetest.SegmentName(1): 4}, storetest.Names(t, a))
	require.Equal(t, map[string]int64{storetest.SegmentName(2): 5}, storetest.Names(t, b))
}

func TestCredentialsComeFromEnvironmentOrProfile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	require.NoError(t, os.WriteFile(file, []byte("[weir]\naws_access_key_id = OFPROFILE\naws_secret_access_key = s\n"), 0o600))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	t.Setenv("AWS_PROFILE", "weir")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_ACCESS_KEY_ID", "OFENVIRONMENT")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	value, err := newCredentials().GetWithContext(nil)
	require.NoError(t, err)
	require.Equal(t, "OFENVIRONMENT", value.AccessKeyID)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	value, err = newCredentials().GetWithContext(nil)
	require.NoError(t, err)
	require.Equal(t, "OFPROFILE", value.AccessKeyID)
	t.Setenv("AWS_PROFILE", "another")
	s := newServer(t)
	var requests atomic.Int64
	s.setDoor(func(http.ResponseWriter, *http.Request, http.Handler) { requests.Add(1) })
	b := s.open(t, "run")
	_, err = b.List()
	require.ErrorIs(t, err, errNoCredentials)
	require.ErrorContains(t, b.Put(storetest.SegmentName(1), []byte("x")), "AWS_ACCESS_KEY_ID")
	require.Zero(t, requests.Load(), "nothing is sent without a signature")
}

// A region that is not named is that of the environment; path style is in the request's path.
func TestTheBucketIsInThePathAtOtherStores(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open(t, "run")
	var paths []string
	s.setDoor(func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		paths = append(paths, r.URL.Path)
		require.Contains(t, r.Header.Get("Authorization"), "/us-east-1/s3/")
		pass.ServeHTTP(w, r)
	})
	require.NoError(t, b.Put(storetest.SegmentName(1), []byte("x")))
	require.Len(t, paths, 1)
	require.True(t, strings.HasPrefix(paths[0], "/kept/a/prefix/run/"), paths[0])
}

// BenchmarkKeep keeps a step of 256 trajectories of some 250 tokens: in a folder, and in a bucket behind a spool; first it only makes the
// messages. Processor time is that of the process, which has the store too unless WEIR_S3_ENDPOINT names another.
func BenchmarkKeep(b *testing.B) {
	for _, where := range []string{"nowhere", "folder", "bucket"} {
		b.Run(where, func(b *testing.B) {
			folder := messages.Folder{Dir: b.TempDir()}
			var store messages.Store = folder
			if where == "bucket" {
				endpoint, name := os.Getenv("WEIR_S3_ENDPOINT"), "weir-test"
				if endpoint == "" {
					backend := s3mem.New()
					require.NoError(b, backend.CreateBucket(name))
					s := httptest.NewServer(gofakes3.New(backend).Server())
					defer s.Close()
					endpoint = s.URL
				}
				cfg := messages.Config{Dir: "s3://" + name + "/bench", S3: messages.S3Config{Endpoint: endpoint}}
				there, err := Open(cfg, fmt.Sprint(time.Now().UnixNano()))
				require.NoError(b, err)
				spool, err := messages.OpenSpool(folder, there, messages.SpoolConfig{Bytes: 1 << 30, Delay: time.Second}, slog.New(slog.DiscardHandler))
				require.NoError(b, err)
				defer func() { require.NoError(b, spool.Close()) }()
				store = spool
			}
			a := storetest.OpenArchive(b, store, 1<<30)
			defer func() { require.NoError(b, a.Close()) }()
			var stream storetest.Stream
			before := processorTime(b)
			for b.Loop() {
				stream.Publish(b, 256)
				if where != "nowhere" {
					_, err := a.Keep(b.Context(), &stream, uint64(len(stream.Data)))
					require.NoError(b, err)
					clear(stream.Data)
				}
			}
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
