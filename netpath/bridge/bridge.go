// Package bridge is the path that most hosts use: veth, Linux bridge, veth.
package bridge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// Path is the path "bridge", or with GRO "bridge-gro".
type Path struct {
	// GRO joins the frames of lanes before they enter the bridge, as the driver of a network card joins those of
	// the uplink. Between containers hosts usually leave it off, as veth does.
	GRO bool
}

// Name returns "bridge" or "bridge-gro".
func (p Path) Name() string {
	if p.GRO {
		return "bridge-gro"
	}
	return "bridge"
}

// About describes the path.
func (p Path) About() string {
	if p.GRO {
		return "the same with generic receive offload on the wire, as network cards have it, and on the host's " +
			"end of the lane's device"
	}
	return "uplink, Linux bridge, veth: what most hosts use"
}

// WireGRO reports whether the wire has GRO.
func (p Path) WireGRO() bool { return p.GRO }

// Policed marks that lanes are limited to their rate.
func (Path) Policed() {}

// Declared says what of a declaration is impossible.
func (Path) Declared(n lane.Network) error { return netpath.AnySource(n) }

// Possible says why a lane cannot have the path on this host as it is. A device that is no bridge becomes a
// port of one, and its own addresses would no longer work.
func (Path) Possible(l netpath.Lane) error {
	if err := netpath.PossibleQueues(l); err != nil || l.Uplink == "" {
		return err
	}
	u, err := l.CheckedUplink()
	if err != nil || u.Bridge {
		return err
	}
	err = u.CheckPort(l.Network, u.OwnBridge(), ", a bridge that has it as a port, path macvlan")
	return cmp.Or(err, l.CheckUnshared())
}

// Steps returns what makes the path of these lanes: a bridge for each uplink, with the uplink and the lanes
// as its ports. If a device is a bridge itself, the lanes become further ports of it.
func (p Path) Steps(lanes []netpath.Lane) ([]journal.Step, error) {
	var steps []journal.Step
	var made []string
	uplinks := map[string]netpath.Uplink{}
	for _, l := range lanes {
		master, inside := netpath.Bridge(l.Uplink), l.Inside()
		if l.Uplink != "" {
			u, known := uplinks[l.Uplink]
			if !known {
				var err error
				u, err = l.FindUplink()
				// A missing device is reported as drift, and routes may change while they are read.
				if err != nil && !errors.As(err, &netlink.LinkNotFoundError{}) &&
					!errors.Is(err, netlink.ErrDumpInterrupted) {
					return nil, fmt.Errorf("lane %s: %w", l.Name, err)
				}
				uplinks[l.Uplink] = u
			}
			if u.Bridge {
				master = l.Uplink
			}
			if inside.MTU = cmp.Or(inside.MTU, u.MTU); inside.MTU == 0 {
				inside.MTU = asItWas(netpath.Port(l.Name))
			}
		}
		if master != l.Uplink && !slices.Contains(made, master) {
			made = append(made, master)
			br, err := netdev.LinkStep(master, netdev.Link{Type: netdev.Bridge})
			if err != nil {
				return nil, err
			}
			steps = append(steps, br)
			if l.Uplink != "" {
				steps = append(steps, journal.Step{Kind: netdev.KindMaster, Target: l.Uplink, After: master})
			}
		}
		more, err := l.Steps(netpath.Port(l.Name), netdev.Link{Type: netdev.Veth, Master: master, GRO: p.GRO,
			Peer: inside})
		if err != nil {
			return nil, err
		}
		steps = append(append(steps, more...), netdev.StationStep(netpath.Port(l.Name), l.MAC))
		if l.Rate > 0 {
			steps = append(steps, netdev.PoliceStep(netpath.Port(l.Name), l.Rate))
		}
		steps = append(steps, l.UnicastSteps()...)
	}
	return steps, nil
}

// asItWas returns the MTU of a lane's device whose uplink is gone; 0 without one. With another MTU the device
// would be made anew, and lanes would not reach each other meanwhile.
func asItWas(port string) int {
	h, l, err := netdev.Find("", port)
	if l == nil || err != nil {
		return 0
	}
	h.Close()
	return l.Attrs().MTU
}
