package plan

import (
	"cmp"
	"fmt"
	"strings"

	"isolane.dev/isolane/quantity"
)

// Cost is what a placement gives up, compared field by field in this order: no saving in a later
// field is worth anything in an earlier one. It adds up over lanes. See docs/placement.md.
type Cost struct {
	BrokenWishes  int `json:"brokenWishes"`  // the weights of the preferred wishes that do not hold
	NUMACrossings int `json:"numaCrossings"` // nodes with CPUs or memory of a lane, less one
	L3Crossings   int `json:"l3Crossings"`   // L3 caches above CPUs of a lane, less one
	// CPUs of a lane outside of the lists that boot made for lanes, for each list
	UnpreparedCPUs int `json:"unpreparedCPUs"`
	SharedCores    int `json:"sharedCores"` // cores of a lane of which somebody else has a thread
	// MemoryDistance is from the farthest node with CPUs to each with memory set aside, less 10 each.
	MemoryDistance int `json:"memoryDistance"`
	// from the farthest node with CPUs to the device or lane to be near to, less 10; and L3 caches other than
	// that lane's
	DeviceDistance int `json:"deviceDistance"`
	MixedKinds     int `json:"mixedKinds"` // lanes with performance and efficiency cores
	// CPUs on other than performance cores, of lanes that did not ask for these
	EfficiencyCPUs int `json:"efficiencyCPUs"`
	LanesMoved     int `json:"lanesMoved"` // moves of lanes, with --repack
	// CPUs by which the largest block of free whole cores on one node shrinks
	BlockLost int `json:"blockLost"`
}

// fields are the numbers of a cost in their order.
func (c *Cost) fields() [11]*int {
	return [...]*int{&c.BrokenWishes, &c.NUMACrossings, &c.L3Crossings, &c.UnpreparedCPUs, &c.SharedCores,
		&c.MemoryDistance, &c.DeviceDistance, &c.MixedKinds, &c.EfficiencyCPUs, &c.LanesMoved, &c.BlockLost}
}

// fieldText is a number of a cost for a person: the noun, and what follows it.
func fieldText(field, n int) string {
	of := [...][2]string{{"", "weight of broken wishes"}, {"NUMA crossing"}, {"L3 crossing"},
		{"CPU", " that boot did not prepare"}, {"shared core"}, {"", "memory distance"}, {"", "device distance"},
		{"lane", " of mixed kinds"}, {"CPU", " on efficiency cores"}, {"lane", " moved"},
		{"CPU", " off the largest free block"}}[field]
	if of[0] == "" {
		return fmt.Sprintf("%d %s", n, of[1])
	}
	return quantity.Count(n, of[0]) + of[1]
}

// Compare orders costs, the least first.
func (c Cost) Compare(d Cost) int {
	others := d.fields()
	for i, n := range c.fields() {
		if *n != *others[i] {
			return cmp.Compare(*n, *others[i])
		}
	}
	return 0
}

// String lists what is not zero, in words.
func (c Cost) String() string {
	var parts []string
	for i, n := range c.fields() {
		if *n != 0 {
			parts = append(parts, fieldText(i, *n))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// Above says in words how far a cost is from a bound, in the first field in which they differ: what comes
// after it counts only where that is equal.
func (c Cost) Above(bound Cost) string {
	d := c.Minus(bound)
	for i, n := range d.fields() {
		if *n != 0 {
			return fmt.Sprintf("at most %s could be saved", fieldText(i, *n))
		}
	}
	return "nothing could be saved"
}

// Plus adds costs, field by field.
func (c Cost) Plus(d Cost) Cost { return c.add(d, 1) }

// Minus is how much more a cost is than another one, field by field.
func (c Cost) Minus(d Cost) Cost { return c.add(d, -1) }

func (c Cost) add(d Cost, times int) Cost {
	more := d.fields()
	for i, n := range c.fields() {
		*n += times * *more[i]
	}
	return c
}
