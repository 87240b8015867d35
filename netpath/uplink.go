package netpath

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
)

// Uplink is a network device of the host.
type Uplink struct {
	Name      string
	AltNames  []string // other names of it
	Bridge    bool     // lanes can be ports of it
	Master    string   // the device that it is a port of; "" for none
	Up        bool
	MTU       int
	Ethernet  bool
	Addresses []netip.Prefix // without link-local ones
	Route     string         // a route of the host through it, preferably the default route; "" if there is none
	Default   bool           // the host's default route goes through it
	only      string         // "IPv4" or "IPv6" if no other device has a default route of that family
}

// FindUplink reads the device that brings frames to the lane from outside. For a lane with tags that is the
// device below them, without what only its untagged frames depend on: the kernel takes tagged ones out first.
func (l Lane) FindUplink() (Uplink, error) {
	u, err := findUplink(l.Device)
	if l.Uplink != l.Device {
		u = Uplink{Name: u.Name, AltNames: u.AltNames, Up: u.Up, MTU: u.MTU, Ethernet: u.Ethernet}
	}
	return u, err
}

func findUplink(name string) (Uplink, error) {
	u := Uplink{Name: name}
	h, err := netdev.Open("")
	if err != nil {
		return u, err
	}
	defer h.Close()
	l, err := h.LinkByName(name)
	if err != nil {
		return u, fmt.Errorf("spec.network.device: %s: %w: ip link shows those that there are", name, err)
	}
	a := l.Attrs()
	u.AltNames, u.Bridge, u.Ethernet = a.AltNames, l.Type() == netdev.Bridge, a.EncapType == "ether"
	u.MTU, u.Up = a.MTU, a.Flags&net.FlagUp != 0
	if a.MasterIndex != 0 {
		m, merr := h.LinkByIndex(a.MasterIndex)
		if merr != nil {
			return u, merr
		}
		u.Master = m.Attrs().Name
	}
	found, err := h.AddrList(l, unix.AF_UNSPEC)
	for _, f := range found {
		if addr, ok := netip.AddrFromSlice(f.IP); ok && !addr.Unmap().IsLinkLocalUnicast() {
			ones, _ := f.Mask.Size()
			u.Addresses = append(u.Addresses, netip.PrefixFrom(addr.Unmap(), ones))
		}
	}
	if err == nil {
		err = u.findRoute(h, a.Index)
	}
	return u, err
}

// CheckedUplink is FindUplink, but fails if the device cannot be an uplink of the lane.
func (l Lane) CheckedUplink() (Uplink, error) {
	u, err := l.FindUplink()
	if err == nil {
		err = u.Check(l.Network)
	}
	return u, err
}

// Check says why the device cannot be an uplink of a lane.
func (u Uplink) Check(n lane.Network) error {
	switch {
	case !u.Ethernet:
		return fmt.Errorf("spec.network.device: %s is no Ethernet device: expected one that ip link shows with "+
			"link/ether", u.Name)
	case !u.Up:
		return fmt.Errorf("spec.network.device: %s is down: ip link set %[1]s up", u.Name)
	case n.MTU > u.MTU:
		return fmt.Errorf("spec.network.mtu: %d is more than the %d of %s", n.MTU, u.MTU, u.Name)
	}
	return nil
}

// VethMTU is the default MTU of a veth.
const VethMTU = 1500

// CheckVeth is Check for paths where a lane's device without an MTU gets that of a veth.
func (u Uplink) CheckVeth(n lane.Network) error {
	if err := u.Check(n); err != nil || n.MTU > 0 || u.MTU >= VethMTU {
		return err
	}
	return fmt.Errorf("spec.network.mtu: a lane without one has %d with path %s, more than the %d of %s: "+
		"expected mtu %[3]d or less", VethMTU, n.Path, u.MTU, u.Name)
}

// OwnBridge returns Isolane's bridge that may have the device as a port. Older lanes may have made it by an
// alternative name of the device, and move to the other bridge.
func (u Uplink) OwnBridge() string {
	if slices.ContainsFunc(u.AltNames, func(name string) bool { return Bridge(name) == u.Master }) {
		return u.Master
	}
	return Bridge(u.Name)
}

// above returns the devices of the host that are above some devices, and so on: those that they are ports of,
// and those of the given types that are on them.
func above(links, on []netlink.Link, types ...string) []netlink.Link {
	for i := 0; i < len(on); i++ { // it grows
		below := on[i].Attrs()
		for _, l := range links {
			a := l.Attrs()
			is := a.Index == below.MasterIndex || a.ParentIndex == below.Index && slices.Contains(types, l.Type())
			if is && !slices.ContainsFunc(on, func(o netlink.Link) bool { return o.Attrs().Index == a.Index }) {
				on = append(on, l)
			}
		}
	}
	return on
}

