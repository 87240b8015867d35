package ovs

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
)

// KindPort is the kind of the steps that PortOp does: the target is the host's end of a lane's device.
const KindPort = "ovs-port"

// port is a lane's port. It is the value of a step, as JSON.
type port struct {
	Device string `json:"device"`          // the lane's uplink, a bridge or a port of one
	Outer  int    `json:"outer,omitempty"` // as that of bridge
	// Tag is that of frames on the bridge, none of which has it in the lane. With 0 these have none: frames with
	// tags neither reach the lane nor leave it.
	Tag       int          `json:"tag,omitempty"`
	Lane      string       `json:"lane"`
	MAC       string       `json:"mac"`       // the only one that may send
	Addresses []netip.Addr `json:"addresses"` // that it may say are its own, by ARP or neighbour discovery; none: any
}

// bridge is the one that the port is to be of.
func (p port) bridge(db database) string {
	if p.Outer > 0 {
		return bridge{p.Device, p.Outer}.name()
	}
	return db.base(p.Device)
}

// String says what it is.
func (p port) String() string {
	text := "port of the bridge"
	if p.Device != "" {
		text = "port of the bridge of " + p.Device
	}
	if p.Outer > 0 {
		text += fmt.Sprintf(", tag %d of 802.1ad", p.Outer)
	}
	if p.Tag > 0 {
		text += fmt.Sprint(", tag ", p.Tag)
	}
	return text + ", only from " + p.MAC
}

// PortOp makes ports of bridges, with flows that keep out what a lane may not send.
type PortOp struct{ overwriter }

// Check says what in a step cannot be.
func (PortOp) Check(s journal.Step) error {
	p, err := parse[port](s)
	if err == nil {
		err = netdev.CheckName(p.Lane)
	}
	if err == nil && (netpath.Port(p.Lane) != s.Target || min(p.Tag, p.Outer) < 0 || max(p.Tag, p.Outer) > 4094) {
		err = fmt.Errorf("%s is not the port of %+v", s.Target, p)
	}
	if err == nil && p.Device != "" {
		err = netdev.CheckDevice(p.Device)
	}
	if err == nil {
		_, err = p.flows(s.Target, 1)
	}
	return err
}

// Read returns the step's value where there is the port with the mark of that.
func (PortOp) Read(ctx context.Context, s journal.Step) (string, error) {
	db, err := read(ctx)
	if err != nil {
		return unread(ctx, err)
	}
	_, found := db.port(s.Target)
	if found == nil {
		return "", nil
	}
	return present(s, "port", found.mark), nil
}

// InForce says whether the port is as it was made, with its flows.
func (o PortOp) InForce(ctx context.Context, s journal.Step) (bool, error) {
	what, err := o.differs(ctx, s)
	return what == "" && err == nil, err
}

// differs says what is not as it was made; "" where all is.
func (PortOp) differs(ctx context.Context, s journal.Step) (string, error) {
	p, err := parse[port](s)
	if err != nil {
		return "", err
	}
	db, err := read(ctx)
	if err != nil {
		return unread(ctx, err)
	}
	at, found := db.port(s.Target)
	switch {
	case found == nil:
		return "none", nil
	case found.mark != mark(s.After):
		return cmp.Or(present(s, "port", found.mark), earlier), nil
	case at != p.bridge(db):
		return "port of " + at, nil
	case found.failed != "":
		return found.failed, nil
	}
	var what []string
	if found.tag != p.Tag || found.mode != access {
		what = append(what, fmt.Sprintf("vlan_mode %q, tag %d", found.mode, found.tag))
	}
	flows, err := dump(ctx, at, s.Target)
	if err != nil {
		return unread(ctx, err)
	}
	if digest(flows) != found.flows || !strings.Contains(flows, fmt.Sprintf("in_port=%d", found.number)) {
		what = append(what, "other flows")
	}
	if db.bridges[at].datapath == "netdev" {
		if on, cerr := netdev.Offload(netpath.Namespace(p.Lane), netpath.Device, unix.ETHTOOL_GTXCSUM, 0); cerr != nil {
			what = append(what, cerr.Error())
		} else if on != 0 {
			what = append(what, "checksums left to the device")
		}
	}
	return strings.Join(what, ", "), nil
}

// access is the vlan_mode of a port that has one tag's frames, without it.
const access = "access"

// Write makes the port with its flows, sets one that is ours as it was made, or takes it away.
func (o PortOp) Write(ctx context.Context, s journal.Step, value string) error {
	db, err := read(ctx)
	if err != nil {
		return err
	}
	at, found := db.port(s.Target)
	if found != nil && found.mark == "" {
		return fmt.Errorf("there is already a port %s of %s, that isolane did not make", s.Target, at)
	}
	if !strings.HasPrefix(value, "{") {
		if found == nil {
			return nil
		}
		if _, err = tool(ctx, ofctl, "", versions, "del-flows", at, cookie(s.Target)+"/-1"); err != nil {
			return err
		}
		return change(ctx, [][]string{{"--if-exists", "del-port", s.Target}})
	}
	p, err := parse[port](s)
	if err != nil {
		return err
	}
	on := p.bridge(db)
	if db.bridges[on] == nil {
		return fmt.Errorf("Open vSwitch has no bridge %s: ovs-vsctl list-br shows those that there are", on)
	}
	commands := db.leftovers()
	if found != nil && at != on {
		commands = append(commands, []string{"--if-exists", "del-port", s.Target})
	}
	commands = append(commands, []string{"--may-exist", "add-port", on, s.Target}, []string{"set", "Port", s.Target,
		"vlan_mode=" + access, fmt.Sprint("tag=", p.Tag), "external_ids:" + markKey + "=" + mark(value)})
	if err = change(ctx, commands); err != nil {
		return err
	}
	// Packet sockets of the user-space data path get frames without the checksums that are left to a device.
	if db.bridges[on].datapath == "netdev" {
		if _, err = netdev.Offload(netpath.Namespace(p.Lane), netpath.Device, unix.ETHTOOL_STXCSUM, 0); err != nil {
			return fmt.Errorf("checksum offload: %w", err)
		}
	}
	return p.addFlows(ctx, on, s.Target)
}

