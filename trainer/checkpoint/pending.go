package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weir-rl/weir/schemas"
)

// errPending is wrapped by the faults of a pending file.
var errPending = errors.New("malformed pending messages")

// encodePending lays out messages in sequence: sequence, 8 bytes; length, 4 bytes, both little-endian; the message in its wire form.
func encodePending(pending []schemas.Delivery) ([]byte, error) {
	var out []byte
	for _, d := range pending {
		var message any = d.Closed
		if d.Trajectory != nil {
			message = d.Trajectory
		}
		data, err := schemas.Marshal(message)
		if err != nil {
			return nil, fmt.Errorf("encode pending message %d: %w", d.Sequence, err)
		}
		out = binary.LittleEndian.AppendUint64(out, d.Sequence)
		out = binary.LittleEndian.AppendUint32(out, uint32(len(data)))
		out = append(out, data...)
	}
	return out, nil
}

func decodePending(data []byte) ([]schemas.Delivery, error) {
	var out []schemas.Delivery
	for len(data) > 0 {
		if len(data) < 12 {
			return nil, fmt.Errorf("%w: %d bytes where a message should begin", errPending, len(data))
		}
		d := schemas.Delivery{Sequence: binary.LittleEndian.Uint64(data)}
		size := binary.LittleEndian.Uint32(data[8:])
		if data = data[12:]; uint64(size) > uint64(len(data)) {
			return nil, fmt.Errorf("%w: message %d has %d bytes, %d are left", errPending, d.Sequence, size, len(data))
		}
		kind, _, err := schemas.Peek(data[:size])
		if err != nil {
			return nil, fmt.Errorf("%w: message %d: %w", errPending, d.Sequence, err)
		}
		switch kind {
		case schemas.KindTrajectory:
			d.Trajectory = new(schemas.Trajectory)
			err = schemas.Unmarshal(data[:size], d.Trajectory)
		case schemas.KindGroupClosed:
			d.Closed = new(schemas.GroupClosed)
			err = schemas.Unmarshal(data[:size], d.Closed)
		default:
			err = fmt.Errorf("a %s does not belong here", kind)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: message %d: %w", errPending, d.Sequence, err)
		}
		out, data = append(out, d), data[size:]
	}
	return out, nil
}
