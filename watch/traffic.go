package watch

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/netpath"
)

// Traffic is what a lane's own device has carried.
type Traffic struct {
	Lane string `json:"lane"`
	netpath.Traffic
}

// String formats it for people.
func (t Traffic) String() string {
	return fmt.Sprintf("packets: %d received, %d sent, %d dropped, %d refused", t.Received, t.Sent, t.Dropped,
		t.Refused)
}

// counters are those of lanes' paths, read repeatedly.
type counters struct {
	of          func(ctx context.Context, lane string) (*netpath.Traffic, error)
	lanes       []string
	last, since map[string]netpath.Traffic
}

// follow makes the counters those of the given lanes that have a path. Earlier readings of them still count.
func (c *counters) follow(lanes []enforce.LaneGroup) {
	c.lanes = nil
	for _, l := range lanes {
		if l.Lane.Spec.Network.Path != "" {
			c.lanes = append(c.lanes, l.Lane.Name)
		}
	}
	gone := func(name string, _ netpath.Traffic) bool { return !slices.Contains(c.lanes, name) }
	maps.DeleteFunc(c.last, gone)
	maps.DeleteFunc(c.since, gone)
}

// read returns what the paths have carried since the last reading, and since the first.
func (c *counters) read(ctx context.Context) (window, since []Traffic, err error) {
	window, since = []Traffic{}, []Traffic{}
	for _, name := range c.lanes {
		now, err := c.of(ctx, name)
		if err != nil {
			return nil, nil, fmt.Errorf("lane %s: %w", name, err)
		}
		if now == nil { // its device is gone: that is drift
			now = &netpath.Traffic{}
		}
		if before, known := c.last[name]; known {
			w := now.Since(before)
			c.since[name] = c.since[name].Plus(w)
			window, since = append(window, Traffic{name, w}), append(since, Traffic{name, c.since[name]})
		}
		c.last[name] = *now
	}
	return window, since, nil
}
