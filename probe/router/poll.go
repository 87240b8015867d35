package router

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/quantity"
)

// The programs of Open vSwitch that a router which polls starts.
const (
	vswitchd = "ovs-vswitchd"
	database = "ovsdb-server"
	dbTool   = "ovsdb-tool"
	vsctl    = "ovs-vsctl"
	ofctl    = "ovs-ofctl"
	appctl   = "ovs-appctl"
)

// local is the bridge, and the device by which its frames reach the router's own kernel, and back.
const local = "br0"

// The ports of the bridge besides that.
const (
	toOutside  = 1
	toCustomer = 2
)

// environment returns what tells the programs of Open vSwitch where the files of this router are.
func environment(dir string) []string {
	return []string{"OVS_RUNDIR=" + dir, "OVS_DBDIR=" + dir, "OVS_LOGDIR=" + dir}
}

// poll starts a switch that takes all frames of both devices (AF_XDP in generic mode, which finds frames also
// where another program has handed them to the device), and routes them. Each of its polling
// threads has one of the CPUs that this process may use. The kernel sees only what the switch hands it.
func (p Probe) poll(ctx context.Context, all family, c probe.Conditions) error {
	r, err := between(c.Address.Addr())
	if err == nil {
		err = guard(ctx, local)
	}
	if err != nil {
		return err
	}
	r.shape = p.Shape
	file := filepath.Join(all.dir, "conf.db")
	if err = os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) { // of a router before this one
		return err
	}
	if _, err = all.tool(ctx, dbTool, "", "create", file); err == nil {
		err = all.start(ctx, database, file, quiet, "--remote=punix:"+filepath.Join(all.dir, "db.sock"))
	}
	if err == nil {
		_, err = all.tool(ctx, vsctl, "", append([]string{"--retry", "--no-wait"}, r.bridge()...)...)
	}
	if err == nil {
		err = all.start(ctx, vswitchd, quiet, "--unixctl="+filepath.Join(all.dir, control))
	}
	if err != nil {
		return err
	}
	if err = all.ports(ctx); err != nil {
		return err
	}
	if r.shape > 0 {
		_, err = all.tool(ctx, ofctl, "", openFlow, "add-meter", local, r.meter())
	}
	if err == nil {
		_, err = all.tool(ctx, ofctl, r.rules(), openFlow, "replace-flows", local, "-")
	}
	if err != nil {
		return err
	}
	before, err := all.count(ctx)
	if err == nil {
		err = os.WriteFile(filepath.Join(all.dir, begun), strconv.AppendUint(nil, before[noRoom], 10), 0o600)
	}
	return errors.Join(err, r.plug())
}

// openFlow is the first version of OpenFlow that has meters.
const openFlow = "--protocols=OpenFlow13"

// quiet has a daemon print only what may be a reason for its end.
const quiet = "--verbose=console:warn"

// control is the socket by which the switch is asked.
const control = "switch.ctl"

// tool runs a program of Open vSwitch to its end, and returns its output.
func (f family) tool(ctx context.Context, name, stdin string, args ...string) (string, error) {
	if name == vsctl || name == ofctl {
		args = append([]string{fmt.Sprintf("--timeout=%.0f", startTime.Seconds())}, args...)
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &said
	cmd.Env = append(os.Environ(), environment(f.dir)...)
	if err := cmd.Run(); err != nil {
		select {
		case err = <-f.ended: // why nobody answers it
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(time.Second / 10): // that a program has ended is known a moment later
			err = fmt.Errorf("%s: %w%s", name, err, lastLine(said.Bytes()))
		}
		return "", err
	}
	return out.String(), nil
}

// ports gives the bridge the router's devices, and waits until the switch has them.
func (f family) ports(ctx context.Context) error {
	for port, device := range map[int]string{toOutside: uplink, toCustomer: probe.Behind} {
		if _, err := f.tool(ctx, vsctl, "", "add-port", local, device, "--", "set", "interface", device,
			"type=afxdp", "options:xdp-mode=generic", fmt.Sprintf("ofport_request=%d", port)); err != nil {
			return err
		}
	}
	if _, err := netlink.LinkByName(local); err != nil {
		return fmt.Errorf("%s has made no bridge, as without /dev/net/tun (modprobe tun): %w", vswitchd, err)
	}
	said, err := f.tool(ctx, vsctl, "", "--bare", "--columns=error", "find", "Interface", "error!=[]")
	if text := strings.Join(strings.Fields(said), " "); err == nil && text != "" {
		err = fmt.Errorf("%s: AF_XDP: %s", vswitchd, text)
	}
	return err
}

// ends are what a router that polls knows of its two networks.
type ends struct {
	outMAC, inMAC, gateway net.HardwareAddr // its own, and the one to which it sends what leaves
	address                netip.Addr       // its own outside
	cpus                   unix.CPUSet      // of its polling threads
	shape                  quantity.BitRate // the most that goes to the customer; 0: no limit
}

// between reads the ends of this namespace. Whatever leaves goes to the server's MAC address.
func between(server netip.Addr) (r ends, err error) {
	var links [2]netlink.Link
	for i, name := range []string{uplink, probe.Behind} {
		if links[i], err = netlink.LinkByName(name); err != nil {
			return r, fmt.Errorf("%s, a device of the router: %w", name, err)
		}
	}
	out := links[0].Attrs()
	r.outMAC, r.inMAC = out.HardwareAddr, links[1].Attrs().HardwareAddr
	own, err := netlink.AddrList(links[0], netlink.FAMILY_V4)
	if err != nil || len(own) != 1 {
		return r, fmt.Errorf("%s: expected one IPv4 address, found %d: %w", uplink, len(own), err)
	}
	r.address, _ = netip.AddrFromSlice(own[0].IP.To4())
	if err = knock(server); err == nil {
		r.gateway, err = macOf(out.Index, server)
	}
	return r, errors.Join(err, unix.SchedGetaffinity(0, &r.cpus))
}

// knock sends a datagram, so that the kernel asks for the MAC address of who gets it.
func knock(who netip.Addr) error {
	c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(who, discard)))
	if err != nil {
		return err
	}
	_, err = c.Write([]byte{0})
	return errors.Join(err, c.Close())
}

