package plan

import (
	"cmp"
	"fmt"
	"strings"
)

// Cost is what a placement gives up, compared field by field in this order: no saving in a later
// field is worth anything in an earlier one. It adds up over lanes. See docs/placement.md.
type Cost struct {
	BrokenWishes   int `json:"brokenWishes"`   // the weights of the preferred wishes that do not hold
	NUMACrossings  int `json:"numaCrossings"`  // nodes with CPUs or memory of a lane, less one
	L3Crossings    int `json:"l3Crossings"`    // L3 caches above CPUs of a lane, less one
	UnpreparedCPUs int `json:"unpreparedCPUs"` // CPUs of a lane outside of the lists that boot made for lanes, for each list
	SharedCores    int `json:"sharedCores"`    // cores of a lane of which somebody else has a thread
	MemoryDistance int `json:"memoryDistance"` // from the farthest node with CPUs to each with memory set aside, less 10 each
	DeviceDistance int `json:"deviceDistance"` // from the farthest node with CPUs to the device or lane to be near to, less 10; and L3 caches other than that lane's
	MixedKinds     int `json:"mixedKinds"`     // lanes with performance and efficiency cores
	EfficiencyCPUs int `json:"efficiencyCPUs"` // CPUs on other than performance cores, of lanes that did not ask for these
	LanesMoved     int `json:"lanesMoved"`
	BlockLost      int `json:"blockLost"` // CPUs by which the largest block of free whole cores on one node shrinks
}

// fields are where Cost is read and changed field by field, in their order.
func (c *Cost) fields() [11]*int {
	return [...]*int{&c.BrokenWishes, &c.NUMACrossings, &c.L3Crossings, &c.UnpreparedCPUs, &c.SharedCores, &c.MemoryDistance,
		&c.DeviceDistance, &c.MixedKinds, &c.EfficiencyCPUs, &c.LanesMoved, &c.BlockLost}
}

// words are the fields' names for a person: docs/placement.md explains them.
func words() [11]string {
	return [...]string{"weight of broken wishes", "NUMA crossings", "L3 crossings", "CPUs that boot did not prepare", "shared cores",
		"memory distance", "device distance", "lanes of mixed kinds", "CPUs on efficiency cores", "lanes moved", "CPUs off the largest free block"}
}

// Compare orders costs, the least first.
func (c Cost) Compare(d Cost) int {
	a, b := c.fields(), d.fields()
	for i := range a {
		if *a[i] != *b[i] {
			return cmp.Compare(*a[i], *b[i])
		}
	}
	return 0
}

// String lists what is not zero, in words.
func (c Cost) String() string {
	var parts []string
	for i, n := range c.fields() {
		if *n != 0 {
			parts = append(parts, fmt.Sprintf("%d %s", *n, words()[i]))
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
	a, b := c.fields(), bound.fields()
	for i := range a {
		if d := *a[i] - *b[i]; d != 0 {
			return fmt.Sprintf("at most %d %s could be saved", d, words()[i])
		}
	}
	return "nothing could be saved"
}

func (c Cost) plus(d Cost) Cost {
	c.BrokenWishes += d.BrokenWishes
	c.NUMACrossings += d.NUMACrossings
	c.L3Crossings += d.L3Crossings
	c.UnpreparedCPUs += d.UnpreparedCPUs
	c.SharedCores += d.SharedCores
	c.MemoryDistance += d.MemoryDistance
	c.DeviceDistance += d.DeviceDistance
	c.MixedKinds += d.MixedKinds
	c.EfficiencyCPUs += d.EfficiencyCPUs
	c.LanesMoved += d.LanesMoved
	c.BlockLost += d.BlockLost
	return c
}

// withoutMoves is the part of a cost that does not come from how lanes got where they are, nor from what is
// left beside them.
func (c Cost) withoutMoves() Cost {
	c.LanesMoved, c.BlockLost = 0, 0
	return c
}

func (c Cost) minus(d Cost) Cost {
	for i, n := range c.fields() {
		*n -= *d.fields()[i]
	}
	return c
}