// sharing returns the types of devices that also get the unchanged frames of the device below.
func sharing() []string { return append(IPVlans(), netdev.Macvlan, "macvtap") }

// IPVlans are the types of devices beside which a device has no macvlan.
func IPVlans() []string { return []string{"ipvlan", "ipvtap"} }

// CheckUnshared says which device of the host on the lane's uplink has its frames: the kernel passes them to
// one only (netdev_rx_handler_register). Without types it is any such device. Those of other namespaces are
// not seen.
func (l Lane) CheckUnshared(types ...string) error {
	if l.Uplink != l.Device { // it is a device for lanes only
		return nil
	}
	h, uplink, err := netdev.Find("", l.Device)
	if uplink == nil || err != nil {
		return err
	}
	defer h.Close()
	if len(types) == 0 {
		types = sharing()
	}
	links, err := h.LinkList()
	for _, on := range links {
		if on.Attrs().ParentIndex != uplink.Attrs().Index || !slices.Contains(types, on.Type()) {
			continue
		}
		instead := ", or path macvlan"
		if slices.Contains(IPVlans(), on.Type()) {
			instead = ""
		}
		return fmt.Errorf("spec.network.device: %s gives its frames to %s, a device of type %s on it: "+
			"expected one without such%s", l.Device, on.Attrs().Name, on.Type(), instead)
	}
	return err
}

// Above returns the devices of the host on the uplink: its VLANs, what it is a port of, and so on.
func (u Uplink) Above() (all []Uplink, err error) {
	h, l, err := netdev.Find("", u.Name)
	if l == nil || err != nil {
		return nil, err
	}
	defer h.Close()
	links, err := h.LinkList()
	for _, on := range above(links, []netlink.Link{l}, append(sharing(), netdev.VLAN)...)[1:] {
		more, ferr := findUplink(on.Attrs().Name)
		all, err = append(all, more), errors.Join(err, ferr)
	}
	return all, err
}

// tag is a device of Isolane's that takes one tag off the frames of the device below it.
type tag struct {
	device string
	link   netdev.Link
}

// tags returns the lane's tags, the outer one first. A single tag is of IEEE 802.1Q, an outer one of 802.1ad.
func (l Lane) tags() []tag {
	v := l.VLAN
	if v.Outer == 0 {
		return nil
	}
	const prefix = "islv-"
	if v.Inner == 0 {
		return []tag{{DeviceName(prefix, fmt.Sprintf("%s.%d", l.Device, v.Outer)),
			netdev.Link{Type: netdev.VLAN, Parent: l.Device, Tag: v.Outer}}}
	}
	outer := DeviceName(prefix, fmt.Sprintf("%s.s%d", l.Device, v.Outer))
	return []tag{
		{outer, netdev.Link{Type: netdev.VLAN, Parent: l.Device, Tag: v.Outer, Service: true}},
		{DeviceName(prefix, fmt.Sprintf("%s.%d.%d", l.Device, v.Outer, v.Inner)),
			netdev.Link{Type: netdev.VLAN, Parent: outer, Tag: v.Inner}}}
}

// Tagger is a path that adds and removes the tags of its lanes itself. It needs no devices for that, and
// takes all frames of their device.
type Tagger interface {
	// Beside says why a lane cannot be on the device of another one.
	Beside(l, other Lane) error
}

// Mixer is a path whose lanes may share a device with those of some other path.
type Mixer interface {
	// Mixed reports whether a lane can share a device with a lane of another path. If not, instead says what
	// else than that path is expected, if anything.
	Mixed(l, other Lane) (can bool, instead string)
}

// ownTags reports whether a path needs no devices for tags.
func ownTags(p Path) bool {
	_, tagger := p.(Tagger)
	_, functional := p.(Functional)
	return tagger || functional
}

// taken returns the uplinks that a lane takes by its path: its own, and if the path adds the tags itself, the
// one below the tags.
func taken(p Path, l Lane) []string {
	if _, is := p.(Functional); is {
		return nil
	}
	if _, is := p.(Tagger); is && l.Uplink != l.Device {
		return []string{l.Uplink, l.Device}
	}
	return []string{l.Uplink}
}

