package netdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// longestLearning is what a port of a bridge with the spanning tree protocol takes at most until it forwards:
// it listens and learns for the bridge's forward_delay each, 30 s at most (IEEE 802.1D, table 8-3).
const longestLearning = 65 * time.Second

// forwards says whether a port of a bridge carries frames (BR_STATE_FORWARDING, linux/if_bridge.h).
func forwards(port string) bool {
	state, err := os.ReadFile("/sys/class/net/" + port + "/brport/state")
	return errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(string(state)) == "3"
}

// waitForwarding waits until a bridge lets its port carry frames.
func waitForwarding(ctx context.Context, port, bridge string) error {
	ctx, cancel := context.WithTimeout(ctx, longestLearning)
	defer cancel()
	for !forwards(port) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %s does not let it forward frames: expected a bridge whose spanning tree does "+
				"(bridge link show): %w", port, bridge, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
