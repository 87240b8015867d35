package plan

import (
	"cmp"
	"fmt"
	"strings"
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

// costField is one field, where it is read and changed, and its name for a person.
type costField struct {
	at   *int
	name string
}

// fields are those of a cost, in their order.
func (c *Cost) fields() [11]costField {
	return [...]costField{
		{&c.BrokenWishes, "weight of broken wishes"},
		{&c.NUMACrossings, "NUMA crossings"},
		{&c.L3Crossings, "L3 crossings"},
		{&c.UnpreparedCPUs, "CPUs that boot did not prepare"},
		{&c.SharedCores, "shared cores"},
		{&c.MemoryDistance, "memory distance"},
		{&c.DeviceDistance, "device distance"},
		{&c.MixedKinds, "lanes of mixed kinds"},
		{&c.EfficiencyCPUs, "CPUs on efficiency cores"},
		{&c.LanesMoved, "lanes moved"},
		{&c.BlockLost, "CPUs off the largest free block"},
	}
}

// Compare orders costs, the least first.
func (c Cost) Compare(d Cost) int {
	return cmp.Or(cmp.Compare(c.BrokenWishes, d.BrokenWishes), cmp.Compare(c.NUMACrossings, d.NUMACrossings),
		cmp.Compare(c.L3Crossings, d.L3Crossings), cmp.Compare(c.UnpreparedCPUs, d.UnpreparedCPUs),
		cmp.Compare(c.SharedCores, d.SharedCores), cmp.Compare(c.MemoryDistance, d.MemoryDistance),
		cmp.Compare(c.DeviceDistance, d.DeviceDistance), cmp.Compare(c.MixedKinds, d.MixedKinds),
		cmp.Compare(c.EfficiencyCPUs, d.EfficiencyCPUs), cmp.Compare(c.LanesMoved, d.LanesMoved),
		cmp.Compare(c.BlockLost, d.BlockLost))
}

// String lists what is not zero, in words.
func (c Cost) String() string {
	var parts []string
	for _, f := range c.fields() {
		if *f.at != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", *f.at, f.name))
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
	d := c.minus(bound)
	for _, f := range d.fields() {
		if *f.at != 0 {
			return fmt.Sprintf("at most %d %s could be saved", *f.at, f.name)
		}
	}
	return "nothing could be saved"
}

func (c Cost) plus(d Cost) Cost { return c.add(d, 1) }

func (c Cost) minus(d Cost) Cost { return c.add(d, -1) }

func (c Cost) add(d Cost, times int) Cost {
	c.BrokenWishes += times * d.BrokenWishes
	c.NUMACrossings += times * d.NUMACrossings
	c.L3Crossings += times * d.L3Crossings
	c.UnpreparedCPUs += times * d.UnpreparedCPUs
	c.SharedCores += times * d.SharedCores
	c.MemoryDistance += times * d.MemoryDistance
	c.DeviceDistance += times * d.DeviceDistance
	c.MixedKinds += times * d.MixedKinds
	c.EfficiencyCPUs += times * d.EfficiencyCPUs
	c.LanesMoved += times * d.LanesMoved
	c.BlockLost += times * d.BlockLost
	return c
}

// withoutMoves is a cost but for its last two fields, which say how lanes got to where they are and what is
// left beside them.
func (c Cost) withoutMoves() Cost {
	c.LanesMoved, c.BlockLost = 0, 0
	return c
}