// bridge returns the commands of ovs-vsctl(8) that make a bridge, which without rules forwards nothing.
func (r ends) bridge() []string {
	var mask string
	for _, word := range r.cpus {
		mask = fmt.Sprintf("%016x", word) + mask
	}
	return []string{"init", "--", "set", "Open_vSwitch", ".", "other_config:pmd-cpu-mask=" + mask,
		"--", "add-br", local, "--", "set", "bridge", local, "datapath_type=netdev", "fail_mode=secure",
		"other_config:hwaddr=\"" + r.inMAC.String() + "\""}
}

// credit is how long a customer who got nothing for a while may get more than the shape.
const credit = 100 * time.Millisecond

// meter returns the meter, which drops what is too much. It has no queue.
func (r ends) meter() string {
	rate := r.shape / 1000 // in kbit/s
	return fmt.Sprintf("meter=1,kbps,burst,band=type=drop,rate=%d,burst_size=%.0f", rate,
		float64(rate)*credit.Seconds())
}

// rules returns the rules of the bridge (ovs-ofctl(8), ovs-actions(7)). Table 0 sorts out what is for the
// router itself and what may pass; 1 lets through what belongs to a connection of the customer, whose MAC
// address is kept with it; and 2 sends it on. What no rule names is dropped.
func (r ends) rules() string {
	number := func(b []byte) string { return "0x" + hex.EncodeToString(b) }
	limit := ""
	if r.shape > 0 {
		limit = "meter:1,"
	}
	replace := strings.NewReplacer("OUTSIDE", strconv.Itoa(toOutside), "CUSTOMER", strconv.Itoa(toCustomer),
		"NETWORK", inside().String(), "SELF", own().String(), "ADDRESS", r.address.String(),
		"ADDRNUMBER", number(r.address.AsSlice()), "OUTMAC", r.outMAC.String(), "OUTNUMBER", number(r.outMAC),
		"INMAC", r.inMAC.String(), "GATEWAY", r.gateway.String(), "LIMIT", limit)
	return replace.Replace(rules)
}

