package netdev

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// KindMaster makes a device of the host a bridge port. The target is the device; a value is its bridge, or ""
// for none.
const KindMaster = "master"

type master struct{}

func (master) Check(s journal.Step) error {
	err := CheckDevice(s.Target)
	for _, bridge := range []string{s.Before, s.After} {
		if bridge != "" {
			err = errors.Join(err, CheckDevice(bridge))
		}
	}
	return err
}

func (master) Read(_ context.Context, s journal.Step) (string, error) {
	h, l, err := Find("", s.Target)
	if l == nil || err != nil {
		return "", err
	}
	defer h.Close()
	if l.Attrs().MasterIndex == 0 {
		return "", nil
	}
	m, err := h.LinkByIndex(l.Attrs().MasterIndex)
	if err != nil {
		return "", err
	}
	return m.Attrs().Name, nil
}

func (master) Write(_ context.Context, s journal.Step, value string) error {
	h, l, err := existing(s.Target)
	if err != nil {
		return err
	}
	defer h.Close()
	if value == "" {
		return h.LinkSetNoMaster(l)
	}
	m, err := h.LinkByName(value)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return fmt.Errorf("there is no bridge %s", value)
	}
	if err != nil {
		return err
	}
	return taken(h.LinkSetMaster(l, m), s.Target)
}

// taken says what it means that the kernel refuses a device's frames to another one
// (netdev_rx_handler_register).
func taken(err error, device string) error {
	if errors.Is(err, unix.EBUSY) {
		err = fmt.Errorf("%s gives its frames to another device, such as a macvlan in some network namespace: %w",
			device, err)
	}
	return err
}

// Name says which setting the step changes.
func (master) Name(s journal.Step) string { return "master of " + s.Target }

// Shell returns an ip-link(8) command.
func (master) Shell(s journal.Step) string {
	if s.After == "" {
		return "ip link set " + s.Target + " nomaster"
	}
	return "ip link set " + s.Target + " master " + s.After
}
