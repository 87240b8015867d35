package balance

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/results"
)

func TestMain(m *testing.M) { hosttest.Main(m) }

// carry sends so many bytes by TCP from the near end to the far one.
func carry(t *testing.T, size int) {
	t.Helper()
	var at net.Listener
	err := netdev.In("isolane-near", func() (err error) {
		at, err = net.Listen("tcp4", "198.18.9.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	sent := make(chan error, 1)
	go func() {
		c, serr := at.Accept()
		if serr == nil {
			_, serr = c.Write(make([]byte, size))
			serr = errors.Join(serr, c.Close())
		}
		sent <- serr
	}()
	err = netdev.In("isolane-far", func() error {
		c, derr := net.Dial("tcp4", at.Addr().String())
		if derr != nil {
			return derr
		}
		defer c.Close()
		n, derr := io.Copy(io.Discard, c)
		if n != int64(size) {
			derr = errors.Join(derr, fmt.Errorf("%d bytes", n))
		}
		return derr
	})
	if err = errors.Join(err, <-sent); err != nil {
		t.Fatal(err)
	}
}

// Each segment that leaves comes, however the kernel joins them. What is dropped where nobody counts is not
// named; where a queue says that it had no room, it is.
func TestSegments(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program("ip"), hosttest.Program("tc"), hosttest.Program("nft"))
	run := func(line string) error {
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s", line, out)
		}
		return nil
	}
	must := func(line string) {
		if err := run(line); err != nil {
			t.Fatal(err)
		}
	}
	for _, ns := range []string{"isolane-near", "isolane-far"} {
		must("ip netns add " + ns)
		t.Cleanup(func() { must("ip netns del " + ns) })
	}
	must("ip -n isolane-near link add eth0 type veth peer name eth0 netns isolane-far")
	must("ip -n isolane-near addr add 198.18.9.1/24 dev eth0; ip -n isolane-far addr add 198.18.9.2/24 dev eth0")
	must("ip -n isolane-near link set eth0 up; ip -n isolane-far link set eth0 up")
	for _, c := range []struct {
		name, before string
		size         int
		check        func(way results.Segments) bool
	}{
		{"as it is", "true", 32 << 20, func(s results.Segments) bool {
			return s.Sent == s.Got && s.Unnamed() == 0 && s.Sent > 20000
		}},
		{"nobody counts", "ip netns exec isolane-far nft 'table netdev t { chain c { type filter hook ingress device eth0 priority 0; " +
			"meta l4proto tcp numgen inc mod 100 == 7 drop; }; }'", 32 << 20, func(s results.Segments) bool {
			return s.Sent > s.Got && s.Again > 0 && s.Unnamed() == s.Sent-s.Got
		}},
		{"a queue is full", "ip netns exec isolane-far nft delete table netdev t; tc -n isolane-near qdisc add dev eth0 root tbf " +
			"rate 20mbit burst 8k limit 16k", 2 << 20, func(s results.Segments) bool {
			return s.Sent > s.Got && s.Unnamed() == 0 && s.Dropped["isolane-near: eth0 queue tbf"] > 0
		}},
	} {
		if err := run(c.before); err != nil {
			t.Skipf("%s: %v", c.name, err)
		}
		var near, far Side
		var err, ferr error
		near.Before, err = Read("isolane-near")
		far.Before, ferr = Read("isolane-far")
		if err = errors.Join(err, ferr); err != nil {
			t.Fatal(err)
		}
		carry(t, c.size)
		near.Now, err = Read("isolane-near")
		far.Now, ferr = Read("isolane-far", "")
		if err = errors.Join(err, ferr); err != nil {
			t.Fatal(err)
		}
		s, ok := Between("there", near, far, near.Drops())
		if !ok || !c.check(s) {
			t.Errorf("%s: %+v, %d not named", c.name, s, s.Unnamed())
		}
		if back, ok := Between("back", far, near); !ok || back.Sent != back.Got || back.Sent == 0 {
			t.Errorf("%s: back %+v", c.name, back)
		}
	}
}

func TestParsers(t *testing.T) {
	all := map[string]uint64{}
	pairs([]byte("Tcp: MaxConn OutSegs\nTcp: -1 7\nIpExt: InNoECTPkts\nIpExt: 9\nodd\nTcp: x\n"), all)
	if all["Tcp:OutSegs"] != 7 || all["IpExt:InNoECTPkts"] != 9 || len(all) != 3 {
		t.Errorf("%v", all)
	}
	const stat = "entries  found invalid drop\n00000001  00000000 0000000a 00000001\n00000001 00000000 00000001 00000000\n"
	if got := column([]byte(stat), "invalid"); got != 11 || column([]byte(stat), "other") != 0 || column([]byte(strings.Repeat("\n", 3)), "drop") != 0 {
		t.Error(got)
	}
}
