// Package runfolder reads a run: its folder, and its broker where it answers. The command line, the page and the audit read a run through
// this package alone, so that they share a vocabulary: a [Fate] is the end of a trajectory, and a [Status] is the state of the run.
//
//	folder := runfolder.Open(runfolder.Run{Name: "demo", Dir: "runs/demo"})
//	defer folder.Close()
//	if err := folder.Refresh(); err != nil {
//		return err
//	}
//	trajectory, err := folder.Trajectory(ctx, "g000012-a0-3")
//
// A folder holds the record of steps ([Steps]), the numbers of each step ([Metrics]), the archive of trajectories ([Archive]), the batches
// of the newest steps and the configuration. The first three are followed as their files grow: a Refresh reads the lines that were written
// since the Refresh before. A Folder is safe for concurrent use.
package runfolder
