package frames

import "testing"

// The counts of both ends tell where frames were lost, and how many were lost without a trace.
func TestBalance(t *testing.T) {
	// of 100 frames the generator got 90 back; unnamed counts are 0
	for name, c := range map[string]struct {
		there   counts
		own     ownDrops
		unknown bool
		doubled uint64 // that the generator saw
		said    string
		unnamed uint64
		twice   uint64
	}{
		"before the forwarder": {there: counts{Took: 90, Sent: 90, NoRoom: 10}, said: "10 on the way there (10 found no room at the forwarder's socket)"},
		"nobody says where on the way there": {there: counts{Took: 90, Sent: 90, NoRoom: 7, Full: 3}, own: ownDrops{in: 5, noRoom: 5},
			said: "10 on the way there (7 found no room at the forwarder's socket, of 3 nobody says where)", unnamed: 3},
		"by two ends of a pair, and others": {there: counts{Took: 90, Sent: 90, DeviceIn: 12}, own: ownDrops{out: 11},
			said: "10 on the way there (at most 10 dropped by a device on the way there)"},
		"in it": {there: counts{Took: 100, Sent: 90, Refused: 4, Full: 6}, said: "10 in the forwarder (4 could not be forwarded, 6 found its ring full)"},
		"on the way back": {there: counts{Took: 100, Sent: 100, DeviceOut: 1, NoRoom: 50}, own: ownDrops{noRoom: 2},
			said:    "10 on the way back (2 found no room at the generator's socket, at most 1 dropped by a device on the way back, of 7 nobody says where)",
			unnamed: 7},
		"in all": {there: counts{Took: 99, Sent: 97, NoRoom: 1, Full: 2}, own: ownDrops{noRoom: 7},
			said: "1 on the way there (1 found no room at the forwarder's socket), 2 in the forwarder (2 found its ring full), " +
				"7 on the way back (7 found no room at the generator's socket)"},
		"one that came twice hides none": {there: counts{Took: 91, Sent: 91, Doubled: 1}, doubled: 1, unnamed: 10, twice: 1,
			said: "10 on the way there (of 10 nobody says where)"},
		"one of a doubled frame is lost": {there: counts{Took: 91, Sent: 90, Doubled: 1, Full: 1, NoRoom: 10}, twice: 1,
			said: "10 on the way there (10 found no room at the forwarder's socket)"},
		"a forwarder that does not count": {own: ownDrops{noRoom: 3, in: 1, out: 2}, unknown: true, doubled: 2, unnamed: 4, twice: 2,
			said: "3 found no room at the generator's socket, at most 1 dropped by a device on the way back, " +
				"at most 2 dropped by a device on the way there, of 4 nobody says where"},
	} {
		g := &generator{tally: tally{sent: 100, came: 90, doubled: c.doubled}}
		b := g.balance(reply{known: true}, reply{known: !c.unknown, counts: c.there, own: c.own})
		if got := b.String(); got != c.said || b.unnamed() != c.unnamed || b.doubled != c.twice {
			t.Errorf("%s: %s; %d unnamed, %d twice", name, got, b.unnamed(), b.doubled)
		}
	}
}
