package netdev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// KindLink makes a network device. A value is a Link as JSON. If a device of that name exists and is not
// exactly Isolane's, that is an error: it is never taken over. For a device with a peer, the target is the
// host's end. Macvlans, VLANs with a peer and veths between namespaces have no host end; for them the target
// is only the name of the step.
const KindLink = "link"

// The types of a Link, as ip-link(8) calls them.
const (
	Bridge  = "bridge"
	Veth    = "veth"    // a pair: one end is the host's, the peer is in a namespace or also the host's
	Macvlan = "macvlan" // only the peer, with its own MAC address on the parent
	VLAN    = "vlan"    // the frames of the parent that have a tag, without it; on the host, or only a peer
)

// Link is a network device of the host, and for a veth its other end. As JSON it is the value of a step of
// KindLink.
type Link struct {
	Type   string `json:"type"`
	Master string `json:"master,omitempty"` // the bridge whose port it is
	Parent string `json:"parent,omitempty"` // the device below a macvlan or VLAN
	Tag    int    `json:"tag,omitempty"`    // of a VLAN
	// Service selects an outer tag (IEEE 802.1ad) instead of an 802.1Q tag.
	Service bool `json:"service,omitempty"`
	// Within says that the parent of a VLAN is in the peer's namespace too, not on the host.
	Within bool  `json:"within,omitempty"`
	Peer   *Peer `json:"peer,omitempty"` // of veth, macvlan and vlan
	Far    *Peer `json:"far,omitempty"`  // of a veth between two namespaces, instead of the host's end
	// GRO joins the frames that come out of the device before the host handles them (generic receive offload),
	// as drivers of network cards do. A veth does not do that by default.
	GRO bool `json:"gro,omitempty"`
	// WireFrames limits frames to the size that a wire carries: the kernel does TCP's segmentation itself, and
	// does not leave it to a virtual device.
	WireFrames bool `json:"wireFrames,omitempty"`
}

// Peer is the device inside a namespace.
type Peer struct {
	Netns      string         `json:"netns"` // "" is the host's; only for a veth
	Name       string         `json:"name"`
	MAC        string         `json:"mac"`
	Addresses  []netip.Prefix `json:"addresses"`
	Gateways   []netip.Addr   `json:"gateways,omitempty"`  // default routes
	MTU        int            `json:"mtu,omitempty"`       // 0: the kernel's default, 1500 or the parent's
	GRO        bool           `json:"gro,omitempty"`       // as in Link
	WireFrames bool           `json:"wireFrames"`          // as in Link
	Checksums  bool           `json:"checksums,omitempty"` // its frames have checksums, as on a wire
	Bare       bool           `json:"bare,omitempty"`      // all its frames are a machine's: the host sends none
}

// LinkStep returns the step that makes the device name.
func LinkStep(name string, l Link) (journal.Step, error) {
	data, err := json.Marshal(l)
	return journal.Step{Kind: KindLink, Target: name, After: string(data)}, err
}

func parseLink(s journal.Step) (Link, error) {
	var l Link
	if s.After == "" || json.Unmarshal([]byte(s.After), &l) != nil {
		return l, fmt.Errorf("link %s: %q: expected a description in JSON", s.Target, s.After)
	}
	return l, nil
}

// inside reports whether the device has no end on the host.
func (l Link) inside() bool {
	return l.Peer != nil && (l.Type == Macvlan || l.Type == VLAN || l.Far != nil)
}

type link struct{}

// deviceNameSize is the longest name of a device (IFNAMSIZ, include/uapi/linux/if.h).
const deviceNameSize = unix.IFNAMSIZ - 1

// CheckDevice returns an error unless name can be that of a network device.
func CheckDevice(name string) error {
	if err := CheckName(name); err != nil || len(name) <= deviceNameSize {
		return err
	}
	return fmt.Errorf("%q: expected at most %d letters, the name of a device", name, deviceNameSize)
}

