// Package vpp is the path by VPP: the host's end of a lane's device is an interface of a VPP that runs, in a
// bridge domain with those of the other lanes on its uplink and with its tags. It is driven by vppctl. VPP
// keeps nothing when it ends: what is gone then is drift, and the lane's device stays.
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

// WireGRO says that the wire has none: whether VPP takes joined frames of a device is untested.
func (Path) WireGRO() bool { return false }

// Supported says why this host cannot do it, or nil.
func (Path) Supported() error {
	_, _, err := version(context.Background())
	return err
}

// Declared says what of a declaration cannot be: a bridge domain looks at no sender.
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

// Bypasses returns true: most have cards of VPP's own.
func (Path) Bypasses() bool { return true }

// possibleDevice says why VPP cannot have a device of the kernel. Where the kernel has taken the outer tag
// off, VPP puts one of 802.1Q in its place (plugins/af_packet/node.c).
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
	l.Uplink = l.Device // whose frames VPP gets with their tags
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

// onHost reports whether a device is the kernel's. Of those of VPP's own it knows nothing.
func onHost(device string) bool {
	h, found, err := netdev.Find("", device)
	if err != nil || found == nil {
		return false
	}
	h.Close()
	return true
}

// Beside says why a lane cannot be on the uplink of another one: all can, VPP tells tags apart by number and
// protocol.
func (Path) Beside(netpath.Lane, netpath.Lane) error { return nil }

// Steps return what makes the path of these lanes: in a bridge domain for each uplink and tags the frames of
// these, and the lanes, as its ports.
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
			if onHost(l.Device) { // by a packet socket of VPP's, which asks the card for no frames
				uplink = atDevice(l.Device, 0)
				if !made[uplink.Name] { // tags, and groups of IPv6, have no other way past a card's filters
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
		// What VPP encrypts it must not change any more, and it leaves checksums to the device at the end.
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

// firstDomain is the least number of a bridge domain of a lane, above those that people give; VPP takes twice
// as many (L2_BD_ID_MAX).
const firstDomain = 1 << 23

// domain returns the number of a lane's bridge domain.
func domain(l netpath.Lane) int {
	digest := netpath.Digest("vpp", l.Device, strconv.Itoa(l.VLAN.Outer), strconv.Itoa(l.VLAN.Inner))
	n, err := strconv.ParseUint(digest, 16, 64)
	if err != nil {
		panic(err) // never: it is hexadecimal
	}
	return firstDomain | int(n%firstDomain)
}
