// Package turns interleaves several endless orders, each with its share.
package turns

// Turn is a place of a period.
type Turn struct {
	// Of is the index of the weight whose turn it is, Before how many places of the period before this one are its too.
	Of     int
	Before uint64
}

// Arrange gives each place of a period to one of the weights, which are at least 1: of the first n places a weight w among W has n
// w / W to less than one place, and of any run of places to less than two. each is how many places of a period are a weight's: its
// k-th turn in the p-th period is its p*each+k-th of all.
//
// The k-th place of a weight w may come from place floor((k-1)W/w) on and is due before place ceil(kW/w): as the shares add up to 1
// there is an order that keeps all these bounds, and the one by the earliest due place is such an order (Horn, 1974; Baruah et al.,
// Proportionate Progress, 1996).
func Arrange(weights []int) (period []Turn, each []uint64) {
	divisor := 0
	for _, w := range weights {
		divisor = gcd(divisor, w)
	}
	whole := uint64(0)
	each = make([]uint64, len(weights))
	for i, w := range weights {
		each[i] = uint64(w / divisor)
		whole += each[i]
	}
	came := make([]uint64, len(weights))
	period = make([]Turn, whole)
	for place := range period {
		next, nextDue := -1, uint64(0)
		for i, w := range each {
			from, due := came[i]*whole/w, ((came[i]+1)*whole+w-1)/w
			if from <= uint64(place) && came[i] < w && (next < 0 || due < nextDue) {
				next, nextDue = i, due
			}
		}
		period[place] = Turn{next, came[next]}
		came[next]++
	}
	return period, each
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
