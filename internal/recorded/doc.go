// Package recorded is the task whose tickets are the groups that another run recorded in its archive of messages: a run that trains from
// the log alone, without inference. The producer answers each ticket with the recorded trajectory.
//
//	other run    archive of messages: … g000012-a0-0, g000012-a0-1 …   rows of weir rescore
//	Open         reads every message once: which groups there are, and the bounds that they need
//	Arrange      the order: by the recorded cursor and attempt, groups that min_group would drop left out
//	Prompt       a ticket names its recorded trajectories by id and sequence
//	Recall       reads the trajectory that a ticket names, with its new reward
//
// A ticket has all that answers it, so that ledger, audit, a crash and a replay are those of any run.
package recorded
