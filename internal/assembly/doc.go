// Package assembly puts a run together as it is configured: it opens the tasks, connects to the broker, makes the engines and the
// samplers, and has each role do its work. It knows no command line and no terminal: notes for people go to writers and to a [View],
// and errors come back.
//
//	cfg, _, err := assembly.Resolve(parts, config.Sources{Files: []string{"run.yaml"}})
//	run, err := assembly.New(cfg, assembly.Options{Parts: parts, Log: log, Notes: os.Stderr, Answers: os.Stdout})
//	local, err := run.OpenLocal(ctx, false)
//	defer local.Close()
//	err = local.Train(ctx, view)
//
// A [Run] is a process of the run: configuration, log, metrics and health. It has few methods; the work belongs to the types that it
// makes, each with fields of its own:
//
//	Run.Trainer, Producer, Inference, Tools      role.go: one role in this process
//	Run.Broker                                   brokerrole.go: the embedded broker
//	Run.OpenLocal -> LocalRun                    localrun.go: the broker and every role in this process
//	   resumption     may the run of this folder go on so?     samerun.go
//	   Course         the tasks, opened                        opener.go, course.go
//	   need           do the roles fit in memory?              memory.go
//	   Connector      the broker and the run's streams         connect.go, visit.go
//	   trainerRole    trains, and keeps the records            trainerrole.go, recordbook.go
//	      versionScorer   scores versions meanwhile            scoreversions.go
//	   producerRole, inferenceRole, toolsRole, archiveRole     a file each
//	      samplerOpener   engines, servers, folders            engines.go
//	   process        what every role shares                   run.go, presence.go, trace.go, work.go
//	   FinalReport    the test at the end                      finalreport.go
//	Run.Models -> LoadedPolicy, OpenModel        trained.go, openmodel.go: a model without a run
//	Run.Viewer                                   page.go: the page of this run and of others; chatpage.go
//	Run.NewToolBench                             toolsbyhand.go: tools without a run
package assembly
