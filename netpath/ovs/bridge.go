package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
)

// KindBridge is the kind of the steps that BridgeOp does: the target is a bridge of Isolane's. It is not made
// where the device is a bridge of somebody else, which then is the lanes'.
const KindBridge = "ovs-bridge"

// bridge joins lanes with an uplink. It is the value of a step, as JSON.
type bridge struct {
	Device string `json:"device"` // "": none
	// Outer is the tag of IEEE 802.1ad that the device's bridge puts around what leaves this one, which knows the
	// inner tags: a provider edge bridge in two parts (clause 15.4 of IEEE 802.1Q), joined by patch ports.
	Outer int `json:"outer,omitempty"`
}

func (b bridge) name() string {
	if b.Outer == 0 {
		return own(b.Device)
	}
	return own(fmt.Sprintf("%s.s%d", b.Device, b.Outer))
}

// patches are the ports that join this bridge with that of the device: here, and there.
func (b bridge) patches() (here, there string) {
	id := fmt.Sprintf("%s.s%d", b.Device, b.Outer)
	return netpath.DeviceName("islp-", id), netpath.DeviceName("islq-", id)
}

// String says what it is.
func (b bridge) String() string {
	switch {
	case b.Outer > 0:
		return fmt.Sprintf("behind the bridge of %s, with tag %d of 802.1ad around", b.Device, b.Outer)
	case b.Device != "":
		return "with " + b.Device + " as a port"
	}
	return "of lanes only"
}

// datapath is that of a new bridge. The kernel loads the module where it has one and is asked for it.
func datapath() string {
	if _, err := netlink.GenlFamilyGet("ovs_datapath"); err != nil {
		return "netdev"
	}
	return "system"
}

// BridgeOp makes bridges and takes them away.
type BridgeOp struct{ overwriter }

// Check says what in a step cannot be.
func (BridgeOp) Check(s journal.Step) error {
	b, err := parse[bridge](s)
	if err == nil && (b.name() != s.Target || b.Outer < 0 || b.Outer > 4094) {
		err = fmt.Errorf("%s is not the bridge of %+v", s.Target, b)
	}
	if err == nil && b.Device != "" {
		err = netdev.CheckDevice(b.Device)
	}
	return err
}

// Read returns the step's value where there is the bridge with the mark of that, or where none is needed.
func (BridgeOp) Read(ctx context.Context, s journal.Step) (string, error) {
	b, err := parse[bridge](s)
	if err != nil {
		return "", err
	}
	db, err := read(ctx)
	if err != nil {
		return unread(ctx, err)
	}
	return db.readBridge(b, s), nil
}

// unread is what is there where Open vSwitch could not be asked.
func unread(ctx context.Context, err error) (string, error) {
	if ctx.Err() != nil || errors.Is(err, fs.ErrPermission) {
		return "", err
	}
	return silent + err.Error(), nil
}

func (db database) readBridge(b bridge, s journal.Step) string {
	found := db.bridges[s.Target]
	switch {
	case found == nil && b.Outer == 0 && db.bridges[b.Device] != nil:
		return s.After
	case found == nil:
		return ""
	}
	for _, p := range slices.Sorted(maps.Keys(found.ports)) {
		if found.mark != "" && found.ports[p].mark == "" && p != s.Target {
			return fmt.Sprintf("with the port %s, that isolane did not make", p)
		}
	}
	return present(s, "bridge", found.mark)
}

// InForce says whether the bridge is there and joined with its device.
func (o BridgeOp) InForce(ctx context.Context, s journal.Step) (bool, error) {
	what, err := o.differs(ctx, s)
	return what == "" && err == nil, err
}

// differs says what is not as it was made; "" where all is.
func (BridgeOp) differs(ctx context.Context, s journal.Step) (string, error) {
	b, err := parse[bridge](s)
	if err != nil {
		return "", err
	}
	db, err := read(ctx)
	if err != nil {
		return unread(ctx, err)
	}
	found := db.bridges[s.Target]
	if found == nil && b.Outer == 0 && db.bridges[b.Device] != nil {
		return "", nil
	}
	switch {
	case found == nil:
		return "none", nil
	case found.mark != mark(s.After):
		return cmp.Or(db.readBridge(b, s), earlier), nil
	}
	var what []string
	for _, want := range b.wanted(db) {
		at, p := db.port(want.name)
		if at != want.bridge || p.mark == "" || want.outer != max(p.tag, 0) || (want.outer > 0) != (p.mode == tunnel) {
			what = append(what, "no port "+want.name+want.words())
		} else if p.failed != "" {
			what = append(what, want.name+": "+p.failed)
		}
	}
	return strings.Join(what, ", "), nil
}

