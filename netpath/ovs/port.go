package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/netpath"
)

// port is a lane's port, with flows that drop what the lane may not send.
type port struct {
	Device string `json:"device"`          // the lane's uplink: a bridge or a port of one
	Outer  int    `json:"outer,omitempty"` // as in bridge
	// Tag is the tag of the lane's frames on the bridge; in the lane they have none. With 0 they are untagged,
	// and tagged frames neither reach the lane nor leave it.
	Tag  int    `json:"tag,omitempty"`
	Lane string `json:"lane"`
	MAC  string `json:"mac"` // the only one that may send
	// Addresses are those that the lane may use in ARP and neighbour discovery; none: any.
	Addresses []netip.Addr `json:"addresses"`
	// Socket is where the workload of a vhost-user port listens; "": the lane has a network device.
	Socket string `json:"socket,omitempty"`
	MTU    int    `json:"mtu,omitempty"` // of a vhost-user port
	// Netns is the namespace of the lane's device; "": the lane's own.
	Netns string `json:"netns,omitempty"`
}

// bridge returns the bridge that the port belongs on.
func (p port) bridge(db database) string {
	if p.Outer > 0 {
		return bridge{Device: p.Device, Outer: p.Outer}.name()
	}
	return db.base(p.Device, p.Socket != "")
}

// String describes the port.
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
	if p.Socket != "" {
		text += fmt.Sprintf(", vhost-user at %s, mtu %d", p.Socket, p.MTU)
	}
	return text + ", only from " + p.MAC
}

func (p port) check(target string) error {
	if netpath.Port(p.Lane) != target || min(p.Tag, p.Outer) < 0 || max(p.Tag, p.Outer) > 4094 {
		return fmt.Errorf("%s is not the port of %+v", target, p)
	}
	if p.Socket != "" && (p.Socket != socket(p.Lane) || p.MTU < minMTU || p.MTU > mostDPDK) {
		return fmt.Errorf("%s is not the port of %+v", target, p)
	}
	_, err := p.flows(target, 1)
	if p.Device != "" {
		err = errors.Join(err, netdev.CheckDevice(p.Device))
	}
	return errors.Join(err, netdev.CheckName(p.Lane))
}

func (p port) netns() string { return cmp.Or(p.Netns, netpath.Lane{Name: p.Lane}.Netns()) }

func (port) marked(db database, target string) (mark string, there, own bool) {
	if _, found := db.port(target); found != nil {
		return found.mark, true, false
	}
	return "", false, false
}

func (p port) differs(ctx context.Context, r *reader, db database, target string) (string, error) {
	at, found := db.port(target)
	switch {
	case at != p.bridge(db):
		return "port of " + at, nil
	case found.failed != "":
		return found.failed, nil
	}
	var what []string
	if found.tag != p.Tag || found.mode != access {
		what = append(what, fmt.Sprintf("vlan_mode %q, tag %d", found.mode, found.tag))
	}
	if p.Socket != "" && (found.kind != vhostUser || found.socket != p.Socket || found.wanted != p.MTU) {
		what = append(what, fmt.Sprintf("type %q at %q, mtu %d", found.kind, found.socket, found.wanted))
	}
	flows, err := r.dump(ctx, at, target)
	if err != nil {
		return "", err
	}
	want, err := p.flows(target, found.number)
	if err != nil {
		return "", err
	}
	if digest(want+flows) != found.flows {
		what = append(what, "other flows")
	}
	if p.offloads(db, at) {
		on, err := netdev.Offload(p.netns(), netpath.Device, unix.ETHTOOL_GTXCSUM, 0)
		if err != nil {
			what = append(what, err.Error())
		} else if on != 0 {
			what = append(what, "checksums left to the device")
		}
	}
	return strings.Join(what, ", "), nil
}

// access is the vlan_mode of a port that gets the frames of one tag, without it.
const access = "access"

// A vhost-user port whose server is the workload, so that the workload and ovs-vswitchd may each restart, and
// the option with its socket (ovs-vswitchd.conf.db(5)).
const (
	vhostUser = "dpdkvhostuserclient"
	socketKey = "vhost-server-path"
)

// offloads reports whether the lane's device would leave checksums to a bridge that computes none: packet
// sockets get frames as they are.
func (p port) offloads(db database, on string) bool {
	return p.Socket == "" && db.bridges[on].datapath == userSpace
}

func (p port) make(ctx context.Context, db database, target, mark string) error {
	on := p.bridge(db)
	if db.bridges[on] == nil {
		return fmt.Errorf("there is no Open vSwitch bridge %s: %s list-br shows those that there are", on, vsctl)
	}
	commands := db.leftovers()
	if at, _ := db.port(target); at != "" && at != on {
		commands = append(commands, []string{"--if-exists", "del-port", target})
	}
	commands = append(commands, []string{"--may-exist", "add-port", on, target}, []string{"set", "Port", target,
		"vlan_mode=" + access, fmt.Sprint("tag=", p.Tag), "external_ids:" + markKey + "=" + mark})
	if p.Socket != "" {
		commands = append(commands, append([]string{"set", "Interface", target}, p.columns()...))
	}
	if err := change(ctx, commands); err != nil {
		return err
	}
	if p.offloads(db, on) {
		_, err := netdev.Offload(p.netns(), netpath.Device, unix.ETHTOOL_STXCSUM, 0)
		if err != nil {
			return fmt.Errorf("checksum offload: %w", err)
		}
	}
	return p.addFlows(ctx, on, target)
}

