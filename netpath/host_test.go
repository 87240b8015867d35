package netpath_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
	"isolane.dev/isolane/netpath/express"
	"isolane.dev/isolane/netpath/macvlan"
	"isolane.dev/isolane/netpath/ovs"
)

// uplinkOfHost gives the test a namespace of its own as the host, with an uplink that has addresses and the default
// routes, to a peer in another namespace. It returns that one's name, and an empty journal.
func uplinkOfHost(t *testing.T, p netpath.Path) (peer string, j *journal.Journal) {
	t.Helper()
	if p.Name() == "express" {
		hosttest.Need(t, hosttest.BPF)
	}
	alone(t)
	if p.Name() == "ovs" {
		openVSwitch(t)
	}
	uplink, peer := testWire().Uplink, testWire().Netns
	ip(t, "netns add "+peer)
	t.Cleanup(func() { command(t, "ip", "netns", "del", peer) })
	ip(t, "link add "+uplink+" type veth peer name eth0 netns "+peer)
	if p.Name() == "ovs" && (ovs.Path{}).WireChecksums() {
		if _, err := netdev.Offload(peer, "eth0", unix.ETHTOOL_STXCSUM, 0); err != nil {
			t.Fatal(err)
		}
	}
	for n, on := range map[byte]string{1: "-n " + peer + " addr add %s dev eth0", 3: "addr add %s dev " + uplink} {
		for i, a := range prefixes(addressesOf(n)) {
			ip(t, fmt.Sprintf(on, a)+[]string{"", " nodad"}[i])
		}
	}
	for _, d := range []string{"lo", uplink} {
		ip(t, "link set "+d+" up")
	}
	ip(t, "-n "+peer+" link set lo up")
	ip(t, "-n "+peer+" link set eth0 up")
	for _, a := range addressesOf(1) {
		ip(t, "route add default via "+a.String()+" dev "+uplink)
	}
	j, err := journal.Open(filepath.Join(t.TempDir(), "run"), "test", ops())
	if err != nil {
		t.Fatal(err)
	}
	return peer, j
}

// reaches reports whether an address answers within a time, by a refusal: nobody listens there.
func reaches(addr netip.AddrPort, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr.String()); errors.Is(err, unix.ECONNREFUSED) {
			return true
		}
		<-time.After(10 * time.Millisecond) // an address of the kernel may not be ready yet
	}
	return false
}

// The host keeps what it reaches through an uplink, and who reaches it there, with macvlan. A port of a bridge keeps
// nothing of that: it must be said, and after release all is as before.
func TestHostOnUplink(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, c := range []struct {
		netpath.Path
		keeps bool
	}{{macvlan.Path{}, true}, {bridge.Path{}, false}, {bridge.Path{GRO: true}, false}, {express.Path{}, false},
		{ovs.Path{}, false}} {
		t.Run(c.Name(), func(t *testing.T) {
			peer, j := uplinkOfHost(t, c)
			uplink := testWire().Uplink
			n := lane.Network{Path: c.Name(), Device: uplink}
			for _, a := range prefixes(addressesOf(2)) {
				n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
			}
			l := netpath.Of(fstest.MapFS{}, "test-app", n)
			const only = "carries the host's only IPv4 default route (via 198.18.7.1), which ends when it is a port of a bridge"
			if err := c.Possible(l); (err == nil) != c.keeps || err != nil && !strings.Contains(err.Error(), only) {
				t.Error(err)
			}
			l.TakeFromHost = true
			if err := c.Possible(l); err != nil {
				t.Error(err)
			}
			works := func(when string, want bool) {
				t.Helper()
				within := map[bool]time.Duration{true: 10 * time.Second, false: 300 * time.Millisecond}[want]
				for i, peers := range addressesOf(1) {
					ip(t, "neigh flush all")
					ip(t, "-n "+peer+" neigh flush all")
					if is := reaches(netip.AddrPortFrom(peers, 9), within); is != want {
						t.Errorf("%s the host reaches %s: %v", when, peers, is)
					}
					ip(t, "-n "+peer+" neigh flush all")
					in(t, peer, func() error {
						if host := addressesOf(3)[i]; reaches(netip.AddrPortFrom(host, 9), within) != want {
							t.Errorf("%s %s of the host is reached: %v", when, host, !want)
						}
						return nil
					})
				}
			}
			shown := func() string {
				return command(t, "ip", "-d", "-o", "link") + command(t, "ip", "-o", "addr", "show", "scope", "global") + command(t, "ip", "route") +
					command(t, "ip", "-6", "route") + command(t, "tc", "qdisc")
			}
			works("before", true)
			before := shown()
			steps, err := c.Steps([]netpath.Lane{l})
			if err == nil {
				_, err = j.Apply(t.Context(), steps)
			}
			if err != nil {
				t.Error(err)
			}
			for _, a := range addressesOf(2) {
				in(t, peer, func() error {
					if !reaches(netip.AddrPortFrom(a, 9), 10*time.Second) {
						t.Errorf("lane %s is not reached", a)
					}
					return nil
				})
			}
			// In user space Open vSwitch gets copies of what the kernel takes in.
			works("in force", c.keeps || c.Name() == "ovs" && (ovs.Path{}).WireChecksums())
			if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
				t.Error(err)
			}
			works("after release", true)
			if after := shown(); after != before {
				t.Errorf("the host was\n%sand is\n%s", before, after)
			}
		})
	}
}