const rules = `table=0,priority=9,in_port=LOCAL,actions=output:CUSTOMER
table=0,priority=9,in_port=CUSTOMER,arp,actions=LOCAL
table=0,priority=9,in_port=CUSTOMER,udp,tp_src=68,tp_dst=67,actions=LOCAL
table=0,priority=8,in_port=CUSTOMER,ip,dl_dst=INMAC,nw_dst=SELF,actions=LOCAL
table=0,priority=7,in_port=CUSTOMER,ip,nw_src=SELF,actions=drop
table=0,priority=7,in_port=CUSTOMER,ip,nw_dst=NETWORK,actions=drop
table=0,priority=7,in_port=CUSTOMER,ip,nw_dst=ADDRESS,actions=drop
table=0,priority=6,in_port=CUSTOMER,ip,dl_dst=INMAC,nw_src=NETWORK,actions=ct(table=1,nat)
table=0,priority=9,in_port=OUTSIDE,arp,arp_op=1,arp_tpa=ADDRESS,actions=` +
	`move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[],mod_dl_src:OUTMAC,load:2->NXM_OF_ARP_OP[],` +
	`move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[],move:NXM_OF_ARP_SPA[]->NXM_OF_ARP_TPA[],` +
	`load:OUTNUMBER->NXM_NX_ARP_SHA[],load:ADDRNUMBER->NXM_OF_ARP_SPA[],IN_PORT
table=0,priority=6,in_port=OUTSIDE,ip,dl_dst=OUTMAC,nw_dst=ADDRESS,actions=ct(table=1,nat)
table=1,priority=9,ct_state=+inv+trk,actions=drop
table=1,priority=8,in_port=CUSTOMER,ip,ct_state=+new+trk,actions=ct(commit,table=2,nat(src=ADDRESS),` +
	`exec(move:NXM_OF_ETH_SRC[]->NXM_NX_CT_LABEL[0..47]))
table=1,priority=7,in_port=CUSTOMER,ip,ct_state=-new+trk,actions=goto_table:2
table=1,priority=8,in_port=OUTSIDE,ip,ct_state=-new+est+trk,actions=goto_table:2
table=1,priority=8,in_port=OUTSIDE,ip,ct_state=-new+rel+trk,actions=goto_table:2
table=2,in_port=CUSTOMER,ip,actions=dec_ttl,mod_dl_src:OUTMAC,mod_dl_dst:GATEWAY,output:OUTSIDE
table=2,in_port=OUTSIDE,ip,actions=LIMITdec_ttl,mod_dl_src:INMAC,` +
	`move:NXM_NX_CT_LABEL[0..47]->NXM_OF_ETH_DST[],output:CUSTOMER
`

// Dropped returns how many frames a router that polls has dropped so far, by where. The kernel's counters say
// it of the kernel. It fails if the router does not answer.
func (p Probe) Dropped(ctx context.Context, c probe.Conditions) (map[string]uint64, error) {
	if p.Forwarding == kernel {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("%s did not answer within %s", vswitchd,
		answerTime))
	defer cancel()
	f := family{dir: c.Dir}
	all, err := f.count(ctx)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(c.Dir, begun))
	before, _ := strconv.ParseUint(string(text), 10, 64)
	all[noRoom] -= min(before, all[noRoom])
	return all, err
}

// answerTime is how long a switch may take to say what it has counted.
const answerTime = 5 * time.Second

// begun is the file with what the kernel had counted before the switch, of which it knows nothing.
const begun = "begun"

// Who has dropped frames.
const (
	noRoom = "the switch had no room"
	shaped = "the switch's shape"
)

// count asks the switch what was dropped so far.
func (f family) count(ctx context.Context) (map[string]uint64, error) {
	var said [3]string
	for i, ask := range [][]string{ // threads after ports, so that what comes in between is not missed
		{ofctl, openFlow, "dump-ports", local},
		{appctl, "--target=" + filepath.Join(f.dir, control), "dpif-netdev/pmd-stats-show"},
		{ofctl, openFlow, "meter-stats", local},
	} {
		var err error
		if said[i], err = f.tool(ctx, ask[0], "", ask[1:]...); err != nil {
			return nil, err
		}
	}
	return counted(said[1], said[0], said[2]), nil
}

// counted reads what Open vSwitch says of its threads, ports and meters. Of a port it has the count of the
// kernel, also of frames that found no room for the switch (AF_XDP's rx_ring_full, which it does not tell).
func counted(threads, ports, meters string) map[string]uint64 {
	sum := func(text, counter string) (n uint64) {
		for _, found := range regexp.MustCompile(counter+`(\d+)`).FindAllStringSubmatch(text, -1) {
			one, _ := strconv.ParseUint(found[1], 10, 64)
			n += one
		}
		return n
	}
	polled, _, _ := strings.Cut(threads, "main thread") // the bridge's own port is the main thread's
	came, took := sum(ports, `port +\d+: rx pkts=`), sum(polled, "packets received: ")
	return map[string]uint64{noRoom: came - min(came, took), shaped: sum(meters, ` packet_count:`)}
}

// plug gives the bridge the router's address, and sets the device to the customer up.
func (r ends) plug() error {
	bridge, err := netlink.LinkByName(local)
	if err != nil {
		return fmt.Errorf("%s: %w", local, err)
	}
	if err = home(bridge); err == nil {
		err = netlink.LinkSetUp(bridge)
	}
	customer, lerr := netlink.LinkByName(probe.Behind)
	if err = errors.Join(err, lerr); err != nil {
		return err
	}
	return netlink.LinkSetUp(customer)
}
