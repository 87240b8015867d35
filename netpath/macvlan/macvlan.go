// Package macvlan is the path on which a lane has a device of its own on that of the uplink. Frames are told
// apart by their MAC address, without a bridge. Host and lane cannot reach each other through the uplink.
package macvlan

import (
	"errors"
	"fmt"
	"os"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// Path is the path "macvlan".
type Path struct{}

// Name returns "macvlan".
func (Path) Name() string { return "macvlan" }

// About describes the path.
func (Path) About() string {
	return "a device on the uplink's with a MAC address of its own, without a bridge"
}

// WireGRO returns true: the wire has GRO, as the driver of a network card does.
func (Path) WireGRO() bool { return true }

// Polled marks that frames keep the number of their receive queue.
func (Path) Polled() {}

// Declared says what of a declaration is impossible.
func (Path) Declared(n lane.Network) error {
	if n.Device == "" {
		return errors.New("spec.network.device: path macvlan needs one, the uplink")
	}
	if n.TakeFromHost {
		return errors.New("spec.network.takeFromHost: path macvlan takes nothing from the host: expected none")
	}
	return netpath.AnySource(n)
}

// Possible says why a lane cannot have the path on this host as it is.
func (Path) Possible(l netpath.Lane) error {
	u, err := l.CheckedUplink()
	_, none := os.Stat("/sys/class/net/" + l.Device + "/device")
	if err == nil && l.Queues > 0 && none != nil {
		return fmt.Errorf("spec.network.queues: %s is no card, and path macvlan has none beside its interrupts: "+
			"expected none, or path express", l.Device)
	}
	if err == nil && u.Master != "" && u.Master != u.OwnBridge() {
		err = fmt.Errorf("spec.network.device: %s is a port of %s: expected %[2]s, or path bridge on it", u.Name,
			u.Master)
	}
	if err != nil {
		return err
	}
	return l.CheckUnshared(netpath.IPVlans()...)
}

// Steps return what makes the path of these lanes.
func (Path) Steps(lanes []netpath.Lane) ([]journal.Step, error) {
	var steps []journal.Step
	for _, l := range lanes {
		more, err := l.Steps(netpath.DeviceName("islm-", l.Name),
			netdev.Link{Type: netdev.Macvlan, Parent: l.Uplink, Peer: l.Inside()})
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
	}
	return steps, nil
}
