package ovs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
)

const (
	// sockets has a directory for each lane that uses vhost-user. With the longest lane name the socket's path
	// has 93 of the 107 bytes that unix(7) allows.
	sockets    = "/run/isolane-vhost"
	socketName = "vhost.sock"
)

func socket(of string) string { return filepath.Join(sockets, of, socketName) }

const (
	minMTU   = 68   // RTE_ETHER_MIN_MTU
	mostDPDK = 9702 // NETDEV_DPDK_MAX_PKT_LEN of Open vSwitch, minus the Ethernet header with two tags
)

// declaredDPDK says what of a declaration a vhost-user port cannot do.
func declaredDPDK(n lane.Network) error {
	switch {
	case n.Rate > 0:
		return errors.New("spec.network.rate: path ovs-dpdk limits no rate so far: expected none, or path ovs")
	case n.Queues > 0:
		return errors.New("spec.network.queues: with path ovs-dpdk the workload says how many queues it has: " +
			"expected none")
	case len(n.Gateways) > 0:
		return errors.New("spec.network.gateways: with path ovs-dpdk the workload makes its own routes: expected " +
			"none")
	case n.MTU > mostDPDK:
		return fmt.Errorf("spec.network.mtu: %d: Open vSwitch with DPDK carries at most %d", n.MTU, mostDPDK)
	}
	return nil
}

var errNoDPDK = errors.New("ovs-vswitchd runs without DPDK: expected ovs-vsctl set Open_vSwitch . " +
	"other_config:dpdk-init=true, and ovs-vswitchd of package openvswitch-switch-dpdk started anew")

// possibleDPDK says why Open vSwitch, running with DPDK, cannot have vhost-user ports on the lane's device.
func (db database) possibleDPDK(l netpath.Lane) error {
	if b := db.bridges[l.Device]; b != nil && b.datapath != userSpace {
		return fmt.Errorf("spec.network.device: the bridge %s is in the kernel's data path, which has no ports of "+
			"DPDK: expected one with datapath_type=netdev", l.Device)
	}
	return nil
}

// VhostUser returns the port of a lane.
func (p Path) VhostUser(l netpath.Lane) (netpath.VhostUser, bool) {
	return netpath.VhostUser{Socket: socket(l.Name), MAC: l.MAC, MTU: cmp.Or(l.MTU, netpath.VethMTU)}, p.DPDK
}

// Lacks says that ovs-vswitchd runs as a user who does not get into the directory of the lane's socket,
// which is root's: without a word it would try to connect for ever.
func (p Path) Lacks(l netpath.Lane) string {
	if !p.DPDK {
		return ""
	}
	dir := cmp.Or(os.Getenv("OVS_RUNDIR"), "/var/run/openvswitch")
	pid, _ := os.ReadFile(filepath.Join(dir, "ovs-vswitchd.pid"))
	of := filepath.Join("/proc", strings.TrimSpace(string(pid)), "status")
	status, _ := os.ReadFile(of) // it may not run, or be of another namespace
	said := regexp.MustCompile(`(?s)^Name:\tovs-vswitchd.*\nUid:\t\d+\t(\d+)\t.*\nCapEff:\t([0-9a-f]+)\n`).
		FindSubmatch(status)
	if said == nil || string(said[1]) == "0" {
		return ""
	}
	capabilities, err := strconv.ParseUint(string(said[2]), 16, 64)
	if err != nil || capabilities&(1<<unix.CAP_DAC_OVERRIDE) > 0 {
		return ""
	}
	at, id := filepath.Dir(socket(l.Name)), string(said[1])
	return fmt.Sprintf("ovs-vswitchd runs as user %s (%s), and %s is root's: setfacl -m u:%[1]s:x %[3]s after "+
		"apply, and setfacl -m u:%[1]s:rw %[3]s/%s after each start of the workload", id, of, at, socketName)
}

