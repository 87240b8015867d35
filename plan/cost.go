package plan

import "cmp"

// Cost is what a placement gives up, compared field by field in this order: no saving in a later
// field is worth anything in an earlier one. It adds up over lanes.
type Cost struct {
	BrokenWishes   int `json:"brokenWishes"`   // the weights of the preferred wishes that do not hold
	NUMACrossings  int `json:"numaCrossings"`  // nodes with CPUs or memory of a lane, less one
	L3Crossings    int `json:"l3Crossings"`    // L3 caches above CPUs of a lane, less one
	SharedCores    int `json:"sharedCores"`    // cores of a lane of which somebody else has a thread
	DeviceDistance int `json:"deviceDistance"` // from the farthest node with CPUs to the device or lane to be near to, less 10; and L3 caches other than that lane's
	MixedKinds     int `json:"mixedKinds"`     // lanes with performance and efficiency cores
	LanesMoved     int `json:"lanesMoved"`
	BlockLost      int `json:"blockLost"` // CPUs by which the largest block of free whole cores on one node shrinks
}

func (c Cost) terms() [8]int {
	return [...]int{c.BrokenWishes, c.NUMACrossings, c.L3Crossings, c.SharedCores, c.DeviceDistance, c.MixedKinds,
		c.LanesMoved, c.BlockLost}
}

// Compare orders costs, the least first.
func (c Cost) Compare(d Cost) int {
	a, b := c.terms(), d.terms()
	for i := range a {
		if n := cmp.Compare(a[i], b[i]); n != 0 {
			return n
		}
	}
	return 0
}

func (c Cost) plus(d Cost) Cost {
	return Cost{c.BrokenWishes + d.BrokenWishes, c.NUMACrossings + d.NUMACrossings, c.L3Crossings + d.L3Crossings,
		c.SharedCores + d.SharedCores, c.DeviceDistance + d.DeviceDistance, c.MixedKinds + d.MixedKinds,
		c.LanesMoved + d.LanesMoved, c.BlockLost + d.BlockLost}
}

// crossings are the first three fields.
func (c Cost) crossings() Cost {
	return Cost{BrokenWishes: c.BrokenWishes, NUMACrossings: c.NUMACrossings, L3Crossings: c.L3Crossings}
}
