package guest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// network is what a serving virtual machine takes over from the namespace of its caller.
type network struct {
	Devices []device `json:"devices"`
	// CongestionControl is TCP's algorithm there.
	CongestionControl string `json:"congestionControl"`
}

// device is a device that the machine has instead of the namespace, with the same MAC and IP addresses.
type device struct {
	Name       string           `json:"name"`
	MAC        net.HardwareAddr `json:"mac"`
	MTU        int              `json:"mtu"`
	Addresses  []*net.IPNet     `json:"addresses,omitempty"`
	Routes     []route          `json:"routes,omitempty"`
	Neighbours []neighbour      `json:"neighbours,omitempty"`

	tap    string // the tap with its frames in the namespace
	socket string // the socket through which a switch has them
}

type route struct {
	To  *net.IPNet `json:"to,omitempty"` // nil: anywhere
	Via net.IP     `json:"via"`
}

// neighbour is a permanent entry, made by a person or a path.
type neighbour struct {
	IP  net.IP           `json:"ip"`
	MAC net.HardwareAddr `json:"mac"`
}

const congestionControl = "/proc/sys/net/ipv4/tcp_congestion_control"

// networkOf reads the devices with taps in the namespace of this process, ordered by name.
func networkOf(taps map[string]string) (n network, err error) {
	text, err := os.ReadFile(congestionControl)
	if err != nil {
		return n, err
	}
	n.CongestionControl = strings.TrimSpace(string(text))
	for _, name := range slices.Sorted(maps.Keys(taps)) {
		l, lerr := netlink.LinkByName(name)
		if lerr != nil {
			return n, fmt.Errorf("device %s: %w", name, lerr)
		}
		d, derr := read(l)
		d.tap = taps[name]
		n.Devices, err = append(n.Devices, d), errors.Join(err, derr)
	}
	return n, err
}

// add adds a device that speaks with a switch itself.
func (n *network) add(v VhostUser) error {
	mac, err := net.ParseMAC(v.MAC)
	if err != nil {
		return fmt.Errorf("device %s: %w", v.Device, err)
	}
	d := device{Name: v.Device, MAC: mac, MTU: v.MTU, socket: v.Socket}
	for _, a := range v.Addresses {
		d.Addresses = append(d.Addresses, &net.IPNet{IP: a.Addr().AsSlice(),
			Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())})
	}
	n.Devices = append(n.Devices, d)
	slices.SortFunc(n.Devices, func(a, b device) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

// read reads a device of the namespace.
func read(l netlink.Link) (device, error) {
	a := l.Attrs()
	d := device{Name: a.Name, MAC: a.HardwareAddr, MTU: a.MTU}
	addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
	for _, at := range addresses {
		if at.Scope == int(netlink.SCOPE_UNIVERSE) {
			d.Addresses = append(d.Addresses, at.IPNet)
		}
	}
	routes, rerr := netlink.RouteList(l, netlink.FAMILY_ALL)
	for _, r := range routes {
		if r.Gw != nil {
			d.Routes = append(d.Routes, route{r.Dst, r.Gw})
		}
	}
	known, nerr := netlink.NeighList(a.Index, netlink.FAMILY_ALL)
	for _, n := range known {
		if n.State == netlink.NUD_PERMANENT && n.HardwareAddr != nil {
			d.Neighbours = append(d.Neighbours, neighbour{n.IP, n.HardwareAddr})
		}
	}
	if err = errors.Join(err, rerr, nerr); err != nil {
		return d, fmt.Errorf("%s: %w", a.Name, err)
	}
	return d, nil
}

// args returns QEMU's options for the devices, in the order in which the machine's kernel names them.
func (n network) args(kvm bool) (args []string) {
	for i, d := range n.Devices {
		backend, more := fmt.Sprintf("tap,id=net%d,ifname=%s,script=no,downscript=no", i, d.tap), ""
		if d.socket != "" { // QEMU waits for the switch before the machine starts
			args = append(args, "-chardev", fmt.Sprintf("socket,id=switch%d,path=%s,server=on", i, d.socket))
			backend = fmt.Sprintf("vhost-user,id=net%d,chardev=switch%d", i, i)
			if !kvm { // QEMU 7.2 crashes when it emulates the interrupts of such a device
				more = ",vectors=0"
			}
		}
		args = append(args, "-netdev", backend,
			"-device", fmt.Sprintf("virtio-net-pci,netdev=net%d,mac=%s,romfile=%s", i, d.MAC, more))
	}
	return args
}

// setUp configures the network of this machine. It recognizes devices by their MAC addresses.
func (n network) setUp() error {
	if err := os.WriteFile(congestionControl, []byte(n.CongestionControl), 0); err != nil {
		return fmt.Errorf("%s: %q: %w: expected an algorithm that the machine's kernel has", congestionControl,
			n.CongestionControl, err)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Attrs().Flags&net.FlagLoopback != 0 {
			err = errors.Join(err, netlink.LinkSetUp(l))
		}
	}
	for _, d := range n.Devices {
		k := slices.IndexFunc(links, func(l netlink.Link) bool {
			return bytes.Equal(l.Attrs().HardwareAddr, d.MAC)
		})
		if k < 0 {
			return errors.Join(err, fmt.Errorf("%s: the machine has no device with its MAC address %s", d.Name, d.MAC))
		}
		if serr := d.setUp(links[k]); serr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", d.Name, serr))
		}
	}
	return err
}

func (d device) setUp(l netlink.Link) error {
	if l.Attrs().Name != d.Name {
		if err := netlink.LinkSetName(l, d.Name); err != nil {
			return err
		}
	}
	err := errors.Join(netlink.LinkSetMTU(l, d.MTU), netlink.LinkSetUp(l))
	for _, a := range d.Addresses {
		// duplicate address detection would find the same device in the namespace
		err = errors.Join(err, netlink.AddrAdd(l, &netlink.Addr{IPNet: a, Flags: unix.IFA_F_NODAD}))
	}
	for _, r := range d.Routes {
		err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: r.To, Gw: r.Via}))
	}
	for _, n := range d.Neighbours {
		err = errors.Join(err, netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: n.IP,
			HardwareAddr: n.MAC, State: netlink.NUD_PERMANENT}))
	}
	return err
}
