package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/probe/webserver"
)

// How long dnsmasq may take to answer, and to end when asked to.
const (
	startTime = 20 * time.Second
	endTime   = 2 * time.Second
)

// uplink is the device that every application has.
const uplink = "eth0"

// firewall lets through from the customer what has an address of the customer's network, and to the customer
// only what belongs to that.
const firewall = `add table inet router
delete table inet router
table inet router {
	chain input {
		type filter hook input priority filter; policy drop;
		iifname "lo" accept
		iifname %[1]q udp dport { 53, 67 } accept
		iifname %[1]q tcp dport 53 accept
		iifname %[1]q icmp type echo-request accept
		ct state established,related accept
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
		ct state invalid drop
		ct state established,related accept
		iifname %[1]q oifname %[2]q ip saddr %[3]s accept
	}
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		oifname %[2]q masquerade
	}
}
`

// Serve is a router in this network namespace until ctx ends. The namespace is its own, and its settings go
// with it.
func (p Probe) Serve(ctx context.Context, c probe.Conditions, stdout io.Writer) error {
	runtime.LockOSThread() // Pdeathsig is sent when the thread that started a program ends
	defer runtime.UnlockOSThread()
	running, stop := context.WithCancel(ctx)
	defer stop()
	all := family{c.Dir, make(chan error, 1)}
	device, err := probe.Behind, error(nil)
	if p.Forwarding == pollMode {
		device, err = local, p.poll(running, all, c)
	} else {
		err = p.route(ctx)
	}
	if err == nil {
		err = all.start(running, dnsmasq, options(c, device)...)
	}
	if err == nil {
		err = answers(running, c.Address.Addr(), all.ended)
	}
	if err == nil {
		fmt.Fprintf(stdout, "%s%s\n", webserver.Ready, own())
		err = <-all.ended
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// family are the programs that a router consists of. They end with it.
type family struct {
	dir   string     // of their files
	ended chan error // how the first one has ended
}

// start starts a program. It ends with ctx, and with the thread that started it.
func (f family) start(ctx context.Context, name string, args ...string) error {
	said, err := os.Create(filepath.Join(f.dir, name+".log"))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, endTime
	cmd.Env = append(os.Environ(), environment(f.dir)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err = cmd.Start(); err != nil {
		return errors.Join(err, said.Close())
	}
	go func() {
		ended := errors.Join(cmd.Wait(), said.Close())
		text, _ := os.ReadFile(said.Name()) // the reason, if there is one
		select {
		case f.ended <- fmt.Errorf("%s ended: %w%s", name, ended, lastLine(text)):
		default: // another one was first
		}
	}()
	return nil
}

// lastLine returns the last line of what a program has said, to stand behind an error; "" if there is none.
func lastLine(text []byte) string {
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return ""
	}
	return ": " + string(text[bytes.LastIndexByte(text, '\n')+1:])
}

// route makes this namespace a router, even if it had one before: all known connections are forgotten, as
// after a reboot. If the device to the customer is down, it stays down until then.
func (p Probe) route(ctx context.Context) error {
	customer, err := netlink.LinkByName(probe.Behind)
	if err != nil {
		return fmt.Errorf("%s, the device to the customer: %w", probe.Behind, err)
	}
	if err = home(customer); err != nil {
		return err
	}
	if err = p.shape(customer.Attrs().Index); err != nil {
		return fmt.Errorf("shape: %w", err)
	}
	if err = guard(ctx, probe.Behind); err != nil {
		return err
	}
	err = netlink.ConntrackTableFlush(netlink.ConntrackTable)
	if err != nil && !errors.Is(err, unix.EINVAL) { // otherwise the kernel has no such call
		return fmt.Errorf("what is known of connections: %w", err)
	}
	if err = os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
		return err
	}
	return netlink.LinkSetUp(customer)
}

// home gives a device the router's address in the customer's network.
func home(device netlink.Link) error {
	if err := netlink.AddrReplace(device, &netlink.Addr{IPNet: &net.IPNet{IP: own().AsSlice(),
		Mask: net.CIDRMask(inside().Bits(), own().BitLen())}}); err != nil {
		return fmt.Errorf("address %s: %w", own(), err)
	}
	return nil
}

// guard has the kernel filter, and translate addresses, between the device to the customer and the uplink.
func guard(ctx context.Context, device string) error {
	cmd := exec.CommandContext(ctx, nft, "-f", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(firewall, device, uplink, inside()))
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", nft, err, strings.Join(strings.Fields(string(text)), " "))
	}
	return nil
}

// shape limits what leaves through a device.
func (p Probe) shape(device int) error {
	if p.Shape == 0 {
		return nil
	}
	root, all := netlink.MakeHandle(1, 0), netlink.MakeHandle(1, 1)
	q := netlink.NewHtb(netlink.QdiscAttrs{LinkIndex: device, Handle: root, Parent: netlink.HANDLE_ROOT})
	q.Defcls = 1
	_ = netlink.QdiscDel(q) // of an earlier router, which cannot be changed; else there is none
	if err := netlink.QdiscReplace(q); err != nil {
		return err
	}
	return netlink.ClassReplace(netlink.NewHtbClass(netlink.ClassAttrs{LinkIndex: device, Parent: root,
		Handle: all}, netlink.HtbClassAttrs{Rate: uint64(p.Shape), Ceil: uint64(p.Shape)}))
}

// lease is how long the customer may keep an address.
const lease = "1h"

// options returns those of dnsmasq at a device, which reads no file of the host and forwards no question.
func options(c probe.Conditions, device string) []string {
	first, last := own().Next(), netip.AddrFrom4([4]byte{192, 168, 1, 250})
	return []string{"--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--no-ping",
		"--user=root", "--group=root", "--pid-file=", "--log-facility=-", "--bind-interfaces",
		"--interface=" + device, "--except-interface=lo", "--dhcp-authoritative",
		fmt.Sprintf("--dhcp-range=%s,%s,%s", first, last, lease),
		"--dhcp-leasefile=" + filepath.Join(c.Dir, "leases"),
		fmt.Sprintf("--address=/%s/%s", server, c.Address.Addr())}
}

// answers waits until the router resolves the server's name. If one of its programs ends first, that is the
// error.
func answers(ctx context.Context, want netip.Addr, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := resolves(ctx, want)
		if err == nil {
			return nil
		}
		select {
		case end := <-ended:
			return end
		case <-ctx.Done():
			return fmt.Errorf("no answer within %s: %w", startTime, err)
		case <-again.C:
		}
	}
}

// resolves asks the router for the server's address.
func resolves(ctx context.Context, want netip.Addr) error {
	asks := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, netip.AddrPortFrom(own(), 53).String())
	}}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	found, err := asks.LookupNetIP(ctx, "ip4", server)
	if err != nil {
		return fmt.Errorf("the router's DNS: %w", err)
	}
	if len(found) != 1 || found[0].Unmap() != want {
		return fmt.Errorf("the router's DNS: expected %s for %s, found %s", want, server, found)
	}
	return nil
}
