// Package ovs has the paths through Open vSwitch. The host's end of a lane's device, or with DPDK the
// vhost-user socket of its workload, is a port of a bridge, which adds and removes the lane's tags. The
// package uses Open vSwitch's own tools, such as ovs-vsctl(8) and ovs-ofctl(8). It marks what it makes in the
// database in external_ids, and changes nothing else.
package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

// Path is the path "ovs", or with DPDK "ovs-dpdk".
type Path struct {
	// DPDK means that the lane has no network device: its workload uses vhost-user with poll-mode threads.
	DPDK   bool
	counts *reader // for the counters of all lanes; nil: each asks by itself
}

// Both returns the paths "ovs" and "ovs-dpdk". They ask Open vSwitch once for the counters of all lanes that
// are looked at together.
func Both() (kernel, dpdk Path) {
	r := &reader{}
	return Path{counts: r}, Path{DPDK: true, counts: r}
}

// Name returns "ovs" or "ovs-dpdk".
func (p Path) Name() string {
	if p.DPDK {
		return "ovs-dpdk"
	}
	return "ovs"
}

// About describes the path.
func (p Path) About() string {
	if p.DPDK {
		return "uplink, Open vSwitch with DPDK as it runs on this host, vhost-user to a virtual machine"
	}
	return "uplink, Open vSwitch as it runs on this host, veth"
}

// WireGRO reports whether the wire has GRO, as the driver of a network card does. The user-space data path
// takes no frames longer than the wire's.
func (p Path) WireGRO() bool { return !p.WireChecksums() }

// WireChecksums reports whether frames must arrive with checksums, as from a cable: the user-space data path
// forwards them as they are.
func (p Path) WireChecksums() bool { return datapath(p.DPDK) == userSpace }

// Supported says why this host cannot have the path; nil if it can.
func (p Path) Supported() error {
	db, err := read(context.Background())
	if err == nil {
		_, _, err = version(context.Background())
	}
	if err == nil && p.DPDK && !db.dpdk {
		err = errNoDPDK
	}
	return err
}

// Declared says what of a declaration is impossible: flows check the sender only of ARP and neighbour
// discovery.
func (p Path) Declared(n lane.Network) error {
	if p.DPDK {
		if err := declaredDPDK(n); err != nil {
			return err
		}
	}
	return netpath.AnySource(n)
}

// Possible says why a lane cannot have the path on this host as it is.
func (p Path) Possible(l netpath.Lane) error {
	if err := p.Supported(); err != nil {
		return fmt.Errorf("spec.network.path: %w", err)
	}
	db, err := read(context.Background())
	if err != nil {
		return fmt.Errorf("spec.network.path: %w", err)
	}
	if p.DPDK {
		if err = db.possibleDPDK(l); err != nil {
			return err
		}
	}
	if err = netpath.PossibleQueues(l); err != nil {
		return err
	}
	if limit := db.config["vlan-limit"]; l.VLAN.Inner > 0 && (limit == "" || limit == "1") {
		return errors.New("spec.network.vlan.inner: Open vSwitch looks at one tag only: expected " +
			"ovs-vsctl set Open_vSwitch . other_config:vlan-limit=2")
	}
	if l.Device == "" {
		return nil
	}
	l.Uplink = l.Device // Open vSwitch takes all its frames, whatever their tags
	b := db.bridges[l.Device]
	var u netpath.Uplink
	switch {
	case b == nil:
		if u, err = l.FindUplink(); err != nil && p.DPDK {
			err = fmt.Errorf("%w; a card that DPDK has is a port of a bridge: expected that", err)
		}
		if err != nil {
			return err
		}
	case b.mark != "":
		return fmt.Errorf("spec.network.device: %s is a bridge of isolane's: expected its uplink", l.Device)
	case !b.opened:
		return fmt.Errorf("spec.network.device: %s is %s", l.Device, unopenedBridge)
	default:
		u = netpath.Uplink{Name: l.Device, Up: true, Ethernet: true, MTU: cmp.Or(b.mtu(), most)}
	}
	if n := u.MTU - db.tags(l.Device, p.DPDK); l.VLAN.Inner > 0 && cmp.Or(l.MTU, netpath.VethMTU) > n {
		return fmt.Errorf("spec.network.mtu: expected at most %d, so that two tags pass %s", n, u.Name)
	}
	if err = u.CheckVeth(l.Network); err != nil || b != nil {
		return err
	}
	at, _ := db.port(l.Device)
	if at == own(l.Device, p.DPDK) {
		return nil
	}
	u.Master = cmp.Or(at, u.Master)
	err = u.CheckPort(l.Network, "", ", a bridge that has it as a port")
	if err != nil || datapath(p.DPDK) == userSpace { // which copies the frames
		return err
	}
	return l.CheckUnshared()
}

