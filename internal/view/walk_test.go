package view_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-rl/weir"
	"github.com/weir-rl/weir/internal/fulltest"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/internal/runfolder"
	"github.com/weir-rl/weir/internal/view"
	"github.com/weir-rl/weir/trainer/checkpoint"
)

// pictures is where docs/view.md's pictures are written.
var pictures = flag.String("pictures", "", "a folder for the pictures of docs/view.md; \"\" writes none")

// asWeir makes the test binary the command line: a test runs real runs in processes of their own.
const asWeir = "WEIR_VIEW_TEST_AS_WEIR"

func TestMain(m *testing.M) {
	if os.Getenv(asWeir) != "" {
		os.Exit(weir.App{}.Run())
	}
	os.Exit(m.Run())
}

// small are the settings of a run that takes seconds.
var small = []string{
	"--model.hidden", "16", "--model.intermediate", "32", "--model.layers", "1", "--trainer.batch_groups", "4", "--trainer.group_size", "4",
	"--trainer.cold_start.steps", "60", "--trainer.minibatches", "2", "--trainer.max_dropped_groups", "8", "--eval.questions", "8", "--eval.test_questions", "4", "--eval.show", "0",
}

// learning are the settings of a run whose pictures show learning: those of the demonstration.
var learning = []string{"--trainer.steps", "50", "--trainer.checkpoint.keep", "12"}

// patience is how long a process of a test may take: the run of the pictures is a whole one.
func patience() time.Duration {
	if *pictures != "" {
		return 20 * time.Minute
	}
	return 4 * time.Minute
}

// run starts weir with these arguments, in a process that ends with the test.
func run(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience())
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asWeir+"=1")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

