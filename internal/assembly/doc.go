// Package assembly puts a run together as it is configured: it opens the tasks, connects to the broker, makes the engines and the samplers,
// and has each role do its work. It knows no command line and no terminal: notes for people go to writers and to a [View], and errors come
// back.
//
//	cfg, _, err := assembly.Resolve(parts, config.Sources{Files: []string{"run.yaml"}})
//	run, err := assembly.New(cfg, assembly.Options{Parts: parts, Log: log, Notes: os.Stderr, Answers: os.Stdout})
//	local, err := run.OpenLocal(ctx, false)
//	defer local.Close()
//	err = local.Train(ctx, view)
package assembly
