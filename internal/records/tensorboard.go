package records

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weir-rl/weir/internal/report"
)

// The fields of TensorBoard's Event, Summary and Summary.Value (tensorboard/compat/proto/event.proto and summary.proto).
const (
	eventWallTime    protowire.Number = 1
	eventStep        protowire.Number = 2
	eventFileVersion protowire.Number = 3
	eventSummary     protowire.Number = 5
	summaryValue     protowire.Number = 1
	valueTag         protowire.Number = 1
	valueSimple      protowire.Number = 2
)

// fileVersion is the text of the first event of a file.
const fileVersion = "brain.Event:2"

// castagnoli is the polynomial of the format's checksums.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EventWriter writes TensorBoard's event file: TFRecords, each an Event with the numbers of a step. Its zero value is of no
// use; see [NewEventWriter].
type EventWriter struct{ w io.Writer }

// NewEventWriter begins an event file: its first event says which version of the format it has.
func NewEventWriter(w io.Writer, at time.Time) (*EventWriter, error) {
	out := &EventWriter{w}
	var event []byte
	event = appendDouble(event, eventWallTime, unixSeconds(at))
	event = protowire.AppendTag(event, eventFileVersion, protowire.BytesType)
	event = protowire.AppendString(event, fileVersion)
	return out, out.writeFramed(event)
}

// Add writes a record of a run: each metric is a scalar under its own key. Its step is the run's step; a score's is the policy
// version that was scored. Numbers are stored in single precision, as TensorBoard's own scalars are.
func (e *EventWriter) Add(rec report.Record) error {
	if len(rec.Metrics) == 0 {
		return nil
	}
	var summary []byte
	for _, key := range slices.Sorted(maps.Keys(rec.Metrics)) {
		var value []byte
		value = protowire.AppendTag(value, valueTag, protowire.BytesType)
		value = protowire.AppendString(value, key)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(rec.Metrics[key])))
		summary = protowire.AppendTag(summary, summaryValue, protowire.BytesType)
		summary = protowire.AppendBytes(summary, value)
	}
	var event []byte
	event = appendDouble(event, eventWallTime, unixSeconds(rec.At))
	event = protowire.AppendTag(event, eventStep, protowire.VarintType)
	event = protowire.AppendVarint(event, uint64(StepOf(rec)))
	event = protowire.AppendTag(event, eventSummary, protowire.BytesType)
	event = protowire.AppendBytes(event, summary)
	return e.writeFramed(event)
}

// StepOf is where a record stands on the axis of steps: a score at the version that it is of, anything else at its step.
func StepOf(rec report.Record) int64 { return max(rec.Step, rec.PolicyVersion, 0) }

// writeFramed frames a message: its length, a checksum of that, the message and a checksum of it.
func (e *EventWriter) writeFramed(message []byte) error {
	frame := binary.LittleEndian.AppendUint64(nil, uint64(len(message)))
	frame = binary.LittleEndian.AppendUint32(frame, maskChecksum(frame))
	frame = append(frame, message...)
	frame = binary.LittleEndian.AppendUint32(frame, maskChecksum(message))
	if _, err := e.w.Write(frame); err != nil {
		return fmt.Errorf("write an event file: %w", err)
	}
	return nil
}

// maskChecksum is TFRecord's checksum: CRC-32C, rotated and moved, so that a checksum of data that holds checksums is no weaker.
func maskChecksum(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

func appendDouble(b []byte, field protowire.Number, x float64) []byte {
	b = protowire.AppendTag(b, field, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, math.Float64bits(x))
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
