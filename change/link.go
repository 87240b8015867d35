package change

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// KindLink is a network device: the values are a Link as JSON. A device of that name that already exists and
// is not exactly ours is an error, never taken over.
const KindLink = "link"

// Link is a network device of the host, and for a veth its other end. It is the value of a step of
// kind link, as JSON.
type Link struct {
	Type   string `json:"type"`             // veth or bridge
	Master string `json:"master,omitempty"` // the bridge that it is a port of
	Peer   *Peer  `json:"peer,omitempty"`   // veth only
	// GRO joins the frames that come out of the device before the host handles them (generic receive
	// offload), as drivers of network cards do. A veth has none unless it is asked for.
	GRO bool `json:"gro,omitempty"`
}

// Peer is the end of a veth pair inside a namespace.
type Peer struct {
	Netns     string         `json:"netns"`
	Name      string         `json:"name"`
	MAC       string         `json:"mac"`
	Addresses []netip.Prefix `json:"addresses"`
	// WireFrames keeps frames to the size that a wire carries: TCP's segmentation is not left to a
	// device that does not exist.
	WireFrames bool `json:"wireFrames"`
}

// LinkStep is the step that makes the device name.
func LinkStep(name string, l Link) (journal.Step, error) {
	data, err := json.Marshal(l)
	return journal.Step{Kind: KindLink, Target: name, After: string(data)}, err
}

type link struct{}

func (link) Check(s journal.Step) error {
	var l Link
	if s.After == "" || json.Unmarshal([]byte(s.After), &l) != nil {
		return fmt.Errorf("link %s: %q: expected a description in JSON", s.Target, s.After)
	}
	if l.Peer != nil {
		return errors.Join(checkName(s.Target), checkName(l.Peer.Netns), checkName(l.Peer.Name))
	}
	return checkName(s.Target)
}

// Read returns the asked value where the device carries its mark; so a device of somebody else
// never looks like ours.
func (link) Read(_ context.Context, s journal.Step) (string, error) {
	h, err := Netns("")
	if err != nil {
		return "", err
	}
	defer h.Close()
	l, err := h.LinkByName(s.Target)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if l.Attrs().Group == mark(s.After) {
		return s.After, nil
	}
	return fmt.Sprintf("a %s that isolane did not make", l.Type()), nil
}

// mark is the device group that says a device was made for this value. The group is set in the
// call that makes the device, so there is no moment in which a crash leaves an unmarked one.
func mark(value string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(value)) // never fails
	return h.Sum32() | 1<<30
}

func (link) Write(_ context.Context, s journal.Step, value string) error {
	h, err := Netns("")
	if err != nil {
		return err
	}
	defer h.Close()
	if value == "" {
		l, lerr := h.LinkByName(s.Target)
		if lerr != nil {
			return lerr
		}
		return h.LinkDel(l)
	}
	if s.Before != "" {
		return fmt.Errorf("there is already %s", s.Before)
	}
	var spec Link
	if err = json.Unmarshal([]byte(value), &spec); err != nil {
		return err
	}
	if err = add(h, s.Target, spec, mark(value)); err != nil {
		return err
	}
	l, err := h.LinkByName(s.Target)
	if err != nil {
		return err
	}
	// A host-side port is no address of the host: without this the kernel gives it one and talks.
	if err = h.LinkSetIP6AddrGenMode(l, nl.IN6_ADDR_GEN_MODE_NONE); err != nil {
		return err
	}
	if spec.GRO {
		if err = offload(s.Target, unix.ETHTOOL_SGRO, true); err != nil {
			return fmt.Errorf("%s: generic receive offload: %w", s.Target, err)
		}
	}
	if spec.Peer != nil {
		if err = configure(*spec.Peer); err != nil {
			return err
		}
	}
	return h.LinkSetUp(l)
}

func add(h *netlink.Handle, name string, spec Link, group uint32) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	attrs.Group = group
	switch {
	case spec.Type == "bridge":
		return h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	case spec.Type != "veth" || spec.Peer == nil:
		return fmt.Errorf("link %s: type %q: expected bridge, or veth with a peer", name, spec.Type)
	}
	if spec.Master != "" {
		m, err := h.LinkByName(spec.Master)
		if err != nil {
			return err
		}
		attrs.MasterIndex = m.Attrs().Index
	}
	mac, err := net.ParseMAC(spec.Peer.MAC)
	if err != nil {
		return err
	}
	ns, err := openNetns(spec.Peer.Netns)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	return h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: spec.Peer.Name, PeerHardwareAddr: mac,
		PeerNamespace: netlink.NsFd(ns)})
}

func openNetns(name string) (int, error) {
	fd, err := unix.Open(NetnsDir+"/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("network namespace %s: %w", name, err)
	}
	return fd, nil
}

// configure gives the inner end its addresses and sets it up. Duplicate address detection would
// hold IPv6 back for a second, on a link where Isolane hands out all addresses.
func configure(p Peer) error {
	h, err := Netns(p.Netns)
	if err != nil {
		return err
	}
	defer h.Close()
	l, err := h.LinkByName(p.Name)
	if err != nil {
		return err
	}
	if p.WireFrames { // the kernel then cuts segments before it hands them over
		err = inNetns(p.Netns, func() error { return offload(p.Name, unix.ETHTOOL_STSO, false) })
		if err != nil {
			return fmt.Errorf("%s in %s: segmentation offload: %w", p.Name, p.Netns, err)
		}
	}
	for _, a := range p.Addresses {
		ipnet := &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}
		if err = h.AddrAdd(l, &netlink.Addr{IPNet: ipnet, Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("%s in %s: address %s: %w", p.Name, p.Netns, a, err)
		}
	}
	return h.LinkSetUp(l)
}

// offload turns what a device does for the stack on or off, as ethtool -K does: command is ETHTOOL_SGRO or
// another of include/uapi/linux/ethtool.h that takes a number.
func offload(device string, command uint32, on bool) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{command: command}
	if on {
		value.data = 1
	}
	request := struct {
		name [unix.IFNAMSIZ]byte
		data *struct{ command, data uint32 }
		_    [16]byte
	}{data: &value}
	copy(request.name[:unix.IFNAMSIZ-1], device)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return errno
	}
	return nil
}

// Shell is ip-link(8).
func (link) Shell(s journal.Step) string {
	var l Link
	switch {
	case s.After == "":
		return "ip link del " + s.Target
	case json.Unmarshal([]byte(s.After), &l) != nil || l.Peer == nil:
		return fmt.Sprintf("ip link add %s type bridge && ip link set %[1]s up", s.Target)
	}
	gro := ""
	if l.GRO {
		gro = fmt.Sprintf(" && ethtool -K %s gro on", s.Target)
	}
	return fmt.Sprintf("ip link add %s type veth peer name %s address %s netns %s%s && ip link set %[1]s up",
		s.Target, l.Peer.Name, l.Peer.MAC, l.Peer.Netns, gro)
}
