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

// KindLink is a network device: the values are a Link as JSON. A device of that name that already exists and
// is not exactly ours is an error, never taken over. Of a device with a peer the target is the host's end;
// that of a macvlan, of a vlan with a peer or of a veth between namespaces, which have none, is a name for
// the step only.
const KindLink = "link"

// The types of a Link, as ip-link(8) calls them.
const (
	Bridge  = "bridge"
	Veth    = "veth"    // a pair: one end is the host's, the peer is in a namespace or the host's too
	Macvlan = "macvlan" // the peer alone, with a MAC address of its own on the parent
	VLAN    = "vlan"    // the frames of the parent that have a tag, without it; on the host, or the peer alone
)

// Link is a network device of the host, and of a veth its other end. It is the value of a step of
// kind link, as JSON.
type Link struct {
	Type   string `json:"type"`
	Master string `json:"master,omitempty"` // the bridge that it is a port of
	Parent string `json:"parent,omitempty"` // the device below, of macvlan and vlan
	Tag    int    `json:"tag,omitempty"`    // of a vlan
	// Service says that the tag is an outer one (IEEE 802.1ad); else it is one of 802.1Q.
	Service bool  `json:"service,omitempty"`
	Peer    *Peer `json:"peer,omitempty"` // of veth, macvlan and vlan
	Far     *Peer `json:"far,omitempty"`  // of a veth between two namespaces: in the place of the host's end
	// GRO joins the frames that come out of the device before the host handles them (generic receive
	// offload), as drivers of network cards do. A veth has none unless it is asked for.
	GRO bool `json:"gro,omitempty"`
	// WireFrames keeps frames to the size that a wire carries: TCP's segmentation is not left to a
	// device that does not exist.
	WireFrames bool `json:"wireFrames,omitempty"`
}

// Peer is the device inside a namespace.
type Peer struct {
	Netns      string         `json:"netns"` // "" is the host's, of veth only
	Name       string         `json:"name"`
	MAC        string         `json:"mac"`
	Addresses  []netip.Prefix `json:"addresses"`
	Gateways   []netip.Addr   `json:"gateways,omitempty"`  // default routes
	MTU        int            `json:"mtu,omitempty"`       // 0: the kernel's, 1500 or that of the parent
	GRO        bool           `json:"gro,omitempty"`       // as of a Link
	WireFrames bool           `json:"wireFrames"`          // as of a Link
	Checksums  bool           `json:"checksums,omitempty"` // its frames have them, as on a wire
	Bare       bool           `json:"bare,omitempty"`      // it says nothing itself: its frames are a machine's
}

// LinkStep is the step that makes the device name.
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

// inside says that the device has no end on the host.
func (l Link) inside() bool {
	return l.Peer != nil && (l.Type == Macvlan || l.Type == VLAN || l.Far != nil)
}

type link struct{}

// deviceNameSize is the most that a device's name can have (IFNAMSIZ, include/uapi/linux/if.h).
const deviceNameSize = unix.IFNAMSIZ - 1

// CheckDevice says whether a name can be that of a network device.
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

// Read returns the asked value, or the one that it replaces, where the device carries the mark of that; so a
// device of somebody else never looks like ours.
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

// InForce says whether the device is there and is set as it was made.
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

// Name says what it is.
func (link) Name(s journal.Step) string {
	if spec, err := parseLink(s); err == nil && spec.Peer != nil && spec.Peer.Netns != "" {
		return "device " + spec.Peer.Name + " in " + spec.Peer.Netns
	}
	return "device " + s.Target
}

// Describe says what comes or goes.
func (o link) Describe(s journal.Step) (name, from, to string) {
	text := func(value string) string {
		var l Link
		if value == "" || json.Unmarshal([]byte(value), &l) != nil {
			return value
		}
		return l.String()
	}
	if s.After == "" { // it is taken away
		return o.Name(s.Inverse()), text(s.Before), ""
	}
	return o.Name(s), text(s.Before), text(s.After)
}

// DescribeDrift says what is no longer as it was made.
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

// String says in the words of ip-link(8) what it is.
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

// Protocol is that of a tag, as ip-link(8) calls it and as the kernel knows it.
func (l Link) Protocol() netlink.VlanProtocol {
	if l.Service {
		return netlink.VLAN_PROTOCOL_8021AD
	}
	return netlink.VLAN_PROTOCOL_8021Q
}

// mark is the device group that says a device was made for this value. The group is set in the
// call that makes the device, so there is no moment in which a crash leaves an unmarked one.
func mark(value string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(value)) // never fails
	return h.Sum32() | 1<<30
}

// leaving is the group of devices that are taken away together, and leaves the value of one that a crash has
// left in it.
const (
	leaving = 1<<30 - 1
	leaves  = "being taken away"
)

// Gathers says that a device with an end on the host goes with others: the kernel waits as long for one as
// for many, until no CPU uses them any more.
func (link) Gathers(s journal.Step) bool {
	spec, err := parseLink(s)
	return err == nil && !spec.inside() && s.Before == ""
}

// UndoTogether has the kernel take devices away at once, by their group.
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
	del := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK) // rtnetlink(7), IFLA_GROUP without an index
	del.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	del.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(leaving)))
	if _, err = del.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return 0
	}
	return n
}

// MayOverwrite says that what a crash has left to be taken away is ours.
func (link) MayOverwrite(_ journal.Step, now string) bool { return now == leaves }

// MadeAnew says that a device of another value is another device: a card gives its frames to a bridge only
// when the last macvlan on it has gone.
func (link) MadeAnew() {}

// Write makes the device, sets one that is ours as it was made, or takes it away.
func (o link) Write(ctx context.Context, s journal.Step, value string) error {
	now, err := o.Read(ctx, s)
	if err != nil {
		return err
	}
	if now != value && (now == s.After || now == s.Replaced || now == leaves) && now != "" { // ours
		var was Link // without a type where it leaves: none that is inside a namespace does
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
	if err != nil && now == value && ctx.Err() == nil { // nobody's changes wait for a bridge
		return &journal.UnansweredError{Err: err}
	}
	return err
}

// Shell is ip-link(8).
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
