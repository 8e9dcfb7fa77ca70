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

// signRecord signs the newest line of the record. A signature that cannot be written is reported once, and the run goes on: the next
// signature stands for the lines before it too.
func (t *trainerRole) signRecord() {
	if t.signer == nil {
		return
	}
	err := t.signer.Sign()
	if err != nil && !t.unsigned {
		t.log.Warn("the record of steps is not signed, and the run goes on", "err", err)
	}
	t.unsigned = err != nil
}
