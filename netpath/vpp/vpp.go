// Package vpp is the path through VPP. The host's end of a lane's device is an interface of a running VPP, in
// a bridge domain with the other lanes of the same uplink and tags. The package uses vppctl. VPP keeps
// nothing when it ends: what is gone then is drift, and the lane's device stays.
package vpp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// Path is the path "vpp".
type Path struct{}

// Name returns "vpp".
func (Path) Name() string { return "vpp" }

// About says what it is.
func (Path) About() string { return "uplink, a VPP that runs on this host, veth, by packet sockets" }

// WireGRO returns false: nobody has tested whether VPP accepts joined frames from a device.
func (Path) WireGRO() bool { return false }

// Supported says why this host cannot have the path; nil if it can.
func (Path) Supported() error {
	_, _, err := version(context.Background())
	return err
}

// Declared says what of a declaration is impossible: a bridge domain checks no senders.
func (Path) Declared(n lane.Network) error {
	if n.Queues > 0 {
		return errors.New("spec.network.queues: with path vpp the queues of the uplink are VPP's: expected none")
	}
	return netpath.AnySource(n)
}

// Possible says why a lane cannot have the path on this host as it is.
func (Path) Possible(l netpath.Lane) error {
	ctx := context.Background()
	all, err := (&reader{}).faces(ctx)
	if err == nil {
		err = Path{}.Supported()
	}
	if err != nil {
		return fmt.Errorf("spec.network.path: %w", err)
	}
	if l.Device == "" {
		return nil
	}
	if onHost(l.Device) {
		return possibleDevice(ctx, l, all)
	}
	switch f, is := all[l.Device]; {
	case !is:
		return fmt.Errorf("spec.network.device: %s is neither a network device nor an interface of VPP: %s show "+
			"interface shows these", l.Device, vppctl)
	case !f.up:
		return fmt.Errorf("spec.network.device: %s is down: %s set interface state %[1]s up", l.Device, vppctl)
	case f.has != "" && f.bridge != domain(l) && l.VLAN.Outer == 0:
		return fmt.Errorf("spec.network.device: %s is used in VPP (%s): expected nothing of that, or a "+
			"spec.network.vlan", l.Device, f.has)
	}
	return nil
}

// Bypasses returns true: most hosts give VPP cards of its own.
func (Path) Bypasses() bool { return true }

// possibleDevice says why VPP cannot use a device of the kernel. If the kernel has taken the outer tag off a
// frame, VPP puts one of 802.1Q in its place (plugins/af_packet/node.c).
func possibleDevice(ctx context.Context, l netpath.Lane, all map[string]face) error {
	if l.VLAN.Inner > 0 {
		return fmt.Errorf("spec.network.vlan.inner: VPP takes the outer tag at %s, a device of the kernel, for "+
			"one of 802.1Q: expected one tag, a card that VPP has itself, or path ovs", l.Device)
	}
	own := atDevice(l.Device, 0)
	if _, is := all[own.Name]; is {
		if made, err := own.made(ctx); err != nil || !strings.HasPrefix(made, markPrefix) {
			return errors.Join(err, fmt.Errorf("spec.network.device: VPP has %s already, as %s: expected that",
				l.Device, own.Name))
		}
	}
	l.Uplink = l.Device // VPP gets its frames with their tags
	u, err := l.FindUplink()
	if err == nil {
		err = u.CheckVeth(l.Network)
	}
	switch {
	case err != nil:
		return err
	case u.Master != "" || u.Bridge:
		return fmt.Errorf("spec.network.device: %s is a bridge or a port of one: expected a card", u.Name)
	case len(u.Addresses) > 0:
		return fmt.Errorf("spec.network.device: %s has the address %s of the host, whose frames VPP would get "+
			"too: expected a device without one", u.Name, u.Addresses[0])
	case u.Route != "":
		return fmt.Errorf("spec.network.device: %s carries the host's route %q, whose frames VPP would get too: "+
			"expected a device without one", u.Name, u.Route)
	}
	above, err := u.Above()
	for _, on := range above {
		if len(on.Addresses) > 0 || on.Route != "" {
			return fmt.Errorf("spec.network.device: %s on %s has addresses or routes of the host, and VPP sets %[2]s "+
				"down when it gives it back: expected a device without such on it", on.Name, u.Name)
		}
	}
	return err
}