// Owns says that a device is that of a bridge of somebody else's, which has lanes as its ports.
func (p Path) Owns(device string) string {
	h, l, err := netdev.Find("", device)
	if l == nil || err != nil {
		return ""
	}
	h.Close()
	if t := l.Type(); t != "openvswitch" && t != "tuntap" { // of a bridge in the kernel, and in user space
		return ""
	}
	if db, rerr := read(context.Background()); rerr != nil || db.bridges[device] == nil {
		return ""
	}
	return "a bridge of Open vSwitch"
}

// Bypasses reports whether the card may be driven by DPDK.
func (p Path) Bypasses() bool { return p.DPDK }

// Mixed reports whether a lane can share a device with a lane of another path. A user-space bridge can have
// both DPDK ports and network devices; Isolane's own bridges are for one path each.
func (p Path) Mixed(l, other netpath.Lane) (can bool, instead string) {
	if other.Path != (Path{DPDK: !p.DPDK}).Name() {
		return false, ""
	}
	db, err := read(context.Background())
	switch {
	case err != nil:
		return false, fmt.Sprintf(" (%v)", err)
	case db.bridges[l.Device] == nil:
		return false, ", or as device a bridge of yours with datapath_type=netdev"
	case l.VLAN.Inner > 0 && other.VLAN.Inner > 0 && l.VLAN.Outer == other.VLAN.Outer:
		return false, fmt.Sprintf(", or another outer tag than %d, whose bridge is one path's", l.VLAN.Outer)
	}
	return true, ""
}

// Beside says why a lane cannot be on another lane's uplink: Open vSwitch tells outer tags apart only by
// number.
func (Path) Beside(l, other netpath.Lane) error {
	if l.VLAN.Outer == 0 || l.VLAN.Outer != other.VLAN.Outer || (l.VLAN.Inner > 0) == (other.VLAN.Inner > 0) {
		return nil
	}
	return fmt.Errorf("spec.network.vlan.outer: lane %s has the tag %d too, and only one of both has another "+
		"in it, whose frames the other would see: expected another tag", other.Name, l.VLAN.Outer)
}

const most = 65535

// tags returns how many bytes of two tags count as payload in frames that leave by a device. The kernel's
// data path takes the outer tag off (ovs_vport_send); packet sockets do so only for 802.1Q (packet_snd).
func (db database) tags(device string, dpdk bool) int {
	with := datapath(dpdk)
	if b := db.bridges[db.base(device, dpdk)]; b != nil {
		with = b.datapath
	}
	if with == userSpace {
		return 8
	}
	return 4
}

// Steps returns what makes the path of these lanes: a bridge for each uplink that is not one itself, another
// one for each outer tag around inner ones, and the lanes' ports.
func (p Path) Steps(lanes []netpath.Lane) ([]journal.Step, error) {
	var steps []journal.Step
	made := map[string]bool{}
	for _, l := range lanes {
		o := port{Device: l.Device, Tag: l.VLAN.Outer, Lane: l.Name, MAC: l.MAC}
		bridges := []bridge{{Device: l.Device, DPDK: p.DPDK}}
		if l.VLAN.Inner > 0 {
			o.Outer, o.Tag = l.VLAN.Outer, l.VLAN.Inner
			bridges = append(bridges, bridge{l.Device, l.VLAN.Outer, p.DPDK})
		}
		for _, b := range bridges {
			if !made[b.name()] {
				made[b.name()] = true
				steps = append(steps, step(KindBridge, b.name(), b))
			}
		}
		for _, a := range l.Addresses {
			o.Addresses = append(o.Addresses, a.Addr())
		}
		var more []journal.Step
		if v, is := p.VhostUser(l); is {
			o.Socket, o.MTU = v.Socket, v.MTU
			more = []journal.Step{socketStep(l.Name)}
		} else {
			var err error
			if l.Workload != "" {
				o.Netns = l.Netns()
			}
			more, err = l.Steps(netpath.Port(l.Name), netdev.Link{Type: netdev.Veth, Peer: l.Inside()})
			if err != nil {
				return nil, err
			}
		}
		steps = append(append(steps, more...), step(KindPort, netpath.Port(l.Name), o))
		steps = append(steps, l.UnicastSteps()...)
	}
	return steps, nil
}

// own returns Isolane's bridge for lanes with this uplink, unless that is a bridge itself; "" for none.
func own(device string, dpdk bool) string {
	prefix := "islovs"
	if dpdk {
		prefix = "islovd"
	}
	if device == "" {
		return prefix
	}
	return netpath.DeviceName(prefix+"-", device)
}