// tunnel is the vlan_mode of a port that puts a tag around what enters there, tagged or not.
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
		return []joint{{b.name(), here, there, 0}, {db.base(b.Device), there, here, b.Outer}}
	case b.Device != "":
		return []joint{{b.name(), b.Device, "", 0}}
	}
	return nil
}

// Write makes the bridge, or sets one that is ours as it was made, or takes it away.
func (o BridgeOp) Write(ctx context.Context, s journal.Step, value string) error {
	b, err := parse[bridge](s)
	if err != nil {
		return err
	}
	db, err := read(ctx)
	if err != nil {
		return err
	}
	found := db.bridges[s.Target]
	if found != nil && found.mark == "" {
		return fmt.Errorf("there is already a bridge %s, that isolane did not make", s.Target)
	}
	if !strings.HasPrefix(value, "{") {
		if found == nil {
			return nil
		}
		return change(ctx, b.remove(db))
	}
	commands := db.leftovers()
	if found != nil && !leftover(found.mark) && found.mark != mark(value) {
		commands = append(commands, b.remove(db)...)
	}
	with := datapath()
	if base := db.bridges[db.base(b.Device)]; b.Outer > 0 && base != nil {
		with = base.datapath
	}
	commands = append(commands, []string{"--may-exist", "add-br", s.Target}, []string{"set", "Bridge", s.Target,
		"external_ids:" + markKey + "=" + mark(value)})
	if with != "" {
		commands = append(commands, []string{"set", "Bridge", s.Target, "datapath_type=" + with})
	}
	for _, j := range b.wanted(db) {
		if j.peer != "" { // as it was made, whatever it is now
			commands = append(commands, []string{"--if-exists", "del-port", j.name})
		}
		commands = append(commands, []string{"--may-exist", "add-port", j.bridge, j.name},
			[]string{"set", "Port", j.name, "external_ids:" + markKey + "=" + mark(value)})
		if j.peer != "" {
			commands = append(commands, []string{"set", "Interface", j.name, "type=patch", "options:peer=" + j.peer})
		}
		if j.outer > 0 {
			commands = append(commands, []string{"set", "Port", j.name, "vlan_mode=" + tunnel, fmt.Sprint("tag=", j.outer)})
		}
	}
	return change(ctx, commands)
}

func (b bridge) remove(db database) [][]string {
	commands := [][]string{{"--if-exists", "del-br", b.name()}}
	if _, there := b.patches(); b.Outer > 0 {
		if _, p := db.port(there); p != nil && p.mark != "" {
			commands = append(commands, []string{"--if-exists", "del-port", there})
		}
	}
	return commands
}

// Name says what it is.
func (BridgeOp) Name(s journal.Step) string { return "Open vSwitch bridge " + s.Target }

// Describe says what comes or goes.
func (o BridgeOp) Describe(s journal.Step) (name, from, to string) {
	return o.Name(s), words[bridge](s.Before), words[bridge](s.After)
}

// words are a value for people.
func words[T bridge | port](value string) string {
	v, err := parse[T](journal.Step{After: value})
	if err != nil {
		return value
	}
	return fmt.Sprint(v)
}

// DescribeDrift says what is no longer as it was made.
func (o BridgeOp) DescribeDrift(s journal.Step) (expected, found string) {
	what, err := o.differs(context.Background(), s)
	if err != nil {
		what = err.Error()
	}
	return words[bridge](s.After), what
}

// Shell is ovs-vsctl(8).
func (BridgeOp) Shell(s journal.Step) string {
	if s.After == "" {
		return vsctl + " del-br " + s.Target
	}
	text := vsctl + " add-br " + s.Target + " -- set bridge " + s.Target + " datapath_type=" + datapath()
	b, err := parse[bridge](s)
	db, rerr := read(context.Background())
	if err != nil || rerr != nil {
		return text
	}
	for _, j := range b.wanted(db) {
		text += " -- add-port " + j.bridge + " " + j.name
		if j.outer > 0 {
			text += fmt.Sprintf(" vlan_mode=%s tag=%d", tunnel, j.outer)
		}
		if j.peer != "" {
			text += " -- set interface " + j.name + " type=patch options:peer=" + j.peer
		}
	}
	return text
}
