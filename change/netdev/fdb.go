package netdev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/journal"
)

// Entries of forwarding tables, bridge(8). Targets are DEVICE MAC, the values are "" or Present.
const (
	// kindUnicast is a further MAC address for which a device of the host takes frames (dev_uc_add_excl,
	// net/core/dev_addr_lists.c).
	kindUnicast = "unicast"
	// kindStation is a MAC address that is behind a port of a bridge, and stays there even if frames from it
	// arrive by another port (BR_FDB_STICKY, net/bridge/br_fdb.c).
	kindStation = "station"
)

// UnicastStep returns the step that makes a device take frames for a MAC address. The driver may have no room
// for it.
func UnicastStep(device, mac string) journal.Step {
	return journal.Step{Kind: kindUnicast, Target: device + " " + mac, After: Present, Optional: true}
}

// StationStep returns the step that tells a bridge which MAC address is behind a port.
func StationStep(port, mac string) journal.Step {
	return journal.Step{Kind: kindStation, Target: port + " " + mac, After: Present}
}

// fdb is a kind of entry: whose table it is in, and whether it stays.
type fdb struct {
	flags, state int
	words        string // the same for bridge(8)
}

func unicast() fdb { return fdb{netlink.NTF_SELF, netlink.NUD_PERMANENT, "self permanent"} }

func station() fdb {
	return fdb{netlink.NTF_MASTER | netlink.NTF_STICKY, netlink.NUD_NOARP, "master static sticky"}
}

func (fdb) Check(s journal.Step) error {
	device, mac, _ := strings.Cut(s.Target, " ")
	err := CheckDevice(device)
	if hw, merr := net.ParseMAC(mac); merr != nil || len(hw) != 6 || hw[0]&1 != 0 {
		err = errors.Join(err, fmt.Errorf("%q: expected the MAC address of one device", mac))
	}
	return errors.Join(err, checkPresent(s))
}

// checkPresent returns an error unless Before and After are each "" or Present.
func checkPresent(s journal.Step) (err error) {
	for _, value := range []string{s.Before, s.After} {
		if value != "" && value != Present {
			err = errors.Join(err, fmt.Errorf("%q: expected %q or nothing", value, Present))
		}
	}
	return err
}

// entry finds the device of a target and describes the entry. The caller closes the handle, which is nil if
// there is no such device.
func (f fdb) entry(target string) (*netlink.Handle, *netlink.Neigh, error) {
	device, mac, _ := strings.Cut(target, " ")
	h, l, err := Find("", device)
	if l == nil || err != nil {
		return nil, nil, err
	}
	n := &netlink.Neigh{LinkIndex: l.Attrs().Index, Family: unix.AF_BRIDGE, Flags: f.flags, State: f.state}
	if n.HardwareAddr, err = net.ParseMAC(mac); err != nil {
		h.Close()
		return nil, nil, err
	}
	return h, n, nil
}

func (f fdb) Read(_ context.Context, s journal.Step) (string, error) {
	h, n, err := f.entry(s.Target)
	if h == nil || err != nil {
		return "", err
	}
	h.Close()
	has, err := entries(n.LinkIndex)
	if err != nil || !slices.ContainsFunc(has, func(other *netlink.Neigh) bool {
		const compared = netlink.NTF_SELF | netlink.NTF_STICKY
		return other.State == n.State && other.Flags&compared == n.Flags&compared &&
			bytes.Equal(other.HardwareAddr, n.HardwareAddr)
	}) {
		return "", err
	}
	return Present, nil
}

// entries returns the entries of one device and of its bridge port. The request has the header of a link
// request, because then the kernel leaves out the entries of other devices (valid_fdb_dump_legacy,
// net/core/rtnetlink.c), of which a bridge with many lanes has many.
func entries(index int) (all []*netlink.Neigh, err error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
	of := nl.NewIfInfomsg(unix.AF_BRIDGE)
	of.Index = int32(index)
	request.AddData(of)
	found, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	for _, message := range found {
		n, nerr := netlink.NeighDeserialize(message)
		if nerr != nil {
			return nil, nerr
		}
		all = append(all, n)
	}
	return all, err
}

func (f fdb) Write(_ context.Context, s journal.Step, value string) error {
	h, n, err := f.entry(s.Target)
	if err != nil {
		return err
	}
	if h == nil {
		return fmt.Errorf("there is no device of %s", s.Target)
	}
	defer h.Close()
	if value == "" {
		return h.NeighDel(n)
	}
	return h.NeighSet(n) // replaces what a bridge has learned
}

// Name says which setting the step changes.
func (fdb) Name(s journal.Step) string {
	device, mac, _ := strings.Cut(s.Target, " ")
	return "address " + mac + " at " + device
}

// Shell returns a bridge(8) command.
func (f fdb) Shell(s journal.Step) string {
	device, mac, _ := strings.Cut(s.Target, " ")
	verb := "replace"
	if s.After == "" {
		verb = "del"
	}
	return fmt.Sprintf("bridge fdb %s %s dev %s %s", verb, mac, device, f.words)
}