// Traffic returns the traffic of a lane's vhost-user port; nil if there is none, or Open vSwitch does not
// answer.
func (p Path) Traffic(ctx context.Context, l netpath.Lane) (*netpath.Traffic, error) {
	at, flows := p.flowsOf(ctx, l)
	if at == "" {
		return nil, ctx.Err()
	}
	ports, err := tool(ctx, ofctl, "", versions, "dump-ports", at, netpath.Port(l.Name))
	if err != nil {
		return nil, ctx.Err()
	}
	return traffic(ports, flows), nil
}

// Refused returns how many frames of a lane its flows have dropped; 0 if Open vSwitch does not answer.
func (p Path) Refused(ctx context.Context, l netpath.Lane) (uint64, error) {
	_, flows := p.flowsOf(ctx, l)
	return traffic("", flows).Refused, ctx.Err()
}

// flowsOf returns the bridge of a lane's port, and the flows of that with their counters; "" if there is
// none, or Open vSwitch does not answer.
func (p Path) flowsOf(ctx context.Context, l netpath.Lane) (bridge, flows string) {
	r, name := cmp.Or(p.counts, &reader{}), netpath.Port(l.Name)
	db, err := r.database(ctx)
	at, found := db.port(name)
	if err != nil || found == nil {
		return "", ""
	}
	if flows, err = r.counted(ctx, at, name); err != nil {
		return "", ""
	}
	return at, flows
}

// traffic parses the counters that ovs-ofctl(8) prints of a port and of its flows. What the port sends, the
// lane receives.
func traffic(ports, flows string) *netpath.Traffic {
	t := &netpath.Traffic{}
	number := func(text string) uint64 {
		n, _ := strconv.ParseUint(text, 10, 64) // "?" is not counted
		return n
	}
	for _, m := range regexp.MustCompile(`([rt])x pkts=([^,]*), bytes=[^,]*, drop=([^,]*), errs=([^,]*),`).
		FindAllStringSubmatch(ports, -1) {
		if m[1] == "t" {
			t.Received = number(m[2])
		} else {
			t.Sent = number(m[2])
		}
		t.Dropped += number(m[3]) + number(m[4])
	}
	own := regexp.MustCompile(`n_packets=(\d+),.*in_port=.* actions=drop`) // not the flow for others' frames
	for _, m := range own.FindAllStringSubmatch(flows, -1) {
		t.Refused += number(m[1])
	}
	return t
}

// KindSocket is the directory of a lane in which its workload makes the socket: "" or netdev.Present. It
// belongs to root; whoever runs the workload as another user has to give it to that user.
const KindSocket = "vhost-socket"

func socketStep(of string) journal.Step {
	return journal.Step{Kind: KindSocket, Target: filepath.Dir(socket(of)), After: netdev.Present}
}

type socketOp struct{}

// Check lets a step name only a lane's directory.
func (socketOp) Check(s journal.Step) error {
	name, below := strings.CutPrefix(s.Target, sockets+"/")
	if !below {
		return fmt.Errorf("%q: expected a directory in %s", s.Target, sockets)
	}
	return netdev.CheckName(name)
}

func (socketOp) Read(_ context.Context, s journal.Step) (string, error) {
	info, err := os.Lstat(s.Target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case !info.IsDir():
		return "no directory", nil
	}
	return netdev.Present, nil
}

// Write makes the directory, or removes it with the socket in it.
func (socketOp) Write(_ context.Context, s journal.Step, value string) error {
	if value == netdev.Present {
		err := os.Mkdir(sockets, 0o755)
		if err == nil || errors.Is(err, fs.ErrExist) {
			err = os.Mkdir(s.Target, 0o700)
		}
		return err
	}
	err := os.Remove(filepath.Join(s.Target, socketName))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(s.Target)
	}
	if err == nil {
		_ = os.Remove(sockets) // with the last lane
	}
	return err
}

// Name says which directory it is.
func (socketOp) Name(s journal.Step) string { return "directory of a vhost-user socket " + s.Target }

// Shell returns a command of mkdir(1) or rm(1).
func (socketOp) Shell(s journal.Step) string {
	if s.After == "" {
		return "rm -f " + filepath.Join(s.Target, socketName) + " && rmdir " + s.Target
	}
	return "mkdir -p " + sockets + " && mkdir -m 700 " + s.Target
}
