package plan

import (
	"cmp"
	"fmt"
	"strings"

	"isolane.dev/isolane/quantity"
)

// Cost is what a placement gives up. Costs are compared field by field in this order: no saving in a later
// field makes up for anything in an earlier one. Costs of lanes add up. See docs/placement.md.
type Cost struct {
	BrokenWishes  int `json:"brokenWishes"`  // total weight of the preferred wishes that do not hold
	NUMACrossings int `json:"numaCrossings"` // nodes with CPUs or memory of a lane, minus one
	L3Crossings   int `json:"l3Crossings"`   // L3 caches above CPUs of a lane, minus one
	// CPUs of a lane that are missing in a list that boot made for lanes, counted for each list
	UnpreparedCPUs int `json:"unpreparedCPUs"`
	SharedCores    int `json:"sharedCores"` // a lane's cores of which somebody else has a thread
	// MemoryDistance sums, over nodes with memory set aside, the distance from the farthest node with CPUs,
	// minus 10 each.
	MemoryDistance int `json:"memoryDistance"`
	// DeviceDistance is from the farthest node with CPUs to the device or lane to be near to, minus 10; plus L3s
	// other than that lane's
	DeviceDistance int `json:"deviceDistance"`
	MixedKinds     int `json:"mixedKinds"` // lanes with both performance and efficiency cores
	// CPUs that are not on performance cores, of lanes that did not ask for that
	EfficiencyCPUs int `json:"efficiencyCPUs"`
	LanesMoved     int `json:"lanesMoved"` // moves of lanes, with --repack
	// CPUs by which the largest block of free whole cores on one node shrinks
	BlockLost int `json:"blockLost"`
}

// fields returns the numbers of a cost in their order.
func (c *Cost) fields() [11]*int {
	return [...]*int{&c.BrokenWishes, &c.NUMACrossings, &c.L3Crossings, &c.UnpreparedCPUs, &c.SharedCores,
		&c.MemoryDistance, &c.DeviceDistance, &c.MixedKinds, &c.EfficiencyCPUs, &c.LanesMoved, &c.BlockLost}
}

// fieldText describes a number of a cost for people: the noun, and what follows it.
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

// String lists in words what is not zero.
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

// Above says in words how far a cost is above a bound. It names only the first field that differs, because
// later fields count only if that one is equal.
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

// Minus returns by how much a cost exceeds another one, field by field.
func (c Cost) Minus(d Cost) Cost { return c.add(d, -1) }

func (c Cost) add(d Cost, times int) Cost {
	more := d.fields()
	for i, n := range c.fields() {
		*n += times * *more[i]
	}
	return c
}
