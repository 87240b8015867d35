package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/netpath"
)

// bridge joins lanes with an uplink. If the device is somebody else's bridge, lanes use that one and none is
// made.
type bridge struct {
	Device string `json:"device"` // "": none
	// Outer is the tag of IEEE 802.1ad that the device's bridge puts around frames that leave this one, which
	// knows the inner tags. Together they are a provider edge bridge (IEEE 802.1Q), joined by patch ports.
	Outer int `json:"outer,omitempty"`
	// DPDK means that the bridge is in the user-space data path, for ports of DPDK.
	DPDK bool `json:"dpdk,omitempty"`
}

func (b bridge) name() string {
	if b.Outer == 0 {
		return own(b.Device, b.DPDK)
	}
	return netpath.DeviceName("islc-", fmt.Sprintf("%s.s%d", b.Device, b.Outer))
}

// patches returns the ports that join this bridge (here) with that of the device (there).
func (b bridge) patches() (here, there string) {
	id := fmt.Sprintf("%s.s%d", b.Device, b.Outer)
	return netpath.DeviceName("islp-", id), netpath.DeviceName("islq-", id)
}

// String describes the bridge.
func (b bridge) String() string {
	switch {
	case b.Outer > 0:
		return fmt.Sprintf("behind the bridge of %s, with tag %d of 802.1ad around", b.Device, b.Outer)
	case b.Device != "":
		return "with " + b.Device + " as a port"
	}
	return "of lanes only"
}

// userSpace is the data path that needs nothing of the kernel, and the only one with ports of DPDK.
const userSpace = "netdev"

// datapath returns the data path of a new bridge. Asking the kernel for its data path loads the module.
func datapath(dpdk bool) string {
	if dpdk {
		return userSpace
	}
	if _, err := netlink.GenlFamilyGet("ovs_datapath"); err != nil {
		return userSpace
	}
	return "system"
}

func (b bridge) check(target string) error {
	if b.name() != target || b.Outer < 0 || b.Outer > 4094 {
		return fmt.Errorf("%s is not the bridge of %+v", target, b)
	}
	if b.Device == "" {
		return nil
	}
	return netdev.CheckDevice(b.Device)
}

func (b bridge) marked(db database, target string) (mark string, there, own bool) {
	if found := db.bridges[target]; found != nil {
		return found.mark, true, false
	}
	return "", false, b.Outer == 0 && db.bridges[b.Device] != nil
}

func (b bridge) differs(ctx context.Context, r *reader, db database, target string) (string, error) {
	if made := db.bridges[target]; made != nil && !made.opened {
		return unopenedBridge, nil
	}
	var what []string
	for _, want := range b.wanted(db) {
		at, p := db.port(want.name)
		if at != want.bridge || p.mark == "" || want.outer != max(p.tag, 0) ||
			(want.outer > 0) != (p.mode == tunnel) {
			what = append(what, "no port "+want.name+want.words())
		} else if p.failed != "" {
			what = append(what, want.name+": "+p.failed)
		} else if want.outer > 0 {
			flows, err := r.dump(ctx, at, want.name)
			if err != nil {
				return "", err
			}
			if digest(b.flows(want.name)+flows) != p.flows {
				what = append(what, "inner tags are not told apart")
			}
		}
	}
	return strings.Join(what, ", "), nil
}

// unopenedBridge is the error for a bridge that is only in the database. Open vSwitch gives the reason
// nowhere else.
const unopenedBridge = "not opened by Open vSwitch: ovs-vswitchd.log in /var/log/openvswitch says why"

// tunnel is the vlan_mode of a port that puts a tag around all frames that enter there, tagged or not.
const tunnel = "dot1q-tunnel"

// joint is a port that joins a bridge with its device or with another bridge.
type joint struct {
	bridge, name, peer string
	outer              int
}

func (j joint) words() string {
	if j.outer > 0 {
		return fmt.Sprintf(" of %s with tag %d around", j.bridge, j.outer)
	}
	return " of " + j.bridge
}

func (b bridge) wanted(db database) []joint {
	here, there := b.patches()
	switch {
	case b.Outer > 0:
		return []joint{{b.name(), here, there, 0}, {db.base(b.Device, b.DPDK), there, here, b.Outer}}
	case b.Device != "":
		return []joint{{b.name(), b.Device, "", 0}}
	}
	return nil
}