func (link) Check(s journal.Step) error {
	l, err := parseLink(s)
	if err != nil {
		return err
	}
	err = CheckDevice(s.Target)
	switch p := l.Peer; {
	case p != nil:
		err = errors.Join(err, CheckDevice(p.Name))
		if p.Netns != "" || l.inside() {
			err = errors.Join(err, CheckName(p.Netns))
		}
		if p = l.Far; p != nil {
			err = errors.Join(err, CheckDevice(p.Name), CheckName(p.Netns))
		} else if l.inside() {
			err = errors.Join(err, CheckDevice(l.Parent))
		}
	case l.Type == VLAN:
		err = errors.Join(err, CheckDevice(l.Parent))
	case l.Type != Bridge:
		err = errors.Join(err, fmt.Errorf("link %s: type %q: expected bridge or vlan, or veth or macvlan with a "+
			"peer", s.Target, l.Type))
	}
	return err
}

// Read returns Replaced or After if the device carries the mark of that value. So a device of somebody else
// never looks like Isolane's.
func (link) Read(_ context.Context, s journal.Step) (string, error) {
	found := ""
	for _, value := range []string{s.Replaced, s.After} {
		if value == "" {
			continue
		}
		spec, err := parseLink(journal.Step{Target: s.Target, After: value})
		if err != nil {
			return "", err
		}
		h, l, err := own(s.Target, spec)
		if err != nil {
			return "", err
		}
		if l == nil {
			continue
		}
		h.Close()
		switch l.Attrs().Group {
		case mark(value):
			return value, nil
		case leaving:
			return leaves, nil
		}
		found = fmt.Sprintf("a %s that isolane did not make", l.Type())
	}
	return found, nil
}

// InForce reports whether the device exists and is set up as it was made.
func (link) InForce(_ context.Context, s journal.Step, now string) (bool, error) {
	if now != s.After {
		return false, nil
	}
	spec, err := parseLink(s)
	if err != nil {
		return false, err
	}
	what, err := spec.differs(s.Target)
	return what == "" && err == nil, err
}

// Name says which device it is.
func (link) Name(s journal.Step) string {
	if spec, err := parseLink(s); err == nil && spec.Peer != nil && spec.Peer.Netns != "" {
		return "device " + spec.Peer.Name + " in " + spec.Peer.Netns
	}
	return "device " + s.Target
}

// Describe says which device appears or disappears.
func (o link) Describe(s journal.Step) (name, from, to string) {
	text := func(value string) string {
		var l Link
		if value == "" || json.Unmarshal([]byte(value), &l) != nil {
			return value
		}
		return l.String()
	}
	if s.After == "" { // the step removes it
		return o.Name(s.Inverse()), text(s.Before), ""
	}
	return o.Name(s), text(s.Before), text(s.After)
}

// DescribeDrift says what differs from how the device was made.
func (o link) DescribeDrift(s journal.Step) (expected, found string) {
	spec, err := parseLink(s)
	if err != nil {
		return s.After, err.Error()
	}
	if s.Before != s.After {
		_, found, expected = o.Describe(s)
		return expected, found
	}
	what, err := spec.differs(s.Target)
	if err != nil {
		what = err.Error()
	}
	return spec.String(), what
}

// String describes the device in the words of ip-link(8).
func (l Link) String() string {
	words := []string{l.Type}
	if l.Parent != "" {
		words = append(words, "of "+l.Parent)
	}
	if l.Tag > 0 {
		words = append(words, fmt.Sprint(l.Protocol(), " tag ", l.Tag))
	}
	if l.Master != "" {
		words = append(words, "master "+l.Master)
	}
	if p := l.Peer; p != nil {
		words = append(words, "address "+p.MAC)
		if p.MTU > 0 {
			words = append(words, fmt.Sprint("mtu ", p.MTU))
		}
		for _, a := range p.Addresses {
			words = append(words, a.String())
		}
		for _, g := range p.Gateways {
			words = append(words, "via "+g.String())
		}
	}
	return strings.Join(words, " ")
}

// Protocol returns the kernel's protocol number of the tag. It prints as in ip-link(8).
func (l Link) Protocol() netlink.VlanProtocol {
	if l.Service {
		return netlink.VLAN_PROTOCOL_8021AD
	}
	return netlink.VLAN_PROTOCOL_8021Q
}

// mark returns the device group that marks a device as made for this value. The group is set in the call that
// makes the device, so a crash never leaves an unmarked one.
func mark(value string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(value)) // never fails
	return h.Sum32() | 1<<30
}

// leaving is the device group of devices that are being deleted together. leaves is the value that Read
// returns for a device that a crash has left in that group.
const (
	leaving = 1<<30 - 1
	leaves  = "being taken away"
)

