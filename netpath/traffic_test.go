package netpath_test

import (
	"testing"

	"isolane.dev/isolane/netpath"
)

// What became less was counted anew, also where the device has carried more than the one before it.
func TestTrafficSince(t *testing.T) {
	type traffic = netpath.Traffic
	before := traffic{Received: 100, Sent: 100, Dropped: 5, Refused: 5}
	for _, c := range []struct{ now, want traffic }{
		{traffic{110, 120, 7, 9}, traffic{10, 20, 2, 4}},
		{traffic{10, 200, 7, 9}, traffic{10, 200, 7, 9}},
		{traffic{110, 120, 0, 1}, traffic{10, 20, 0, 1}},
	} {
		if got := c.now.Since(before); got != c.want {
			t.Errorf("%+v since %+v: %+v, want %+v", c.now, before, got, c.want)
		}
	}
}
