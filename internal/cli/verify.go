package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/weir-rl/weir/internal/audit"
	"github.com/weir-rl/weir/internal/report"
	"github.com/weir-rl/weir/streams"
	"github.com/weir-rl/weir/streams/broker"
)

// trustedKeys are the public keys of trainers in the folder of the broker's keys; none where this machine has no such folder.
func (r *runRecord) trustedKeys() ([]string, error) {
	dir := r.Config.Broker.KeysDir
	if dir == "" {
		return nil, nil
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, nil //nolint:nilerr // the keys are on another machine
	}
	ring, err := broker.LoadKeys(dir, r.Config.Run.Name)
	if err != nil {
		return nil, err
	}
	// The key of the admin may do everything that a trainer's may.
	return append(ring.Public[streams.RoleTrainer], ring.Public[streams.RoleAdmin]...), nil
}

// printVerification reads every byte that the run keeps of its past, and prints each file and line that is not as it was written.
func (r *runRecord) printVerification(asJSON bool) error {
	trusted, err := r.trustedKeys()
	if err != nil {
		return err
	}
	found, err := audit.Verify(r.Config.Run.Name, r.record.Dir, trusted)
	if err != nil {
		return err
	}
	if err := found.VerifyMessages(r.folder.KeptMessages(), r.record.Dir); err != nil {
		return err
	}
	if asJSON {
		return errors.Join(r.printJSON(found), found.Err())
	}
	for _, f := range found.Forks {
		fmt.Fprintf(r.out, "forked from run %s at step %d, whose line there has the chain %s\n", report.Plain(f.Parent), f.Step, f.Chain)
	}
	for _, note := range found.Notes {
		fmt.Fprintln(r.out, "note: "+report.Plain(note))
	}
	for _, d := range found.Damage {
		fmt.Fprintln(r.out, "  "+report.Plain(d.String()))
	}
	fmt.Fprintln(r.out, describeSigned(found, len(trusted) > 0))
	fmt.Fprintf(r.out, "read %d lines of the record, %d batches (%d more were removed to make room), %d files of %d checkpoints, "+
		"%d segments of the archive, %d bytes\n", found.Records, found.Batches, found.BatchesGone, found.Files, found.Checkpoints, found.Segments, found.Bytes)
	if found.MessageSegments > 0 {
		fmt.Fprintf(r.out, "read %d messages of the stream in %d segments\n", found.Messages, found.MessageSegments)
	}
	if err := found.Err(); err != nil {
		return err
	}
	fmt.Fprintln(r.out, "verify: every byte is as it was written")
	return nil
}

// describeSigned says which part of the record is signed, and by which keys.
func describeSigned(found *audit.Verified, trusted bool) string {
	if found.Signed.Step < 0 {
		return "the record is not signed: its trainer had no key (broker.keys_dir, broker.seed_file)"
	}
	text := fmt.Sprintf("the record is signed up to step %d by %s", found.Signed.Step, strings.Join(found.Signed.Keys, ", "))
	if trusted {
		return text + ", a key of broker.keys_dir"
	}
	return text + ": compare that with the trainer's .pub file"
}