// Many lanes on one uplink reach each other and are reached from outside; the host is as before when they are gone.
func TestTwentyLanes(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	const all = 20
	for _, p := range []netpath.Path{macvlan.Path{}, bridge.Path{}, express.Path{}} {
		t.Run(p.Name(), func(t *testing.T) {
			peer, j := uplinkOfHost(t, p)
			host := func() string {
				pinned, err := filepath.Glob("/sys/fs/bpf/isolane*")
				if err != nil {
					t.Fatal(err)
				}
				return command(t, "ip", "-d", "-o", "link") + command(t, "ip", "netns") + command(t, "tc", "qdisc") +
					fmt.Sprint(pinned)
			}
			before := host()
			address := func(i int) netip.Addr { return addressesOf(byte(10 + i%all))[i%2] }
			var lanes []netpath.Lane
			on := netpath.Networks{Root: fstest.MapFS{}, Paths: []netpath.Path{p}}
			for i := range all {
				n := lane.Network{Path: p.Name(), Device: testWire().Uplink, TakeFromHost: true}
				for _, a := range prefixes(addressesOf(byte(10 + i))) {
					n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
				}
				name := fmt.Sprint("islt-", i)
				if err := on.Possible(name, n); err != nil {
					t.Error(err)
				}
				on.Add(name, n)
				lanes = append(lanes, netpath.Of(fstest.MapFS{}, name, n))
			}
			steps, err := p.Steps(lanes)
			if err == nil {
				_, err = j.Apply(t.Context(), steps)
			}
			if err != nil {
				t.Error(err)
			}
			for i, l := range lanes {
				for from, to := range map[string]netip.Addr{peer: address(i), l.Netns(): address(i + 1)} {
					in(t, from, func() error {
						if !reaches(netip.AddrPortFrom(to, 9), 10*time.Second) {
							t.Errorf("%s does not reach %s", from, to)
						}
						return nil
					})
				}
				in(t, l.Netns(), func() error {
					if outside := addressesOf(1)[i%2]; !reaches(netip.AddrPortFrom(outside, 9), 10*time.Second) {
						t.Errorf("%s does not reach %s", l.Name, outside)
					}
					return nil
				})
			}
			if missing, merr := j.Missing(t.Context(), steps); merr != nil || len(missing) > 0 {
				t.Errorf("not in force: %v, %v", missing, merr)
			}
			if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
				t.Error(err)
			}
			if after := host(); after != before {
				t.Errorf("the host was\n%sand is\n%s", before, after)
			}
		})
	}
}

// A lane may have link-local addresses beside the one that the kernel makes of its MAC address, or that one itself.
func TestLinkLocalAddresses(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, p := range []netpath.Path{bridge.Path{}, express.Path{}} {
		t.Run(p.Name(), func(t *testing.T) {
			peer, j := uplinkOfHost(t, p)
			ip(t, "-n "+peer+" addr add 169.254.7.1/16 dev eth0")
			l := netpath.Of(fstest.MapFS{}, "test-app", lane.Network{Path: p.Name(), Device: testWire().Uplink})
			mac, err := net.ParseMAC(l.MAC)
			if err != nil {
				t.Fatal(err)
			}
			own := netip.PrefixFrom(netpath.LinkLocal(mac), 64)
			addresses := []netip.Prefix{netip.MustParsePrefix("169.254.7.2/16"), netip.MustParsePrefix("fe80::7/64"), own}
			for _, a := range addresses {
				l.Addresses = append(l.Addresses, lane.Address{Prefix: a})
			}
			steps, err := p.Steps([]netpath.Lane{l})
			if err == nil {
				_, err = j.Apply(t.Context(), steps)
			}
			if err != nil {
				t.Error(err)
			}
			if missing, merr := j.Missing(t.Context(), steps); merr != nil || len(missing) > 0 {
				t.Errorf("not in force: %v, %v", missing, merr)
			}
			for _, a := range addresses {
				to := a.Addr()
				if to.Is6() {
					to = to.WithZone(netpath.Device)
				}
				in(t, peer, func() error {
					if !reaches(netip.AddrPortFrom(to, 9), 10*time.Second) {
						t.Errorf("%s is not reached", to)
					}
					return nil
				})
			}
			if has := command(t, "ip", "-n", l.Netns(), "-o", "-6", "addr", "show", "dev", "eth0"); strings.Count(has, "inet6 ") != 2 {
				t.Errorf("eth0 has\n%s", has)
			}
			if err := errors.Join(j.Undo(t.Context()), j.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}
