package netpath

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/change/netdev/queues"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

// Device is the name of the network device that a lane's workload has.
const Device = "eth0"

// Lane is a lane that a path brings packets to.
type Lane struct {
	Name string
	MAC  string // of its device
	// Uplink is the device that brings frames from outside, without the lane's tags: its device, or one of
	// Isolane's on that. It is "" if only lanes of this host reach each other.
	Uplink string
	lane.Network
	Functions PlacedFunctions // of a Functional path, if the lane is placed
	CPUs      cpuset.Set      // if the lane is placed
	// Workload is the network namespace of a workload that ran before, as netdev.OfProcess returns it; "" if the
	// lane has its own.
	Workload string
}

// PlacedFunctions are the virtual functions that a lane has.
type PlacedFunctions struct {
	Card    string // PCI address of the physical function
	Numbers []int  // on the card, from 0; the first is the lane's Device
	Pool    int    // how many the card is to have
}

// FunctionsOf returns the virtual functions of a lane; the zero value if it has none.
func FunctionsOf(h host.Host, placed plan.Lane) PlacedFunctions {
	for _, d := range placed.Devices {
		if len(d.VFs) == 0 {
			continue
		}
		f := PlacedFunctions{Card: d.Address, Numbers: d.VFs, Pool: slices.Max(d.VFs) + 1}
		if s := host.DeviceOf(h, d.Address).SRIOV; s != nil {
			f.Pool = max(f.Pool, s.Pool())
		}
		return f
	}
	return PlacedFunctions{}
}

// Of returns the network of a lane, for its path, on the machine that root shows.
func Of(root fs.FS, name string, n lane.Network) Lane {
	n.Device = deviceName(root, n.Device)
	l := Lane{Name: name, MAC: mac(root, name), Uplink: n.Device, Network: n}
	if tags := l.tags(); len(tags) > 0 {
		l.Uplink = tags[len(tags)-1].device
	}
	return l
}

// deviceName returns the kernel's own name of a device given by its PCI address or, on the running machine,
// by an alternative name. So a device is one uplink by whatever name.
func deviceName(root fs.FS, device string) string {
	if name := host.NetworkDevice(root, device); name != "" {
		return name
	}
	if _, err := fs.Stat(root, "sys/class/net/"+device); device == "" || err == nil || root != host.Live() {
		return device
	}
	h, l, err := netdev.Find("", device)
	if l == nil || err != nil { // it does not exist, or is one of a switch in user space
		return device
	}
	h.Close()
	return l.Attrs().Name
}

// Netns returns the name of the network namespace that the path leads to. For a running workload it contains
// the inode, so that for another namespace everything in it is made anew. Lane names have no underscore, so
// the names differ from theirs.
func (l Lane) Netns() string {
	name := "isolane-" + l.Name
	if inode := netdev.Inode(l.Workload); inode > 0 {
		name += fmt.Sprint("_", inode)
	}
	return name
}

// Port returns the name of the host's end of a lane's device.
func Port(of string) string { return DeviceName("isl-", of) }

// Bridge returns the name of the bridge that lanes with this uplink share. Without an uplink it connects only
// lanes of this host.
func Bridge(uplink string) string {
	if uplink == "" {
		return "islbr"
	}
	return DeviceName("islbr-", uplink)
}

// DeviceName returns a prefix and a name, or a digest of the name if that would be too long for a device.
func DeviceName(prefix, name string) string {
	if len(prefix+name) < unix.IFNAMSIZ {
		return prefix + name
	}
	return prefix + Digest(name)
}

// Digest returns eight hexadecimal digits that stand for words (FNV-1a).
func Digest(words ...string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(strings.Join(words, "\x00"))) // never fails
	return hex.EncodeToString(h.Sum(nil))
}

// mac returns the MAC address of a lane's device: the same after each start, and another one on each machine.
// Addresses that begin with 02 are locally assigned (IEEE 802, universal/local bit).
func mac(root fs.FS, of string) string {
	var machine string
	for _, file := range []string{"etc/machine-id", "proc/sys/kernel/hostname"} {
		if text, err := fs.ReadFile(root, file); err == nil {
			machine = strings.TrimSpace(string(text))
			break
		}
	}
	return localMAC("mac", machine, of)
}

// localMAC returns a locally administered address (IEEE 802), which is in no vendor's block.
func localMAC(of ...string) string {
	d := Digest(of...)
	return fmt.Sprintf("02:15:%s:%s:%s:%s", d[0:2], d[2:4], d[4:6], d[6:8])
}

// FunctionMAC returns the MAC address of one of the lane's virtual functions. The first has the lane's.
func (l Lane) FunctionMAC(i int) string {
	if i == 0 {
		return l.MAC
	}
	return localMAC("mac", l.MAC, fmt.Sprint(i))
}

// LinkLocal returns the IPv6 address that the kernel makes from a six-byte MAC address (RFC 4291, appendix
// A).
func LinkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe,
		13: mac[3], 14: mac[4], 15: mac[5]})
}

// possibleRate says why what a lane sends cannot be limited on this host.
func possibleRate(l Lane) error {
	if l.Rate == 0 || l.Driver == lane.VFIO { // the card does it
		return nil
	}
	if err := netdev.CanShape(); err != nil {
		return fmt.Errorf("spec.network.rate: %w", err)
	}
	return nil
}