func (b bridge) make(ctx context.Context, db database, target, mark string) error {
	if b.Device != "" && b.Outer == 0 { // Open vSwitch would wait for one
		h, found, err := netdev.Find("", b.Device)
		if err != nil || found == nil {
			return errors.Join(err, fmt.Errorf("%s is neither a bridge of Open vSwitch nor a device", b.Device))
		}
		h.Close()
	}
	with := datapath(b.DPDK)
	if base := db.bridges[db.base(b.Device, b.DPDK)]; b.Outer > 0 && base != nil {
		with = base.datapath
	}
	ours := "external_ids:" + markKey + "=" + mark
	commands := append(db.leftovers(), []string{"--may-exist", "add-br", target},
		[]string{"set", "Bridge", target, "datapath_type=" + cmp.Or(with, "system"), ours})
	for _, j := range b.wanted(db) {
		if j.peer == "" {
			commands = append(commands, []string{"--may-exist", "add-port", j.bridge, j.name},
				[]string{"set", "Port", j.name, ours, "tag=[]", "vlan_mode=[]"})
			continue
		}
		// As it was made, whatever it is now.
		add := []string{"add-port", j.bridge, j.name, "--", "set", "Interface", j.name, "type=patch",
			"options:peer=" + j.peer, "--", "set", "Port", j.name, ours}
		if j.outer > 0 {
			add = append(add, "vlan_mode="+tunnel, fmt.Sprint("tag=", j.outer))
		}
		commands = append(commands, []string{"--if-exists", "del-port", j.name}, add)
	}
	if err := change(ctx, commands); err != nil || b.Outer == 0 {
		return err
	}
	_, there := b.patches()
	return makeFlows(ctx, db.base(b.Device, b.DPDK), there, b.flows(there))
}

// flows makes Open vSwitch look at both tags of a frame from outside. Otherwise, where the patch port takes
// the outer tag off, it ignores the inner one: it treats all frames that differ only in that tag like the
// first, and one customer got the broadcasts of another behind the same router. A flow that takes the outer
// tag off makes it look at the inner one, even on a copy that goes nowhere (in Open vSwitch flow_pop_vlan,
// not xvlan_put).
func (b bridge) flows(port string) string {
	of := cookie(port)
	return fmt.Sprintf("delete %s/-1\nadd %s,priority=%d,reg9=0,dl_vlan=%d,"+
		"actions=clone(strip_vlan),%s\n", of, of, lowest-2, b.Outer, accept)
}

// remove removes the bridge, unless somebody has added ports to it.
func (b bridge) remove(ctx context.Context, db database, target string) error {
	for _, p := range slices.Sorted(maps.Keys(db.bridges[target].ports)) {
		if db.bridges[target].ports[p].mark == "" && p != target {
			return fmt.Errorf("%s has the port %s, that isolane did not make: %s del-port %[2]s, then the same again",
				target, p, vsctl)
		}
	}
	commands := [][]string{{"--if-exists", "del-br", target}}
	if _, there := b.patches(); b.Outer > 0 {
		if at, p := db.port(there); p != nil && p.mark != "" {
			if _, err := tool(ctx, ofctl, "", versions, "del-flows", at, cookie(there)+"/-1"); err != nil {
				return err
			}
			commands = append(commands, []string{"del-port", there})
		}
	}
	return change(ctx, commands)
}

func (b bridge) shell(db database, target string) string {
	text := vsctl + " add-br " + target + " -- set bridge " + target + " datapath_type=" + datapath(b.DPDK)
	for _, j := range b.wanted(db) {
		text += " -- add-port " + j.bridge + " " + j.name
		if j.outer > 0 {
			text += fmt.Sprintf(" vlan_mode=%s tag=%d", tunnel, j.outer)
		}
		if j.peer != "" {
			text += " -- set interface " + j.name + " type=patch options:peer=" + j.peer
		}
	}
	if b.Outer > 0 {
		text += fmt.Sprintf(" # %s add-flows %s: looks at both tags", ofctl, db.base(b.Device, b.DPDK))
	}
	return text
}
