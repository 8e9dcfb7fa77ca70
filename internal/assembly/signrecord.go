package assembly

import (
	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/streams"
)

// openSigner makes the signer of a trainer that has a key; without a key nothing is signed.
func (t *trainerRole) openSigner() (err error) {
	connector := Connector{cfg: t.cfg}
	file := connector.seedFile(streams.RoleTrainer)
	if file == "" {
		return nil
	}
	if t.signer, err = audit.NewSigner(t.cfg.Run.Name, t.cfg.Trainer.Checkpoint.Dir, file); err != nil {
		return err
	}
	t.atClose(t.signer.Close)
	return nil
}

// signStage signs the newest line of the record after the stages of a step that write it.
func (t *trainerRole) signStage(stage string) {
	switch {
	case t.signer == nil:
	case stage == "record":
		t.reportSigned(t.signer.Sign())
	case stage == "renew", stage == "complete":
		t.reportSigned(t.signer.SignRewritten())
	}
}

// signAhead signs the line that is about to take the place of the newest.
func (t *trainerRole) signAhead(step int64, before, chain string) {
	if t.signer != nil {
		t.reportSigned(t.signer.SignAhead(step, before, chain))
	}
}

// reportSigned reports a signature that cannot be written once, and the run goes on: the next signature stands for the lines before it too.
func (t *trainerRole) reportSigned(err error) {
	if err != nil && !t.unsigned {
		t.log.Warn("the record of steps is not signed, and the run goes on", "err", err)
	}
	t.unsigned = err != nil
}