// PossibleQueues says why the lane's device cannot have its queues on this host. The planner takes care of a
// card's queues.
func PossibleQueues(l Lane) error {
	if l.Queues == 0 {
		return nil
	}
	if err := queues.Possible(l.Queues); err != nil {
		return fmt.Errorf("spec.network.queues: %d: %w", l.Queues, err)
	}
	return nil
}

// Inside returns the device of the lane in its namespace.
func (l Lane) Inside() *netdev.Peer {
	p := &netdev.Peer{Netns: l.Netns(), Name: Device, MAC: l.MAC, MTU: l.MTU, Bare: l.HasTap()}
	if p.Bare { // they are the virtual machine's
		return p
	}
	for _, a := range l.Addresses {
		p.Addresses = append(p.Addresses, a.Prefix)
	}
	for _, g := range l.Gateways {
		p.Gateways = append(p.Gateways, g.Addr)
	}
	return p
}

// Steps returns the steps for the lane's namespace and for the device that link describes in it, with its
// rate. name is the target of the link's step.
func (l Lane) Steps(name string, link netdev.Link) ([]journal.Step, error) {
	step, err := netdev.LinkStep(name, link)
	steps := l.StepsWith(step)
	if l.Queues > 0 && link.Type == netdev.Veth && !l.CPUs.IsEmpty() {
		steps = append(steps, queues.Step(l.Netns(), Device, l.Queues, l.CPUs))
	}
	return steps, err
}

// StepsWith is Steps with other steps that make the device.
func (l Lane) StepsWith(device ...journal.Step) []journal.Step {
	steps := append([]journal.Step{namespace(l.Netns(), l.Workload)}, device...)
	if l.HasTap() {
		steps = append(steps, netdev.TapStep(l.Netns(), Device))
	}
	if l.Rate > 0 {
		steps = append(steps, netdev.RateStep(l.Netns(), Device, l.Rate))
	}
	return steps
}

// namespace returns the step for a namespace: that of a process, or a new one.
func namespace(name, of string) journal.Step {
	return journal.Step{Kind: netdev.KindNamespace, Target: name, After: cmp.Or(of, netdev.Present)}
}

// Traffic is what a lane's device has carried since it was made, in packets.
type Traffic struct {
	Received uint64 `json:"received"`
	Sent     uint64 `json:"sent"`
	Dropped  uint64 `json:"dropped"` // by the device and by the host's end of it, including errors
	// Refused counts those sent that the path has dropped: the lane may not send them, or not that many.
	Refused uint64 `json:"refused"`
}

// Since returns what was added since before. If the device was made anew meanwhile, its counters began at 0,
// and all counts.
func (t Traffic) Since(before Traffic) Traffic {
	if t.Received < before.Received || t.Sent < before.Sent {
		return t
	}
	// A counter that has fallen has restarted: flows of Open vSwitch were put back, or the device was made anew
	// and has already carried more than the old one.
	if t.Dropped >= before.Dropped {
		t.Dropped -= before.Dropped
	}
	if t.Refused >= before.Refused {
		t.Refused -= before.Refused
	}
	return Traffic{t.Received - before.Received, t.Sent - before.Sent, t.Dropped, t.Refused}
}

// Plus adds both.
func (t Traffic) Plus(more Traffic) Traffic {
	return Traffic{t.Received + more.Received, t.Sent + more.Sent, t.Dropped + more.Dropped,
		t.Refused + more.Refused}
}

// TrafficOf reads the counters of a lane's device, or of its end of the path; nil if there are none.
func TrafficOf(ctx context.Context, paths []Path, l Lane) (*Traffic, error) {
	if p, is := Find(paths, l.Network).(Counter); is && !Namespaced(paths, l.Network) {
		return p.Traffic(ctx, l)
	}
	in, _, err := counters(l.Netns(), Device)
	if in == nil || err != nil {
		return nil, err
	}
	port, refused, err := counters("", Port(l.Name))
	t := Traffic{Received: in.RxPackets, Sent: in.TxPackets, Dropped: dropped(in), Refused: refused}
	if port != nil {
		t.Dropped += dropped(port)
	}
	if p, is := Find(paths, l.Network).(Refuser); is && err == nil {
		refused, err = p.Refused(ctx, l)
		t.Refused += refused
	}
	return &t, err
}

func dropped(s *netlink.LinkStatistics) uint64 {
	return s.RxDropped + s.TxDropped + s.RxErrors + s.TxErrors
}

// counters returns the counters of a device, nil if there is none, and how many frames programs have dropped
// on entry: the kernel counts these at the hook (clsact).
func counters(netns, device string) (all *netlink.LinkStatistics, refused uint64, err error) {
	h, l, err := netdev.Find(netns, device)
	if l == nil || err != nil {
		return nil, 0, err
	}
	defer h.Close()
	qdiscs, err := h.QdiscList(l)
	for _, q := range qdiscs {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_CLSACT && a.Statistics != nil && a.Statistics.Queue != nil {
			refused = uint64(a.Statistics.Queue.Drops)
		}
	}
	return l.Attrs().Statistics, refused, err
}
