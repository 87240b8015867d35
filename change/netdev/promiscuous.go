package netdev

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// kindPromiscuous has a device of the host take all frames, whatever their addresses and tags: the target is
// the device, the values are "" or Present. It is what `ip link set promisc` sets; what packet sockets ask
// for the kernel counts apart and does not show there (dev_get_flags, net/core/dev.c).
const kindPromiscuous = "promiscuous"

// PromiscuousStep is the step that has a device take all frames.
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

// Name says what is set.
func (promiscuous) Name(s journal.Step) string { return "all frames to " + s.Target }

// Shell is ip-link(8).
func (promiscuous) Shell(s journal.Step) string {
	return fmt.Sprintf("ip link set dev %s promisc %s", s.Target,
		map[bool]string{true: "off", false: "on"}[s.After == ""])
}
