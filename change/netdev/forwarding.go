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

// longestLearning is what a port of a bridge with the spanning tree protocol takes at most until it forwards:
// it listens and learns for the bridge's forward_delay each, 30 s at most (IEEE 802.1D, table 8-3).
const longestLearning = 65 * time.Second

// longestDisabled is more than the kernel takes to tell a bridge that a port has a carrier, a second
// (net/core/link_watch.c).
const longestDisabled = 2 * time.Second

// portState is "" of what is no port.
func portState(port string) string { return attribute(port, "brport/state") }

func attribute(device, name string) string {
	text, _ := os.ReadFile("/sys/class/net/" + device + "/" + name) // none of a device that is gone
	return strings.TrimSpace(string(text))
}

// forwards says whether a port carries frames.
func forwards(port string) bool {
	state := portState(port)
	return state == "" || state == forwarding
}

func isDown(bridge string) bool {
	d, err := net.InterfaceByName(bridge)
	return err == nil && d.Flags&net.FlagUp == 0
}

// waitForwarding waits until a bridge lets its port carry frames, as long as it is on its way there.
func waitForwarding(ctx context.Context, port, bridge string) error {
	for begun := time.Now(); !forwards(port); {
		if isDown(bridge) { // all its ports are disabled
			return fmt.Errorf("%s is down: ip link set %[1]s up", bridge)
		}
		longest := longestDisabled
		switch state := portState(port); {
		case state == listening, state == learning,
			state == blocking && attribute(bridge, "bridge/stp_state") == "2": // of a daemon, which knows no other
			longest = longestLearning
		}
		if time.Since(begun) >= longest {
			return fmt.Errorf("%s does not let it forward frames (bridge link show): expected that it has a carrier, "+
				"and no loop behind it", bridge)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
