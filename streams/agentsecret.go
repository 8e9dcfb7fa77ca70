package streams

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

// The producers of a run share a secret, from which the keys of agents outside are derived: an agent that lives on while its producer dies
// asks the next producer with the key that it has. It stands in the bucket RELEASED, which producers alone read and write.

const (
	agentSecretKey   = "agents" // no ticket's: a ticket's key has two tokens
	agentSecretBytes = 32
	// agentSecretRenewed is when the secret is written again, well before the bucket forgets it.
	agentSecretRenewed = releasedAge / 4
)

// AgentSecret returns the secret that the producers of the run share, of 32 bytes; the first caller makes it. The bucket forgets it after a
// day in which nobody called.
func (r *Run) AgentSecret(ctx context.Context) ([]byte, error) {
	for {
		e, err := r.readEntry(ctx, r.names.released, agentSecretKey)
		if err != nil {
			return nil, fmt.Errorf("read the secret of agents outside: %w", err)
		}
		secret := e.value
		if len(secret) == agentSecretBytes && time.Since(e.stored) < agentSecretRenewed {
			return secret, nil
		}
		if len(secret) != agentSecretBytes { // none, or a stranger's value
			secret = make([]byte, agentSecretBytes)
			_, _ = rand.Read(secret) // never fails
		}
		revision, err := r.writeEntry(ctx, r.names.released, agentSecretKey, secret, atRevision(e.revision))
		if err != nil {
			return nil, fmt.Errorf("write the secret of agents outside: %w", err)
		}
		if revision != 0 {
			return secret, nil
		}
	}
}