// addFlows makes the port's flows, in place of those that it has, and notes how they read back.
func (p port) addFlows(ctx context.Context, on, name string) error {
	db, err := read(ctx)
	if err != nil {
		return err
	}
	_, found := db.port(name)
	if found == nil || found.number < 1 {
		return fmt.Errorf("Open vSwitch has not opened the port: %+v", found)
	}
	flows, err := p.flows(name, found.number)
	if err != nil {
		return err
	}
	if _, err = tool(ctx, ofctl, flows, versions, "--bundle", "add-flows", on, "-"); err != nil {
		return err
	}
	made, err := dump(ctx, on, name)
	if err != nil {
		return err
	}
	if got, want := strings.Count(made, "\n"), strings.Count(flows, "add "); got != want {
		return fmt.Errorf("%d flows of %d were made", got, want)
	}
	return change(ctx, [][]string{{"set", "Port", name, "external_ids:" + flowsKey + "=" + digest(made)}})
}

// versions are those of OpenFlow that a bridge may be limited to.
const versions = "--protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15"

// cookie is that of a port's flows, as ovs-ofctl(8) matches it.
func cookie(name string) string { return "cookie=0x49534f4c" + digest(name)[1:] } // ISOL

// dump reads a port's flows, without what they count.
func dump(ctx context.Context, on, name string) (string, error) {
	out, err := tool(ctx, ofctl, "", versions, "--no-stats", "--no-names", "dump-flows", on, cookie(name)+"/-1")
	var flows []string
	for l := range strings.Lines(out) {
		if strings.Contains(l, "cookie=") {
			flows = append(flows, l)
		}
	}
	slices.Sort(flows)
	return strings.Join(flows, ""), err
}

// flows are what ovs-ofctl(8) makes of a port: it may send from its MAC address, and say by ARP and neighbour
// discovery only of its own IP addresses that it has them. What may pass is marked, and takes the other flows
// of its bridge, so nothing passes that these keep out.
func (p port) flows(name string, number int) (string, error) {
	mac, err := net.ParseMAC(p.MAC)
	if err != nil || len(mac) != 6 {
		return "", fmt.Errorf("mac %q: expected six bytes", p.MAC)
	}
	const unmarked, pass = "reg9=0", "set_field:1->reg9,resubmit(,0)"
	lines := []string{"delete " + cookie(name) + "/-1"}
	add := func(priority int, match, action string) {
		lines = append(lines, fmt.Sprintf("add %s,priority=%d,%s,in_port=%d%s,actions=%s", cookie(name), 65000+priority,
			unmarked, number, match, action))
	}
	from := ",dl_src=" + p.MAC
	add(0, "", "drop")
	add(1, from, pass)
	arp := from + ",arp,arp_sha=" + p.MAC
	if len(p.Addresses) == 0 {
		add(3, arp, pass)
	} else {
		add(3, arp+",arp_spa=0.0.0.0", pass) // asks whether somebody has it (RFC 5227)
		for _, a := range append(slices.Clone(p.Addresses), linkLocal(mac)) {
			if a.Is4() {
				add(3, arp+",arp_spa="+a.String(), pass)
				continue
			}
			add(3, from+",icmp6,icmp_type=135,icmp_code=0,ipv6_src="+a.String(), pass)
			add(3, from+",icmp6,icmp_type=136,icmp_code=0,nd_target="+a.String(), pass)
		}
		add(3, from+",icmp6,icmp_type=135,icmp_code=0,ipv6_src=::", pass) // the same for IPv6 (RFC 4862)
		add(2, ",icmp6,icmp_type=135", "drop")
		add(2, ",icmp6,icmp_type=136", "drop")
	}
	add(2, ",arp", "drop")
	return strings.Join(lines, "\n") + "\n", nil
}

// linkLocal is the address that the kernel makes of a MAC address (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe,
		13: mac[3], 14: mac[4], 15: mac[5]})
}

// Name says what it is.
func (PortOp) Name(s journal.Step) string { return "Open vSwitch port " + s.Target }

// Describe says what comes or goes.
func (o PortOp) Describe(s journal.Step) (name, from, to string) {
	return o.Name(s), words[port](s.Before), words[port](s.After)
}

// DescribeDrift says what is no longer as it was made.
func (o PortOp) DescribeDrift(s journal.Step) (expected, found string) {
	what, err := o.differs(context.Background(), s)
	if err != nil {
		what = err.Error()
	}
	return words[port](s.After), what
}

// Shell is ovs-vsctl(8) and ovs-ofctl(8).
func (PortOp) Shell(s journal.Step) string {
	p, err := parse[port](s)
	if s.After == "" || err != nil {
		return vsctl + " del-port " + s.Target
	}
	db, _ := read(context.Background()) // without it as the bridge is called that would be made
	on := p.bridge(db)
	return fmt.Sprintf("%s add-port %s %s vlan_mode=%s tag=%d && # %s add-flows %[2]s: only from %s", vsctl, on, s.Target,
		access, p.Tag, ofctl, p.MAC)
}
