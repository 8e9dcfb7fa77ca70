// Package runfolder reads a run: its folder, and its broker where one answers. The command line, the page and the audit read a run through
// this package alone, so that they have one vocabulary: a [Fate] is what became of a trajectory, and a [Status] is how the run stands.
//
//	folder := runfolder.Open(runfolder.Run{Name: "demo", Dir: "runs/demo"})
//	defer folder.Close()
//	if err := folder.Refresh(); err != nil {
//		return err
//	}
//	trajectory, err := folder.Trajectory(ctx, "g000012-a0-3")
//
// A folder holds the record of steps ([Steps]), the numbers of each step ([Metrics]), the archive of trajectories ([Archive]), the batches
// of the newest steps and the configuration. The first three are followed as their files grow: a Refresh reads what was written since the
// Refresh before. A Folder is safe for concurrent use.
package runfolder
