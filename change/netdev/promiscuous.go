package netdev

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// kindPromiscuous makes a device of the host take all frames, whatever their addresses and tags. The target
// is the device; a value is "" or Present. It is the flag that `ip link set promisc` sets. The kernel counts
// requests of packet sockets separately and does not show them in that flag (dev_get_flags, net/core/dev.c).
const kindPromiscuous = "promiscuous"

// PromiscuousStep returns the step that makes a device take all frames.
func PromiscuousStep(device string) journal.Step {
	return journal.Step{Kind: kindPromiscuous, Target: device, After: Present}
}

type promiscuous struct{}

func (promiscuous) Check(s journal.Step) error {
	return errors.Join(CheckDevice(s.Target), checkPresent(s))
}

func (promiscuous) Read(_ context.Context, s journal.Step) (string, error) {
	h, l, err := Find("", s.Target)
	if l == nil || err != nil {
		return "", err
	}
	h.Close()
	if l.Attrs().RawFlags&unix.IFF_PROMISC == 0 {
		return "", nil
	}
	return Present, nil
}

func (promiscuous) Write(_ context.Context, s journal.Step, value string) error {
	h, l, err := existing(s.Target)
	if err != nil {
		return err
	}
	defer h.Close()
	if value == "" {
		return h.SetPromiscOff(l)
	}
	return h.SetPromiscOn(l)
}

// Name says which setting the step changes.
func (promiscuous) Name(s journal.Step) string { return "all frames to " + s.Target }

// Shell returns an ip-link(8) command.
func (promiscuous) Shell(s journal.Step) string {
	return fmt.Sprintf("ip link set dev %s promisc %s", s.Target,
		map[bool]string{true: "off", false: "on"}[s.After == ""])
}
