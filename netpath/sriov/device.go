package sriov

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
)

// at is a virtual function in its present state.
type at struct {
	target
	function
	address string          // of the function
	h       *netlink.Handle // in the card's namespace
	pf      netlink.Link
	inLane  bool // its device is in the lane's namespace
}

// find opens the function of a step. It fails with fs.ErrNotExist if there is no such function. The caller
// closes the handle.
func find(text string) (a at, err error) {
	if a.target, err = parseTarget(text); err != nil {
		return a, err
	}
	c, err := cardOf(a.card)
	all := c.functions()
	if err == nil && a.number >= len(all) {
		err = fmt.Errorf("%s: %w", c.file(fmt.Sprint("virtfn", a.number)), fs.ErrNotExist)
	}
	if err != nil {
		return a, err
	}
	if a.h, a.pf, err = netdev.Find("", c.device); err == nil && a.pf == nil {
		err = fs.ErrNotExist
	}
	if err != nil {
		return a, err
	}
	for _, vf := range a.pf.Attrs().Vfs {
		if vf.ID == a.number {
			a.Settings = settings{MAC: vf.Mac.String(), VLAN: vf.Vlan, QoS: vf.Qos, Spoof: vf.Spoofchk,
				Trust: vf.Trust == 1, Rate: vf.MaxTxRate, MinRate: new(vf.MinTxRate)} // trust: else off, or unknown
			if int(vf.LinkState) < len(linkStates()) {
				a.Settings.State = linkStates()[vf.LinkState]
			}
			if vf.Vlan > 0 {
				a.Settings.Proto = vf.VlanProto
			}
		}
	}
	a.address = all[a.number]
	if err = a.findDevice(); err != nil {
		a.h.Close()
	}
	return a, err
}

// findDevice looks for the function's device in the lane and on the host. A device that is elsewhere gets no
// name.
func (a *at) findDevice() error {
	look := func() (err error) { a.Name, err = netdev.OfPCI(a.address); return err }
	err := netdev.In(a.netns, look)
	if a.inLane = a.Name != ""; a.inLane || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err = look(); err != nil || a.Name == "" {
		return err
	}
	l, err := a.h.LinkByName(a.Name)
	if err == nil {
		a.MAC, a.MTU = l.Attrs().HardwareAddr.String(), l.Attrs().MTU
		a.AllMulticast = new(allMulticast(l))
	}
	return err
}

// linkStates are the words of ip-link(8) for IFLA_VF_LINK_STATE_AUTO and so on (linux/if_link.h).
func linkStates() []string { return []string{"auto", "enable", "disable"} }

// lacks says which field of the lane a driver does not support, if that is why it refused it.
func lacks(err error, field, what string) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return fmt.Errorf("the card's driver %s: expected no spec.network.%s: %w", what, field, err)
	}
	return err
}

// set sets those of the card's settings for the function that differ. The MAC address comes first or last,
// because it says whose the function is.
func (a *at) set(want settings, macFirst bool) error {
	now := a.Settings
	want = want.over(now)
	address, err := net.ParseMAC(want.MAC)
	mac := func() error {
		if now.MAC == want.MAC {
			return nil
		}
		return a.h.LinkSetVfHardwareAddr(a.pf, a.number, address)
	}
	if err == nil && macFirst {
		err = mac()
	}
	if err == nil && (now.VLAN != want.VLAN || now.QoS != want.QoS || now.Proto != want.Proto) {
		err = a.h.LinkSetVfVlanQosProto(a.pf, a.number, want.VLAN, want.QoS, cmp.Or(want.Proto, unix.ETH_P_8021Q))
		if want.Proto == unix.ETH_P_8021AD {
			err = lacks(err, "vlan.inner", "puts no tag of 802.1ad on")
		}
	}
	if err == nil && now.Spoof != want.Spoof {
		err = a.h.LinkSetVfSpoofchk(a.pf, a.number, want.Spoof)
	}
	if err == nil && now.Trust != want.Trust {
		err = lacks(a.h.LinkSetVfTrust(a.pf, a.number, want.Trust), "vf.trust", "sets no trust")
	}
	if err == nil && now.State != want.State {
		state := slices.Index(linkStates(), want.State)
		err = lacks(a.h.LinkSetVfState(a.pf, a.number, uint32(state)), "vf.state", "sets no state of a link")
	}
	if err == nil && (now.Rate != want.Rate || now.MinRate != want.MinRate) {
		least := 0
		if want.MinRate != nil {
			least = int(*want.MinRate)
		}
		if err = a.h.LinkSetVfRate(a.pf, a.number, least, int(want.Rate)); err != nil {
			err = fmt.Errorf("expected a card with its link up whose driver limits functions: %w", err)
		}
	}
	if err == nil && !macFirst {
		err = mac()
	}
	if err != nil {
		return fmt.Errorf("ip link set %s vf %d %s: %w", a.pf.Attrs().Name, a.number, want, err)
	}
	a.Settings = want
	return nil
}

// give brings the function's device into the lane.
func (a *at) give(ctx context.Context, f function) error {
	if f.Lane.Name == "" { // kindDriver gives it
		return a.set(f.Settings, true)
	}
	if a.Name == "" {
		return fmt.Errorf("virtual function %d of %s has no network device here: expected its driver to make one, "+
			"and nobody else to have it", a.number, a.card)
	}
	want := f.Settings
	want.Limited = want.Limited && a.inLane // at first no limit, even if its own step is refused later
	if err := a.set(want, true); err != nil {
		return err
	}
	if !a.inLane {
		if err := a.move(a.h, a.netns); err != nil {
			return err
		}
	}
	h, err := netdev.Open(a.netns)
	if err != nil {
		return err
	}
	defer h.Close()
	if err = a.rename(h, f.Lane.Name); err == nil {
		err = a.takeMAC(ctx, h, f.Settings.MAC)
	}
	if err == nil {
		err = f.Lane.Configure()
	}
	if err == nil && a.pf.Attrs().RawFlags&unix.IFF_UP != 0 && a.Settings.State != "disable" {
		err = a.awaitLink(ctx, h, f.Lane)
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w", f.Lane.Name, a.netns, err)
	}
	return nil
}

