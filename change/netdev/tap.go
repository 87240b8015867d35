package netdev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"isolane.dev/isolane/journal"
)

// kindTap makes a tap device for a virtual machine, through which all frames of another device of its
// namespace pass: a program at the ingress of each device redirects its frames to the other one (tc-bpf(8)).
// The target is NAMESPACE:DEVICE; a value is the tap's name, or "" for none.
const kindTap = "tap"

// TapOf returns the name of the tap of a device in its namespace: tap0 for eth0.
func TapOf(device string) string {
	return "tap" + strings.TrimLeftFunc(device, func(r rune) bool { return r < '0' || r > '9' })
}

// TapStep returns the step that gives a device in a namespace its tap, with the MTU of the device.
func TapStep(netns, device string) journal.Step {
	return journal.Step{Kind: kindTap, Target: netns + ":" + device, After: TapOf(device)}
}

type tap struct{}

// unmarked is the value of a device that a crash has left, or that is somebody else's.
const unmarked = "a device of that name that isolane did not make"

func (tap) Check(s journal.Step) error {
	netns, device, _ := strings.Cut(s.Target, ":")
	err := errors.Join(CheckName(netns), CheckDevice(device))
	for _, value := range []string{s.Before, s.After} {
		if value != "" && value != TapOf(device) && value != unmarked {
			err = errors.Join(err, fmt.Errorf("tap %s: %q: expected %s", s.Target, value, TapOf(device)))
		}
	}
	return err
}

// ends are the tap and the device whose frames it passes. Either is nil if it does not exist.
type ends struct {
	*netlink.Handle
	tap, device netlink.Link
}

// open finds both ends of a target, which the caller closes. It returns nil if there is no such namespace.
func (tap) open(target string) (*ends, error) {
	netns, device, _ := strings.Cut(target, ":")
	h, err := Open(netns)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e := &ends{Handle: h}
	for name, l := range map[string]*netlink.Link{TapOf(device): &e.tap, device: &e.device} {
		*l, err = h.LinkByName(name)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			*l, err = nil, nil
		}
		if err != nil {
			h.Close()
			return nil, err
		}
	}
	return e, nil
}

func (o tap) Read(_ context.Context, s journal.Step) (string, error) {
	e, err := o.open(s.Target)
	if e == nil || err != nil {
		return "", err
	}
	defer e.Close()
	switch {
	case e.tap == nil:
		return "", nil
	case e.tap.Attrs().Group != mark(s.Target):
		return unmarked, nil
	}
	return e.tap.Attrs().Name, nil
}

// MayOverwrite reports whether an unmarked device is in the way. A crash has left it: Write makes no tap if
// the name is taken.
func (tap) MayOverwrite(_ journal.Step, now string) bool { return now == unmarked }

// InForce reports whether each of the two devices redirects its frames to the other.
func (o tap) InForce(_ context.Context, s journal.Step, now string) (bool, error) {
	if now != s.After || now == "" {
		return now == s.After, nil
	}
	e, err := o.open(s.Target)
	if e == nil || err != nil {
		return false, err
	}
	defer e.Close()
	what, err := e.differs()
	return what == "" && err == nil, err
}

// differs says how the tap differs from how it was made.
func (e *ends) differs() (string, error) {
	if e.device == nil || e.tap == nil {
		return "none", nil
	}
	var what []string
	if mtu := e.tap.Attrs().MTU; mtu != e.device.Attrs().MTU {
		what = append(what, fmt.Sprint("mtu ", mtu))
	}
	if e.tap.Attrs().Flags&net.FlagUp == 0 {
		what = append(what, e.tap.Attrs().Name+" is down")
	}
	for _, way := range [][2]netlink.Link{{e.device, e.tap}, {e.tap, e.device}} {
		handed, err := e.handed(way[0], way[1])
		if err != nil {
			return "", err
		}
		if !handed {
			what = append(what, way[0].Attrs().Name+" hands on nothing")
		}
	}
	return strings.Join(what, ", "), nil
}

// handing returns the name of the filter that redirects frames to a device.
func handing(to netlink.Link) string { return fmt.Sprint("isolane-to-", to.Attrs().Index) }

