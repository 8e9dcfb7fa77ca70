package records

// Config says what a run writes of its numbers beside metrics.jsonl.
type Config struct {
	// TensorBoard has the process that trains write TensorBoard's event file in the run's folder, as the numbers come. The run waits
	// for none of it, and goes on where the file cannot be written. Defaults to false.
	TensorBoard bool `koanf:"tensorboard"`
}