// onHost reports whether a device is the kernel's. The kernel does not know VPP's own devices.
func onHost(device string) bool {
	h, found, err := netdev.Find("", device)
	if err != nil || found == nil {
		return false
	}
	h.Close()
	return true
}

// Beside accepts every lane on the same uplink: VPP tells tags apart by number and protocol.
func (Path) Beside(netpath.Lane, netpath.Lane) error { return nil }

// Steps returns what makes the path of these lanes: for each uplink and tags a bridge domain with the frames
// of these and the lanes as its ports.
func (Path) Steps(lanes []netpath.Lane) ([]journal.Step, error) {
	var steps []journal.Step
	made := map[string]bool{}
	add := func(p port) {
		data, err := json.Marshal(p)
		if err != nil {
			panic(err) // plain data
		}
		if !made[p.Name] {
			made[p.Name] = true
			steps = append(steps, journal.Step{Kind: kindPort, Target: p.Name, After: string(data)})
		}
	}
	first := map[int]netpath.Lane{}
	for _, l := range lanes {
		id := domain(l)
		o, taken := first[id]
		if taken && (o.Device != l.Device || o.VLAN != l.VLAN) { // else each would see the other's frames
			return nil, fmt.Errorf("lanes %s and %s: their tags and uplinks give the same bridge domain %d: expected "+
				"another tag for one of them", o.Name, l.Name, id)
		}
		first[id] = l
		if l.Device != "" {
			uplink := port{Name: l.Device}
			if onHost(l.Device) { // through a packet socket of VPP's, which does not make the card accept more frames
				uplink = atDevice(l.Device, 0)
				if !made[uplink.Name] { // else the card's filters drop tags and IPv6 groups
					steps = append(steps, netdev.PromiscuousStep(l.Device))
				}
				steps = append(steps, netdev.UnicastStep(l.Device, l.MAC))
			}
			untagged := slices.IndexFunc(lanes,
				func(o netpath.Lane) bool { return o.Device == l.Device && o.VLAN.Outer == 0 })
			if untagged >= 0 {
				uplink.Domain = domain(lanes[untagged])
			}
			if uplink.Device != "" || untagged >= 0 {
				add(uplink)
			}
			if untagged >= 0 {
				add(below(uplink.Name, lane.VLAN{}, 0))
			}
			if l.VLAN.Outer > 0 {
				add(below(uplink.Name, l.VLAN, id))
			}
		}
		inside := l.Inside()
		// VPP must not change what it has encrypted, and leaves checksums to the device at the end.
		inside.Checksums = l.Device != "" && !onHost(l.Device)
		more, err := l.Steps(netpath.Port(l.Name), netdev.Link{Type: netdev.Veth, Peer: inside})
		if err != nil {
			return nil, err
		}
		steps = append(steps, more...)
		add(atDevice(netpath.Port(l.Name), id))
	}
	return steps, nil
}

// firstDomain is the lowest number of a lane's bridge domain, above those that people choose. VPP allows
// twice as many (L2_BD_ID_MAX).
const firstDomain = 1 << 23

// domain returns the number of a lane's bridge domain.
func domain(l netpath.Lane) int {
	digest := netpath.Digest("vpp", l.Device, strconv.Itoa(l.VLAN.Outer), strconv.Itoa(l.VLAN.Inner))
	n, err := strconv.ParseUint(digest, 16, 64)
	if err != nil {
		panic(err) // it is always hexadecimal
	}
	return firstDomain | int(n%firstDomain)
}
