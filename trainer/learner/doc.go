// Package learner makes a policy better by batches of trajectories: the reinforcement learning of a run, without the
// run's streams and checkpoints.
//
// Learn is the page to open. A call trains the policy on a batch, in this order: the outputs of the policy, the critic and the frozen
// reference for the batch before the first update; advantages; minibatches with an optimizer step each. Imitate is the supervised start
// before the first batch. Snapshot, the folders that the engines write (SaveNetwork) and Restore carry everything that the next batch
// depends on, so that a learner that goes on from them gives the same weights bit for bit.
//
//	l, err := learner.New(learner.DefaultConfig(), learner.Deps{Engine: engine})
//	if err != nil {
//		return err
//	}
//	defer l.Close()
//	for {
//		b := …                          // a *batch.Batch: groups of trajectories with their rewards
//		stats, err := l.Learn(ctx, b)   // b.Version counts the steps done before
//		if err != nil {
//			return err
//		}
//		fmt.Println(stats.Metrics())
//	}
//
// The engine has the model; the learner has the algorithm. A packed micro-batch goes to the engine, log-probabilities, entropies and values
// come back, and the loss's gradients with respect to them go down again.
package learner