// handed reports whether the frames that enter a device are redirected to another one.
func (e *ends) handed(from, to netlink.Link) (bool, error) {
	h, err := hookOf(e.Handle, from)
	if err != nil {
		return false, err
	}
	f := h.Own(handing(to))
	return f != nil && f.Name == handing(to), nil
}

// hand redirects the frames that enter a device to another one (bpf-helpers(7), bpf_redirect).
func (e *ends) hand(from, to netlink.Link) error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R1, int32(to.Attrs().Index)), asm.Mov.Imm(asm.R2, 0),
			asm.FnRedirect.Call(), asm.Return()}})
	if err != nil {
		return err
	}
	defer p.Close()
	h, err := hookOf(e.Handle, from)
	if err != nil {
		return err
	}
	return h.Attach(p, handing(to))
}

func (o tap) Write(_ context.Context, s journal.Step, value string) error {
	e, err := o.open(s.Target)
	if e == nil || err != nil {
		return err
	}
	defer e.Close()
	switch {
	case value == "" && e.tap == nil:
		return nil
	case value == "":
		return e.LinkDel(e.tap)
	case e.device == nil:
		netns, device, _ := strings.Cut(s.Target, ":")
		return Missing(netns, device)
	case e.tap == nil:
		if e.tap, err = e.makeTap(s.Target); err != nil {
			return err
		}
	case e.tap.Attrs().Group != mark(s.Target):
		return errors.New("there is already " + unmarked)
	}
	if err = setMTU(e.Handle, e.tap, e.device.Attrs().MTU); err == nil {
		err = e.LinkSetUp(e.tap)
	}
	for _, way := range [][2]netlink.Link{{e.device, e.tap}, {e.tap, e.device}} {
		if err == nil {
			err = e.hand(way[0], way[1])
		}
	}
	return err
}

// makeTap makes a persistent tap, which exists while nobody has it open (tun(4)). A virtual machine in the
// namespace may open it as any user.
func (e *ends) makeTap(target string) (netlink.Link, error) {
	netns, device, _ := strings.Cut(target, ":")
	err := In(netns, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = TapOf(device)
		return netlink.LinkAdd(&netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP,
			Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR})
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("/dev/net/tun: expected it, modprobe tun brings it: %w", err)
	}
	if err != nil {
		return nil, err
	}
	l, err := e.LinkByName(TapOf(device))
	if err == nil {
		err = e.LinkSetIP6AddrGenMode(l, noIPv6Address)
	}
	if err == nil {
		err = e.LinkSetGroup(l, int(mark(target))) // last: this marks the tap as Isolane's
	}
	return l, err
}

// Name says which device it is.
func (tap) Name(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	return "device " + TapOf(device) + " in " + netns
}

// Describe says whose frames the tap passes.
func (o tap) Describe(s journal.Step) (name, from, to string) {
	_, device, _ := strings.Cut(s.Target, ":")
	text := func(value string) string {
		if value == TapOf(device) {
			return "tap, with the frames of " + device
		}
		return value
	}
	return o.Name(s), text(s.Before), text(s.After)
}

// DescribeDrift says what differs from how the tap was made.
func (o tap) DescribeDrift(s journal.Step) (expected, found string) {
	_, found, expected = o.Describe(s)
	if e, err := o.open(s.Target); e != nil && err == nil && s.Before == s.After {
		defer e.Close()
		found, _ = e.differs()
	}
	return expected, found
}

// Shell returns an ip-tuntap(8) command, and says in a comment what the programs do.
func (tap) Shell(s journal.Step) string {
	netns, device, _ := strings.Cut(s.Target, ":")
	if s.After == "" {
		return fmt.Sprintf("ip -n %s link del %s", netns, TapOf(device))
	}
	return fmt.Sprintf("ip netns exec %s ip tuntap add %s mode tap vnet_hdr && ip -n %[1]s link set %[2]s up "+
		"# and by clsact of each bpf_redirect(): what enters %[2]s leaves by %[3]s, and what enters %[3]s by %[2]s",
		netns, TapOf(device), device)
}
