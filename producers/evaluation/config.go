package evaluation

import (
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/weir-rl/weir/internal/check"
)

// Config says how a producer works on evaluation tickets.
type Config struct {
	// Name is the producer's.
	Name string
	// Concurrency is how many evaluation tickets run at once, > 0.
	Concurrency int
}

// Validate reports every fault.
func (c Config) Validate() error {
	return check.All(check.Given("name", c.Name, "name the producer"), check.Positive("evaluations", c.Concurrency))
}

// Stream is the part of a run that both sides need; [streams.Run] implements it.
type Stream interface {
	// Name is the run's name, which every ticket carries.
	Name() string
	// EvaluationsSubject is the subject that all producers of the run share.
	EvaluationsSubject() string
	NATS() *nats.Conn
	Log() *slog.Logger
}

const queueGroup = "producers"

// everySubject reaches every producer.
func everySubject(shared string) string { return shared + ".all" }