// serve shows runs and returns the page's address.
func serve(t *testing.T, runs ...view.Run) string {
	t.Helper()
	s, err := view.Listen(view.Config{Listen: "127.0.0.1:0"}, view.Deps{Runs: runs}, false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s.URL()
}

// The page is walked through on a run that is over: each view shows what it is there for, by clicks, by keys and by address, and
// nothing is complained of, the content policy included.
func TestThePageShowsARunThatIsOver(t *testing.T) {
	fulltest.Need(t, "a run and a browser: the second pass of CI has them")
	b := startBrowser(t)
	dir := t.TempDir()
	replayed := 0
	settings, steps := append([]string{"--trainer.steps", "6", "--trainer.checkpoint.keep", "9"}, small...), 6
	if *pictures != "" {
		settings, steps = learning, 50
	}
	out, err := run(t, append([]string{"up", "--run.dir", dir, "--view.listen", ""}, settings...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	page := serve(t, view.Run{Run: runfolder.Run{Name: "demo", Dir: filepath.Join(dir, "demo")}, Flags: "--run.dir " + dir})

	b.open(page)
	b.until(`document.querySelectorAll('.chart path.line').length > 8`)
	b.until(`location.hash === '#/demo/overview'`) // the token is out of the address, and the only run is open
	require.Contains(t, b.text("#main"), "finished")
	require.Contains(t, b.text("#main"), fmt.Sprintf("step %d / %d", steps, steps))
	walkFirstScreen(t, b, steps)
	picture(t, b, "view-overview")

	b.press("g")
	b.press("a")
	b.until(`document.querySelector('#fall') !== null`)
	issued, trained := count(t, b, "issued"), count(t, b, "trained")
	require.Positive(t, trained)
	require.Greater(t, issued, trained)
	picture(t, b, "view-accounting")

	// A click on a bar lists its trajectories.
	b.click(`#fall a.track[aria-label^="dropped: zero_variance"]`)
	b.until(`document.querySelectorAll('.list a.row.group .badge.unsolved, .list a.row.group .badge.solved').length > 1`)
	require.NotContains(t, b.text(".list"), "rewards differ")
	b.eval(`location.hash += '&rows=samples'`, nil)
	b.until(`document.querySelectorAll('.list a.row.sample').length > 3`)
	require.Contains(t, b.text(".list"), "zero variance")
	require.NotContains(t, b.text(".list"), "trained")

	b.press("g")
	b.press("j")
	b.until(`document.querySelectorAll('.list a.row').length > 3 && !location.hash.includes('fate')`)
	b.press("j")
	b.until(`document.querySelectorAll('.list a.row.at').length === 1`)
	picture(t, b, "view-trajectories")

	// The first trained sample, and its numbers token by token.
	b.eval(`location.hash = '#/demo/trajectories?fate=trained&sort=-reward&rows=samples'`, nil)
	b.until(`document.querySelectorAll('.list a.row .badge.trained').length > 3`)
	b.press("Enter")
	b.until(`document.querySelectorAll('#talk .tok').length > 5 && document.querySelectorAll('.side .panel').length > 1`)
	require.Regexp(t, `\?\s+answered \S+`, b.text(".asked"), "the question, and what was answered")
	require.Contains(t, b.text("#main"), "trained on in step")
	require.Contains(t, b.text("#main"), "weir trajectory g0")
	b.press("c")
	b.until(`[...document.querySelectorAll('#talk .tok')].some((e) => e.style.backgroundColor !== '')`)
	b.until(`document.querySelectorAll('.side pre').length > 6`)
	b.prefer("dark")
	b.until(`document.documentElement.dataset.theme === 'dark'`)
	picture(t, b, "view-trajectory")

	// The command that the page copies runs the very episode again: the engine samples the same tokens, in every one of a step.
	for _, id := range trainedIn(t, b, steps-1) {
		b.eval(`location.hash = '#/demo/trajectory/`+id+`'`, nil)
		b.until(`document.querySelector('h1').innerText.includes('` + id + `') && document.querySelectorAll('.command code').length > 2`)
		command := b.text(".command:last-child code")
		require.Contains(t, command, "--replay "+id)
		again := run(t, append(shellWords(t, command)[1:], "-o", "json")...)
		var told strings.Builder
		again.Stderr = &told
		out, err := again.Output()
		require.NoError(t, err, "%s", &told)
		var rollout report.Rollout
		require.NoError(t, json.Unmarshal(out, &rollout))
		if rollout.Sampled == 0 || strings.Contains(told.String(), "alone runs it again") {
			continue // versions took turns in it: that cannot come again
		}
		replayed++
		require.Regexp(t, `the same \d+ tokens were sampled as in `+id+"\n", told.String())
		var was struct{ IDs [][]int32 }
		b.eval(`fetch('/api/runs/demo/trajectories/`+id+`').then((r) => r.json()).then((d) => ({IDs: d.trajectory.segments.map((s) => s.ids)}))`, &was)
		require.Len(t, rollout.Segments, len(was.IDs))
		for i, s := range rollout.Segments {
			require.Equal(t, was.IDs[i], s.Tokens)
		}
	}
	require.Greater(t, replayed, 3)

	b.prefer("light")
	for _, view := range []struct{ word, there string }{
		{"lanes", `document.querySelector('#lanes').height > 60 && document.querySelectorAll('.ages .stacked i').length === 4`},
		{"bias", `document.querySelectorAll('.fall').length === 4 && document.querySelectorAll('#issued tr').length > 1 && !document.querySelector('#issued').innerText.includes('not noted')`},
		{"streams", `document.querySelector('#main').innerText.includes('The run is not up')`},
		{"compare", `document.querySelectorAll('.chart path.line').length > 4`},
		{"log", `document.querySelector('.log').innerText.includes('training ended')`},
	} {
		b.eval(`location.hash = '#/demo/`+view.word+`'`, nil)
		b.until(view.there)
		if view.word != "streams" { // that of a live run tells more
			picture(t, b, "view-"+view.word)
		}
	}
	// A version that the folder keeps is asked by the page of weir view, as weir chat asks it.
	b.open(livePage(t, "view", "--run.dir", dir, "--view.listen", "127.0.0.1:0"))
	b.until(`document.querySelectorAll('.chart path.line').length > 8`)
	b.press("g")
	b.press("t")
	b.until(`document.querySelectorAll('#chat-version option').length > 0 && document.activeElement.id === 'chat-question'`)
	require.NotContains(t, b.text("#main"), "inference engines", "none is up")
	answered(t, b, "what is the number of zzxy ?", 1)
	require.Contains(t, b.text("#chat"), "the policy has never seen: zzxy")
	// A question of the task, with the first seed of which a call comes: its rollout is what the command line's is.
	b.eval(`document.querySelector('#chat-temperature').value = 1`, nil)
	called := false
	for seed := 1; !called; seed++ {
		require.Less(t, seed, 60, "no rollout has a call")
		b.eval(`document.querySelector('#chat-seed').value = `+itoa(seed), nil)
		answered(t, b, "", seed+1)
		b.eval(`document.querySelector('.episode .part.call') !== null`, &called)
	}
	require.Contains(t, b.text(".episode"), "search, ")
	picture(t, b, "view-chat")
	var said []string
	b.eval(`[...document.querySelector('.episode').querySelectorAll('.part.policy pre, .part.call pre')].map((e) => e.firstChild.data)`, &said)
	again := append(shellWords(t, b.text(".episode .command code"))[1:], "-o", "json")
	out, err = run(t, again...).Output()
	require.NoError(t, err, "%q", again)
	var rollout report.Rollout
	require.NoError(t, json.Unmarshal(out, &rollout))
	var want []string
	for _, p := range rollout.Parts {
		switch p.Role {
		case report.RolePolicy:
			want = append(want, p.Text)
		case report.RoleTool:
			want = append(want, p.Tool+"("+p.Text+")")
		}
	}
	require.Greater(t, len(want), 1)
	require.Equal(t, want, said)

	b.open(page)
	b.until(`document.querySelectorAll('.chart path.line').length > 8`)
	b.eval(`location.hash = '#/demo/chat'`, nil)
	b.until(`document.querySelector('#main').innerText.includes('No version can be asked here')`)
	b.eval(`location.hash = '#/demo/lanes'`, nil)
	b.until(`document.querySelector('#lanes') !== null && document.querySelectorAll('.ages .stacked i').length === 4`)
	b.press("+")
	b.until(`location.hash.includes('from=')`)
	fitsATelephone(t, b)
	require.Empty(t, b.complaints())
}

// walkFirstScreen looks at the overview: the verdict, three rollouts, and charts that can be smoothed, zoomed and drawn along time.
func walkFirstScreen(t *testing.T, b *browser, steps int) {
	t.Helper()
	b.until(`document.querySelectorAll('.rollout .said pre').length > 3`)
	require.Regexp(t, `^(Learned|Did not learn|Getting worse|Too early to tell|Only the reward rises|Solved from the start): reward`, b.text(".verdict h1"))
	require.Regexp(t, `Best of step \d+ reward`, b.text(".trio"))
	for _, title := range []string{
		"Policy loss", "Learning rate", "Clip share", "Reward spread", "Effective sample size", "Groups", "Sampled tokens", "Staleness", "Tokens a second",
	} {
		require.Contains(t, b.text("#main"), title)
	}
	b.until(`[...document.querySelectorAll('.chart h2')].find((e) => e.innerText.startsWith('Where a step')).parentNode.innerText.includes('other ')`)
	b.until(`document.querySelector('.chart.large text:last-of-type') !== null && document.querySelector('.chart.large svg').textContent.includes('step')`)
	b.eval(`(() => { const s = document.querySelector('.look input'); s.value = 0.8; s.dispatchEvent(new Event('input')); })()`, nil)
	b.until(`document.querySelectorAll('.chart.large path.raw').length === 2`)
	b.eval(`[...document.querySelectorAll('.look button')].find((e) => e.innerText === 'wall clock').click()`, nil)
	b.until(`document.querySelector('.chart.large svg').textContent.includes('time')`)
	b.eval(`[...document.querySelectorAll('.look button')].find((e) => e.innerText === 'steps').click()`, nil)
	b.eval(`(() => { const s = document.querySelector('.look input'); s.value = 0; s.dispatchEvent(new Event('input')); })()`, nil)
	b.eval(`(() => {
		const svg = document.querySelector('.chart.large svg');
		const r = svg.getBoundingClientRect();
		const fire = (type, share) => svg.dispatchEvent(new PointerEvent(type, {pointerType: 'mouse', clientX: r.left + share * r.width, clientY: r.top + 40}));
		fire('pointerdown', 0.5); fire('pointermove', 0.7); fire('pointerup', 0.99);
	})()`, nil)
	b.until(`!document.querySelector('#whole').hidden`)
	b.click("#whole")
	b.until(`document.querySelector('#whole').hidden`)
	b.eval(`document.querySelector('details').open = true`, nil)
	require.Contains(t, b.text("details"), "trainer.group_size")
	b.eval(`document.querySelector('details').open = false`, nil)
	require.Contains(t, b.text(".verdict"), fmt.Sprintf("step %d / %d", steps, steps))
}

// fitsATelephone looks at each page of a run on a telephone: none is wider than it.
func fitsATelephone(t *testing.T, b *browser) {
	t.Helper()
	b.size(390, 780)
	for word, there := range map[string]string{
		"overview":                  `document.querySelectorAll('.chart path.line').length > 8`,
		"accounting":                `document.querySelector('#fall') !== null`,
		"trajectories":              `document.querySelectorAll('.list a.row').length > 3`,
		"trajectories?rows=samples": `document.querySelectorAll('.list a.row.sample').length > 3`,
		"lanes":                     `document.querySelectorAll('.ages .stacked i').length === 4`,
		"bias":                      `document.querySelectorAll('.fall').length === 4`,
		"compare":                   `document.querySelectorAll('.chart path.line').length > 4`,
		"log":                       `document.querySelector('.log td') !== null`,
	} {
		b.eval(`location.hash = '#/demo/`+word+`'`, nil)
		b.until(there)
		var wide string
		b.eval(`document.documentElement.scrollWidth > innerWidth ? [...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest('.wide, .side, code')).map((e) => e.tagName + '.' + e.className).join(' ') || 'wide' : ''`, &wide)
		require.Empty(t, wide, "%s is wider than a telephone", word)
	}
}

// answered asks a question, "" for one of the task, and waits for the answer of the n-th episode on the page.
func answered(t *testing.T, b *browser, question string, n int) {
	t.Helper()
	b.eval(`document.querySelector('#chat-question').value = `+quoteJS(question), nil)
	b.click("#chat-send")
	b.until(`document.querySelectorAll('.episode').length === ` + itoa(n) + ` && document.querySelector('#chat-send').disabled === false`)
	require.Regexp(t, `(?s)prompt.*policy.*(answer|no answer: stopped by).*versions? \d+.*, \d+ tokens sampled`, b.text(".episode"))
}

// trainedIn are the trajectories that a step trained on.
func trainedIn(t *testing.T, b *browser, step int) []string {
	t.Helper()
	var ids []string
	b.eval(`fetch('/api/runs/demo/trajectories?fate=trained&step=`+itoa(step)+`').then((r) => r.json()).then((d) => d.rows.map((r) => r.id))`, &ids)
	require.NotEmpty(t, ids)
	return ids[:min(len(ids), 8)]
}

// shellWords are the words of a command line, as the shell has them.
func shellWords(t *testing.T, line string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\0' `+line).Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

// count is what the accounting shows beside a label.
func count(t *testing.T, b *browser, label string) int {
	t.Helper()
	var n int
	b.eval(`(() => { const name = [...document.querySelectorAll('#fall .name')].find((e) => e.textContent === `+quoteJS(label)+`); return parseInt(name.nextSibling.nextSibling.firstChild.data.replaceAll(',', '')); })()`, &n)
	return n
}

// picture writes what the page shows, where pictures are asked for.
func picture(t *testing.T, b *browser, name string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	data := b.picture()
	require.Less(t, len(data), 200<<10, "%s is too large for the documentation", name)
	require.NoError(t, os.WriteFile(filepath.Join(*pictures, name+".png"), data, 0o644))
}

// livePage starts a command that serves a page and goes on, and returns the page's address. The command is interrupted when the test
// ends.
func livePage(t *testing.T, args ...string) string {
	t.Helper()
	cmd := run(t, args...)
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		t.Log("interrupted:", <-ended)
	})
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/#token=\S+`)
	var page string
	require.Eventually(t, func() bool {
		page = address.FindString(out.String())
		return page != ""
	}, 2*time.Minute, 50*time.Millisecond, "%s", &out)
	return page
}

// A live run serves its own page, and the page follows the run.
func TestThePageFollowsALiveRun(t *testing.T) {
	fulltest.Need(t, "a run and a browser: the second pass of CI has them")
	b := startBrowser(t)
	dir := t.TempDir()
	page := livePage(t, append([]string{"up", "--run.dir", dir, "--trainer.steps", "100000", "--view.listen", "127.0.0.1:0"}, small...)...)
	b.open(page)
	b.until(`document.querySelector('.badge.running') !== null && document.querySelectorAll('.chart path.line').length > 4`)
	step := `parseInt(document.querySelector('.progress').title.split(' ')[1])`
	var first int
	b.eval(step, &first)
	b.until(step + ` > ` + itoa(first)) // without a click

	b.eval(`location.hash = '#/demo/streams'`, nil)
	b.until(`document.querySelector('#act-pause') !== null && document.querySelectorAll('td').length > 40`)
	picture(t, b, "view-streams")
	b.click("#act-pause")
	b.until(`document.querySelector('#act-pause') !== null && document.querySelector('#act-pause').textContent === 'resume'`)
	b.until(`document.querySelector('#main').innerText.includes('paused: true, before false')`)
	b.until(`document.querySelector('#state').textContent === 'paused'`)
	b.click("#act-pause")
	b.until(`document.querySelector('#act-pause') !== null && document.querySelector('#act-pause').textContent === 'pause'`)
	b.eval(`document.querySelector('#act-eta').value = 7`, nil)
	b.click("#act-bounds")
	b.until(`document.querySelector('#main').innerText.includes('eta: 7, before 4')`)
	b.eval(`document.querySelector('#act-task').selectedIndex = 1, document.querySelector('#act-max_turns').value = 3, document.querySelector('#act-timeout').value = '90s'`, nil)
	b.click("#act-limits")
	b.until(`document.querySelector('#limits').textContent.includes('library max_turns 3') && document.querySelector('#limits').textContent.includes('library timeout 1m30s')`)
	b.until(`document.querySelector('#main').innerText.includes('library.max_turns: 3, before configured')`)
	b.click("#act-configured")
	b.until(`document.querySelector('#limits').textContent.includes('those of the configuration')`)

	// Its engines are asked, and a checkpoint that it has kept; no step and no stream of the run knows of it.
	b.eval(`location.hash = '#/demo/chat?version=engines'`, nil)
	b.until(`document.querySelectorAll('#chat-version option').length > 1`)
	answered(t, b, "what is the number of sweden ?", 1)
	b.eval(`document.querySelector('#chat-version').value = 'newest'`, nil)
	answered(t, b, "", 2)
	b.eval(`location.hash = '#/demo/overview'`, nil)
	b.until(`document.querySelector('.progress') !== null`)
	b.eval(step, &first)
	b.until(step + ` > ` + itoa(first)) // the run goes on
	record, err := os.ReadFile(filepath.Join(dir, "demo", "checkpoints", checkpoint.RecordFile))
	require.NoError(t, err)
	require.Contains(t, string(record), "g000000-a0")
	require.NotContains(t, string(record), "chat-")
	require.Empty(t, b.complaints())
}
