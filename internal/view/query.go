package view

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-rl/weir/internal/runfolder"
)

// maxPage bounds the rows of a page.
const maxPage = 500

// parseQuery reads a query and reports every fault of it.
func parseQuery(v url.Values) (runfolder.Query, error) {
	q := runfolder.Query{Fate: v.Get("fate"), Reason: v.Get("reason"), Prefix: v.Get("prefix"), Sort: v.Get("sort"), Step: -1, Limit: 100}
	var faults []error
	number := func(name string, to *int, low, high int) {
		text := v.Get(name)
		if text == "" {
			return
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high {
			faults = append(faults, fmt.Errorf("%s: %q: want a number between %d and %d", name, text, low, high))
			return
		}
		*to = n
	}
	number("offset", &q.Offset, 0, 1<<40)
	number("limit", &q.Limit, 1, maxPage)
	step := -1
	number("step", &step, -1, 1<<31-1)
	q.Step = int64(step)
	if fates := runfolder.FateNames(); q.Fate != "" && !slices.Contains(fates, q.Fate) {
		faults = append(faults, fmt.Errorf("fate: %q: want one of %s", q.Fate, strings.Join(fates, ", ")))
	}
	if sorts := runfolder.Sorts(); q.Sort != "" && !slices.Contains(sorts, q.Sort) {
		faults = append(faults, fmt.Errorf("sort: %q: want one of %s", q.Sort, strings.Join(sorts, ", ")))
	}
	return q, errors.Join(faults...)
}
