package schemas_test

import (
	"fmt"
	"time"

	"github.com/weir-rl/weir/schemas"
)

func Example() {
	sent := &schemas.GroupClosed{
		Run: "demo", Group: "g7-0", Cancelled: []int{3}, Delivered: 7, Why: "too stale", Producer: "producer-0",
		ClosedAt: time.Unix(1_790_000_000, 0),
	}
	data, err := schemas.Marshal(sent)
	if err != nil {
		fmt.Println(err)
		return
	}

	kind, version, err := schemas.Peek(data)
	fmt.Println(kind, version, err)
	var got schemas.GroupClosed
	fmt.Println(schemas.Unmarshal(data, &got), got.Validate(), got.Cancelled, got.Why)
	fmt.Println(schemas.Unmarshal(data[:44], &got))

	got.Group = ""
	fmt.Println(got.Validate())
	// Output:
	// group_closed 3 <nil>
	// <nil> <nil> [3] too stale
	// malformed message: group_closed.group: cut short
	// invalid message: group_closed.group: must not be empty
}