// awaitLink waits until the card has told the function about its link, which goes down for a while when the
// card gets functions. A card that was busy may have missed that the driver reset the function, and igbvf
// does not ask again by itself: so after a while the device is set up anew. A function whose link stays down
// is no error.
func (a *at) awaitLink(ctx context.Context, h *netlink.Handle, inside *netdev.Peer) error {
	var l netlink.Link
	var err error
	up := func() bool {
		l, err = h.LinkByName(inside.Name)
		return err != nil || l.Attrs().RawFlags&unix.IFF_RUNNING != 0
	}
	if late := wait(ctx, up); late != nil || err != nil || up() {
		return cmp.Or(late, err)
	}
	card, err := a.h.LinkByIndex(a.pf.Attrs().Index)
	if err != nil || card.Attrs().RawFlags&unix.IFF_RUNNING == 0 {
		return err
	}
	if err = h.LinkSetDown(l); err == nil {
		err = inside.Configure()
	}
	if err != nil {
		return err
	}
	late := wait(ctx, up)
	return cmp.Or(late, err)
}

// putBack restores the function as it was found. While its device is in the lane it keeps the card's tag, so
// that the lane's programs send nothing without it.
func (a *at) putBack(ctx context.Context, f function) error {
	if a.Name == "" {
		return a.set(f.Settings, false)
	}
	h := a.h
	if a.inLane {
		var err error
		if h, err = netdev.Open(a.netns); err != nil {
			return err
		}
		defer h.Close()
	}
	err := a.rename(h, a.mark())
	if err == nil {
		tagged := a.Settings
		tagged.MAC = f.Settings.MAC
		err = a.set(tagged, true)
	}
	if err == nil && f.MAC != "" {
		err = a.takeMAC(ctx, h, f.MAC)
	}
	if err == nil && f.MTU > 0 {
		err = a.putBackDevice(h, f)
	}
	if err == nil && a.inLane {
		err = a.move(h, "")
	}
	if err == nil {
		err = a.set(f.Settings, false)
	}
	if err == nil {
		err = a.rename(a.h, cmp.Or(f.Name, a.Name))
	}
	if errors.Is(err, unix.EEXIST) { // another device has that name now: try the next number
		err = a.rename(a.h, strings.TrimRight(f.Name, "0123456789")+"%d")
	}
	return err
}

// putBackDevice restores what the lane has set of the function's device.
func (a *at) putBackDevice(h *netlink.Handle, f function) error {
	l, err := h.LinkByName(a.Name)
	if err == nil && l.Attrs().MTU != f.MTU {
		err = h.LinkSetMTU(l, f.MTU)
	}
	if err != nil || f.AllMulticast == nil || *f.AllMulticast == allMulticast(l) {
		return err
	}
	if *f.AllMulticast { // its driver has made the device anew
		return h.LinkSetAllmulticastOn(l)
	}
	return h.LinkSetAllmulticastOff(l) // turned on for a tap
}

func allMulticast(l netlink.Link) bool { return l.Attrs().RawFlags&unix.IFF_ALLMULTI != 0 }

// move brings the device into another namespace; it is down after that.
func (a *at) move(h *netlink.Handle, netns string) error {
	l, err := h.LinkByName(a.Name)
	if err == nil {
		err = h.LinkSetDown(l)
	}
	if err == nil {
		err = netdev.MoveTo(h, l, netns)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.Name, err)
	}
	a.inLane = netns != ""
	return nil
}

// rename gives the device another name. It must be down for that.
func (a *at) rename(h *netlink.Handle, name string) error {
	if a.Name == name {
		return nil
	}
	l, err := h.LinkByName(a.Name)
	if err == nil {
		err = h.LinkSetDown(l)
	}
	if err == nil {
		err = h.LinkSetName(l, name)
	}
	if err != nil {
		return fmt.Errorf("%s: name %s: %w", a.Name, name, err)
	}
	a.Name = name
	return nil
}

// takeMAC makes the device use the MAC address that the card has for it. Drivers such as igbvf ask the card
// for it when the device is set down, and let nobody set another one. A card that does not answer in time, as
// one that is being reset, leaves the device with its former address, so it is made to ask again.
func (a *at) takeMAC(ctx context.Context, h *netlink.Handle, mac string) error {
	l, err := h.LinkByName(a.Name)
	if err != nil || l.Attrs().HardwareAddr.String() == mac {
		return err
	}
	address, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	late := wait(ctx, func() bool {
		if err = h.LinkSetUp(l); err == nil {
			err = h.LinkSetDown(l)
		}
		if err == nil {
			l, err = h.LinkByName(a.Name)
		}
		if err != nil || l.Attrs().HardwareAddr.String() == mac {
			return true
		}
		err = h.LinkSetHardwareAddr(l, address)
		return !errors.Is(err, unix.EADDRNOTAVAIL)
	})
	if err != nil {
		err = fmt.Errorf("%s: address %s: %w", a.Name, mac, err)
	}
	return cmp.Or(late, err)
}
