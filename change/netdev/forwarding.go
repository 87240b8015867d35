package netdev

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"
)

// The states of a port of a bridge (linux/if_bridge.h).
const (
	listening  = "1"
	learning   = "2"
	forwarding = "3"
	blocking   = "4"
)

// longestLearning is longer than a bridge port with the spanning tree protocol takes until it forwards: it
// listens and then learns for the bridge's forward_delay each, 30 s at most (IEEE 802.1D, table 8-3).
const longestLearning = 65 * time.Second

// longestDisabled is longer than the kernel takes to tell a bridge that a port has a carrier: a second
// (net/core/link_watch.c).
const longestDisabled = 2 * time.Second

// portState returns the state of a bridge port; "" for a device that is none.
func portState(port string) string { return attribute(port, "brport/state") }

func attribute(device, name string) string {
	text, _ := os.ReadFile("/sys/class/net/" + device + "/" + name) // empty if the device is gone
	return strings.TrimSpace(string(text))
}

// forwards reports whether a port forwards frames.
func forwards(port string) bool {
	state := portState(port)
	return state == "" || state == forwarding
}

func isDown(bridge string) bool {
	d, err := net.InterfaceByName(bridge)
	return err == nil && d.Flags&net.FlagUp == 0
}

// waitForwarding waits until a bridge port forwards frames, as long as the port is still on the way there.
func waitForwarding(ctx context.Context, port, bridge string) error {
	pause := 100 * time.Microsecond // the kernel tells the bridge of a carrier at once, but by a work item
	for begun := time.Now(); !forwards(port); pause = min(2*pause, 5*time.Millisecond) {
		if isDown(bridge) { // then all its ports are disabled
			return fmt.Errorf("%s is down: ip link set %[1]s up", bridge)
		}
		longest := longestDisabled
		switch state := portState(port); {
		case state == listening, state == learning,
			state == blocking && attribute(bridge, "bridge/stp_state") == "2": // a daemon's: it uses no other states
			longest = longestLearning
		}
		if time.Since(begun) >= longest {
			return fmt.Errorf("%s does not let it forward frames (bridge link show): expected that it has a carrier, "+
				"and no loop behind it", bridge)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
	return nil
}
