// Package view is the web page of a run: its tickets and their fates, any trajectory down to its tokens, the state
// of the run and its bottleneck, and the few things that an operator changes while it runs. It reads the run's folder, and
// its broker where that is up, so that it works on a run that goes on, on a finished run, on a run that was killed, and on
// several at once.
//
//	server := view.NewServer(view.DefaultConfig(), view.Deps{Runs: []view.Run{{Name: "demo", Dir: "runs/demo"}}})
//	err := server.Run(ctx)
//
// The page is embedded. It loads nothing from elsewhere, and a strict Content-Security-Policy holds it to that. Text of a
// trajectory is a stranger's: the API gives it as JSON, and the page shows it through textContent alone.
package view