// Gathers reports whether the device has an end on the host: those are deleted together. The kernel waits
// until no CPU uses a device any more, and for many that takes as long as for one.
func (link) Gathers(s journal.Step) bool {
	spec, err := parseLink(s)
	return err == nil && !spec.inside() && s.Before == ""
}

// UndoTogether has the kernel delete the devices in one request, by their group.
func (o link) UndoTogether(ctx context.Context, steps []journal.Step) (n int) {
	h, err := Open("")
	if err != nil {
		return 0
	}
	defer h.Close()
	for _, s := range steps {
		now, rerr := o.Read(ctx, s)
		l, lerr := h.LinkByName(s.Target)
		if rerr == nil && lerr == nil && now == s.After && h.LinkSetGroup(l, leaving) == nil {
			n++
		}
	}
	if n == 0 {
		return 0
	}
	del := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK) // rtnetlink(7): IFLA_GROUP without an index
	del.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	del.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(leaving)))
	if _, err = del.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return 0
	}
	return n
}

// MayOverwrite reports whether a crash has left the device while it was being deleted. Then it is Isolane's.
func (link) MayOverwrite(_ journal.Step, now string) bool { return now == leaves }

// MadeAnew says that a device of another value is another device. Its predecessor has to go first: a card
// gives its frames to a bridge only when its last macvlan has gone.
func (link) MadeAnew() {}

// Write makes the device, sets it up again if it exists as Isolane's, or deletes it.
func (o link) Write(ctx context.Context, s journal.Step, value string) error {
	now, err := o.Read(ctx, s)
	if err != nil {
		return err
	}
	if now != value && (now == s.After || now == s.Replaced || now == leaves) && now != "" { // Isolane's
		var was Link // stays empty for leaves: no device inside a namespace is in that group
		if now != leaves {
			if was, err = parseLink(journal.Step{Target: s.Target, After: now}); err != nil {
				return err
			}
		}
		if err = remove(s.Target, was); err != nil {
			return err
		}
		now = ""
	}
	if value == "" {
		return nil
	}
	spec, err := parseLink(s)
	if err != nil {
		return err
	}
	switch now {
	case value:
	case "":
		if err = spec.add(s.Target, mark(value)); err != nil {
			return err
		}
	default:
		return fmt.Errorf("there is already %s", now)
	}
	if err = spec.configure(s.Target); err != nil || spec.Master == "" || spec.Peer == nil {
		return err
	}
	err = waitForwarding(ctx, s.Target, spec.Master)
	if err != nil && now == value && ctx.Err() == nil { // other changes need not wait for this bridge
		return &journal.UnansweredError{Err: err}
	}
	return err
}

// Shell returns ip-link(8) commands.
func (link) Shell(s journal.Step) string {
	l, err := parseLink(s)
	switch p := l.Peer; {
	case s.After == "" || err != nil:
		return "ip link del " + s.Target
	case l.Far != nil:
		return fmt.Sprintf("ip link add %s address %s netns %s type veth peer name %s address %s netns %s",
			p.Name, p.MAC, p.Netns, l.Far.Name, l.Far.MAC, l.Far.Netns)
	case l.inside():
		kind := "macvlan mode bridge"
		if l.Type == VLAN {
			kind = fmt.Sprintf("vlan protocol %s id %d", l.Protocol(), l.Tag)
		}
		if l.Within {
			return fmt.Sprintf("ip -n %s link add %s link %s address %s type %s", p.Netns, p.Name, l.Parent, p.MAC,
				kind)
		}
		return fmt.Sprintf("ip link add %s link %s address %s netns %s type %s", p.Name, l.Parent, p.MAC, p.Netns,
			kind)
	case l.Type == VLAN:
		return fmt.Sprintf("ip link add %s link %s type vlan protocol %s id %d && ip link set %[1]s up", s.Target,
			l.Parent, l.Protocol(), l.Tag)
	case p == nil:
		return fmt.Sprintf("ip link add %s type bridge mcast_snooping 0 && ip link set %[1]s up", s.Target)
	default:
		netns, gro := "", ""
		if p.Netns != "" {
			netns = " netns " + p.Netns
		}
		if l.GRO {
			gro = fmt.Sprintf(" && ethtool -K %s gro on", s.Target)
		}
		return fmt.Sprintf("ip link add %s type veth peer name %s address %s%s%s && ip link set %[1]s up",
			s.Target, p.Name, p.MAC, netns, gro)
	}
}