// columns returns the columns of the interface of a vhost-user port.
func (p port) columns() []string {
	return []string{"type=" + vhostUser, "options:" + socketKey + "=" + p.Socket,
		fmt.Sprint("mtu_request=", p.MTU)}
}

func (port) remove(ctx context.Context, db database, target string) error {
	at, _ := db.port(target)
	if _, err := tool(ctx, ofctl, "", versions, "del-flows", at, cookie(target)+"/-1"); err != nil {
		return err
	}
	return change(ctx, [][]string{{"--if-exists", "del-port", target}})
}

func (p port) shell(db database, target string) string {
	on, set := p.bridge(db), ""
	if p.Socket != "" {
		set = " -- set interface " + target + " " + strings.Join(p.columns(), " ")
	}
	return fmt.Sprintf("%s add-port %s %s vlan_mode=%s tag=%d%s # %s add-flows %s: only from %s", vsctl, on,
		target, access, p.Tag, set, ofctl, on, p.MAC)
}

// addFlows replaces the port's flows.
func (p port) addFlows(ctx context.Context, on, name string) error {
	db, err := read(ctx)
	if err != nil {
		return err
	}
	_, found := db.port(name)
	if found == nil || found.number < 1 {
		return p.unopened(name, found)
	}
	flows, err := p.flows(name, found.number)
	if err != nil {
		return err
	}
	return makeFlows(ctx, on, name, flows)
}

// unopened says why Open vSwitch has no port of that name.
func (p port) unopened(name string, found *portRow) error {
	why := vsctl + " list Interface " + name + " shows why"
	if found != nil && found.failed != "" {
		why = found.failed
	}
	if p.Socket != "" {
		why += "; a process that has come to a lane after its start opens none for vhost-user: expected " +
			"ovs-vswitchd started anew, in its lane"
	}
	return errors.New("not opened by Open vSwitch: " + why)
}

// makeFlows makes the flows of a port, and records them as made and as they read back, because other versions
// make others.
func makeFlows(ctx context.Context, on, name, flows string) error {
	if _, err := tool(ctx, ofctl, flows, versions, "--bundle", "add-flows", on, "-"); err != nil {
		return err
	}
	made, err := (&reader{}).dump(ctx, on, name)
	if err != nil {
		return err
	}
	if got, want := strings.Count(made, "\n"), strings.Count(flows, "add "); got != want {
		return fmt.Errorf("%d flows of %d were made", got, want)
	}
	_, err = tool(ctx, vsctl, "", "--no-wait", "set", "Port", name,
		"external_ids:"+flowsKey+"="+digest(flows+made))
	return err
}

// lowest is the lowest priority of a port's flows for what its lane sends.
const lowest = 65000

// accept passes a frame to the other flows of its bridge.
const accept = "set_field:1->reg9,resubmit(,0)"

// flows returns the flows of a port for ovs-ofctl(8). The lane may send only from its MAC address and without
// tags. If it has addresses, it may use only these in ARP and neighbour discovery, and may not act as a
// router. Permitted frames are marked and go on to the bridge's other flows, so nothing that is not permitted
// passes.
func (p port) flows(name string, number int) (string, error) {
	mac, err := net.ParseMAC(p.MAC)
	if err != nil || len(mac) != 6 {
		return "", fmt.Errorf("mac %q: expected six bytes", p.MAC)
	}
	const unmarked = "reg9=0"
	lines := []string{"delete " + cookie(name) + "/-1"}
	add := func(priority int, match, action string) {
		lines = append(lines, fmt.Sprintf("add %s,priority=%d,%s,in_port=%d%s,actions=%s", cookie(name),
			lowest+priority, unmarked, number, match, action))
	}
	from := ",dl_src=" + p.MAC
	add(0, "", "drop")
	add(1, from, accept)
	// An access port does not count a tag that has only a priority, and would pass on what is hidden behind it.
	add(4, ",vlan_tci=0x1000/0x1000", "drop")
	arp := from + ",arp,arp_sha=" + p.MAC
	if len(p.Addresses) == 0 {
		add(3, arp, accept)
	} else {
		nd := func(kind int) string { return fmt.Sprint(",icmp6,icmp_type=", kind) }
		own := func(kind int) string { return from + nd(kind) + ",icmp_code=0" }
		for _, a := range append(slices.Clone(p.Addresses), netpath.LinkLocal(mac)) {
			if a.Is4() {
				add(3, arp+",arp_spa="+a.String(), accept)
				add(3, arp+",arp_spa=0.0.0.0,arp_tpa="+a.String(), accept) // asks whether somebody has it (RFC 5227)
				continue
			}
			add(3, own(133)+",ipv6_src="+a.String(), accept)
			add(3, own(135)+",ipv6_src="+a.String(), accept)
			add(3, own(135)+",ipv6_src=::,nd_target="+a.String(), accept) // the same for IPv6 (RFC 4862)
			add(3, own(136)+",nd_target="+a.String(), accept)
		}
		for kind := 133; kind <= 137; kind++ { // 134 and 137 are for routers (RFC 4861)
			add(2, nd(kind), "drop")
		}
	}
	add(2, ",arp", "drop")
	// Frames from elsewhere with the lane's MAC address would teach the bridge that it is there. They may even
	// be its own broadcasts, which a card sends back.
	lines = append(lines, fmt.Sprintf("add %s,priority=%d,%s%s,actions=drop", cookie(name), lowest-1, unmarked,
		from))
	return strings.Join(lines, "\n") + "\n", nil
}