// Beside says why a lane cannot have its path while others have theirs. The kernel passes the frames of a
// device to one path only (netdev_rx_handler_register).
func Beside(paths []Path, l Lane, others []Lane) error {
	p := Find(paths, l.Network)
	for _, o := range others {
		theirs := taken(Find(paths, o.Network), o)
		for _, uplink := range taken(p, l) {
			if uplink == "" || !slices.Contains(theirs, uplink) {
				continue
			}
			can, instead := o.Path == l.Path, ""
			if m, is := p.(Mixer); is && !can {
				can, instead = m.Mixed(l, o)
			}
			if !can && ownTags(p) { // there is no device below its tags
				uplink = l.Device
			}
			if !can {
				return fmt.Errorf("spec.network.path: lane %s has path %s on %s: expected that too%s", o.Name, o.Path,
					uplink, instead)
			}
			if t, is := p.(Tagger); is {
				if err := t.Beside(l, o); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// UnicastSteps returns the steps that tell the lane's MAC address to each card below it that can have virtual
// functions. Otherwise such a card sends frames from a function to the lane only by the wire, and some drop
// frames to it that come from there, although the host's device is promiscuous.
func (l Lane) UnicastSteps() (steps []journal.Step) {
	const devices = "/sys/class/net/"
	ports, _ := filepath.Glob(devices + l.Device + "/brif/*") // of a bridge; fails only for a bad pattern
	for _, device := range append(ports, l.Device) {
		device = filepath.Base(device)
		if _, err := os.Stat(devices + device + "/device/sriov_totalvfs"); err == nil {
			steps = append(steps, netdev.UnicastStep(device, l.MAC))
		}
	}
	return steps
}

// Tags returns the steps that make the uplinks of lanes with tags. They come before the steps of the paths.
func Tags(paths []Path, lanes []Lane) ([]journal.Step, error) {
	var steps []journal.Step
	for _, l := range lanes {
		if ownTags(Find(paths, l.Network)) {
			continue
		}
		for _, t := range l.tags() {
			if slices.ContainsFunc(steps, func(s journal.Step) bool { return s.Target == t.device }) {
				continue
			}
			step, err := netdev.LinkStep(t.device, t.link)
			if err != nil {
				return nil, err
			}
			steps = append(steps, step)
		}
	}
	return steps, nil
}

// PossibleTags says why a lane cannot have its tags on the machine that root shows. It asks for no more than
// root shows: a module that can be loaded is enough.
func PossibleTags(root fs.FS, p Path, l Lane) error {
	if ownTags(p) || len(l.tags()) == 0 {
		return nil
	}
	if err := LacksTags(root); err != nil {
		return fmt.Errorf("spec.network.vlan: %w", err)
	}
	return nil
}

// FreeTags says which device of the host already has a tag of the lane's on the same device. The kernel makes
// no second one (vlan_check_real_dev).
func FreeTags(p Path, l Lane) error {
	tags := l.tags()
	if ownTags(p) || len(tags) == 0 {
		return nil
	}
	h, err := netdev.Open("")
	if err != nil {
		return err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return err
	}
	index, own := map[string]int{}, []tag(nil)
	for _, other := range links {
		a := other.Attrs()
		index[a.Name] = a.Index
		if a.Name == l.Device { // older lanes may have them by an alternative name
			for _, name := range append(a.AltNames, a.Name) {
				own = append(own, Lane{Network: lane.Network{Device: name, VLAN: l.VLAN}}.tags()...)
			}
		}
	}
	for _, t := range tags {
		for _, other := range links {
			v, is := other.(*netlink.Vlan)
			if is && !slices.ContainsFunc(own, func(o tag) bool { return o.device == v.Name }) &&
				v.ParentIndex == index[t.link.Parent] && v.VlanId == t.link.Tag && v.VlanProtocol == t.link.Protocol() {
				return fmt.Errorf("spec.network.vlan: %s is that of %d on %s already: expected it as "+
					"spec.network.device without that tag, or another tag", v.Name, t.link.Tag, t.link.Parent)
			}
		}
	}
	return nil
}

// LacksTags says why the machine that root shows cannot have VLAN devices; nil if it can. Those of 802.1ad
// are in the same module as those of 802.1Q.
func LacksTags(root fs.FS) error {
	if _, err := fs.Stat(root, "proc/net/vlan"); err == nil {
		return nil
	}
	release, err := fs.ReadFile(root, "proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	modules := "lib/modules/" + strings.TrimSpace(string(release))
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		text, err := fs.ReadFile(root, modules+"/"+list)
		if err == nil && strings.Contains(string(text), "/8021q.ko") {
			return nil
		}
	}
	return errors.New("this kernel has no VLAN devices: module 8021q is missing")
}
