package netdev

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

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
	return h.LinkSetMaster(l, m)
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
