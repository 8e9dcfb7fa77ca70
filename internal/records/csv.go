package records

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/weir-rl/weir/internal/report"
)

// The columns that every row has.
var fixed = []string{"at", "type", "step", "policy_version"}

// WriteCSV writes a table of all records: a row for each, a column for each key that any of them has, by name. A cell is empty
// where a record lacks the key.
func WriteCSV(w io.Writer, all []report.Record) error {
	keys := map[string]bool{}
	for _, rec := range all {
		for key := range rec.Metrics {
			keys[key] = true
		}
	}
	columns := slices.Sorted(maps.Keys(keys))
	out := csv.NewWriter(w)
	if err := out.Write(append(slices.Clone(fixed), columns...)); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	for _, rec := range all {
		row := []string{
			rec.At.UTC().Format(time.RFC3339Nano), rec.Type, strconv.FormatInt(rec.Step, 10), strconv.FormatInt(rec.PolicyVersion, 10),
		}
		for _, key := range columns {
			cell := ""
			if x, ok := rec.Metrics[key]; ok {
				cell = strconv.FormatFloat(x, 'g', -1, 64)
			}
			row = append(row, cell)
		}
		if err := out.Write(row); err != nil {
			return fmt.Errorf("write CSV: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}
