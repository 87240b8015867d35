// Package balance compares what one side of a network has sent with what arrived at the other, in segments of
// TCP, and says who reports drops on the way.
//
// Counters of packets at devices cannot show that: the kernel joins and splits packets (GSO, GRO),
// differently at the two ends. Its counters of namespaces can: TCP counts the segments that it sends, and
// IPv4 counts incoming ones, each packet as the segments joined in it.
package balance

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"isolane.dev/isolane/results"
)

// Count is what the kernel has counted in some network namespaces since they were made.
type Count struct {
	sent, again, got uint64 // segments of TCP; sent excludes retransmissions
	local            uint64 // packets that did not leave their namespace
	drops            map[string]uint64
}

// Read reads the counters of namespaces. For the host's own, "", it reads what devices of lanes and scenarios
// drop, and what the CPUs drop.
func Read(namespaces ...string) (Count, error) {
	sum := Count{drops: map[string]uint64{}}
	for _, ns := range namespaces {
		var err error
		if ns == "" {
			err = sum.add("", true)
		} else {
			err = visit(ns, func() error { return sum.add(ns+": ", false) })
		}
		if err != nil {
			return sum, fmt.Errorf("counters of %q: %w", ns, err)
		}
	}
	return sum, nil
}

// visit calls f on a thread that is in a namespace meanwhile, and keeps the thread afterwards. If the thread
// ended, so would processes that it has started to die with it (PR_SET_PDEATHSIG(2const)), such as the
// application.
func visit(name string, f func() error) error {
	runtime.LockOSThread() // no thread is created from it, so that it alone is in there
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	there, err := netns.GetFromName(name)
	if err == nil {
		defer there.Close()
		if err = netns.Set(there); err == nil {
			err = f()
		}
	}
	if back := netns.Set(home); back != nil {
		return errors.Join(err, back) // the thread ends with its goroutine, because it must not be used again
	}
	runtime.UnlockOSThread()
	return err
}

// ours begins the names of the host's devices that Isolane makes.
const ours = "isl"

func (c *Count) add(who string, host bool) error {
	if host {
		text, err := os.ReadFile("/proc/net/softnet_stat")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 {
				n, _ := strconv.ParseUint(f[1], 16, 64) // the format of Linux since 2.6
				c.drops["the CPUs' backlog"] += n
			}
		}
	} else if err := c.addProtocols(who); err != nil {
		return err
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("devices: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		a := l.Attrs()
		switch s := a.Statistics; {
		case s == nil, host && !strings.HasPrefix(a.Name, ours):
			continue
		case a.Name == "lo":
			c.local += s.RxPackets
		default:
			names[a.Index] = who + a.Name
			c.drops[who+a.Name+" received"] += s.RxDropped + s.RxErrors
			c.drops[who+a.Name+" sends"] += s.TxDropped + s.TxErrors
		}
	}
	queues, err := netlink.QdiscList(nil)
	if err != nil {
		return fmt.Errorf("queues: %w", err)
	}
	for _, q := range queues {
		if s := q.Attrs().Statistics; s != nil && s.Queue != nil && names[q.Attrs().LinkIndex] != "" {
			c.drops[fmt.Sprintf("%s queue %s", names[q.Attrs().LinkIndex], q.Type())] += uint64(s.Queue.Drops)
		}
	}
	return nil
}

// addProtocols adds the counters of the protocols in this thread's namespace (net/ipv4/proc.c).
func (c *Count) addProtocols(who string) error {
	all := map[string]uint64{}
	const dir = "/proc/thread-self/net"
	for _, name := range []string{"snmp", "netstat"} {
		text, err := os.ReadFile(path.Join(dir, name))
		if err != nil {
			return err
		}
		pairs(text, all)
	}
	c.sent += all["Tcp:OutSegs"]
	c.again += all["Tcp:RetransSegs"]
	c.got += all["IpExt:InNoECTPkts"] + all["IpExt:InECT0Pkts"] + all["IpExt:InECT1Pkts"] + all["IpExt:InCEPkts"]
	for _, other := range []string{"Udp:InDatagrams", "Udp:NoPorts", "Udp:InErrors", "Udp:IgnoredMulti",
		"Icmp:InMsgs", "Ip:InAddrErrors", "IpExt:InNoRoutes"} { // those are not TCP, or not for this end
		c.got -= all[other]
	}
	for _, name := range []string{"Ip:InDiscards", "Ip:OutDiscards", "Ip:InHdrErrors", "Ip:OutNoRoutes",
		"IpExt:InNoRoutes", "IpExt:InTruncatedPkts"} {
		c.drops[who+name] += all[name]
	}
	text, err := os.ReadFile(path.Join(dir, "stat/nf_conntrack"))
	if err == nil { // else nothing tracks connections
		c.drops[who+"connections: invalid"] += column(text, "invalid")
		c.drops[who+"connections: dropped"] += column(text, "drop") + column(text, "early_drop")
	}
	return nil
}

// pairs reads lines of names, each followed by one of numbers.
func pairs(text []byte, into map[string]uint64) {
	var names []string
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(names) != len(f) || names[0] != f[0] {
			names = f
			continue
		}
		for k := 1; k < len(f); k++ {
			n, _ := strconv.ParseUint(f[k], 10, 64) // one is -1: no limit
			into[f[0]+names[k]] = n
		}
		names = nil
	}
}

// column adds up a column of hexadecimal numbers with a line per CPU.
func column(text []byte, name string) (sum uint64) {
	k := -1
	for line := range bytes.Lines(text) {
		f := strings.Fields(string(line))
		if k < 0 {
			for i, head := range f {
				if head == name {
					k = i
				}
			}
			if k < 0 {
				return 0
			}
			continue
		}
		if k < len(f) {
			n, _ := strconv.ParseUint(f[k], 16, 64)
			sum += n
		}
	}
	return sum
}

// Side is what one side had counted before, and has now.
type Side struct{ Before, Now Count }

// Between returns what left one side and what arrived at the other. drops are counted on both sides and
// between them. It returns false if packets on a side did not leave their namespace: how many segments they
// were is unknown.
func Between(way string, from, to Side, drops ...map[string]uint64) (results.Segments, bool) {
	s := results.Segments{Way: way, Again: from.Now.again - from.Before.again, Got: to.Now.got - to.Before.got,
		Dropped: map[string]uint64{}}
	s.Sent = from.Now.sent - from.Before.sent + s.Again
	for _, all := range drops {
		for name, n := range all {
			s.Dropped[name] += n
		}
	}
	return s, from.Now.local == from.Before.local && to.Now.local == to.Before.local
}

// Drops returns the drops that were added, by who reports them.
func (s Side) Drops() map[string]uint64 { return Added(s.Before.drops, s.Now.drops) }

// Added returns by how much counters have grown.
func Added(before, now map[string]uint64) map[string]uint64 {
	all := map[string]uint64{}
	for name, n := range now {
		if n > before[name] {
			all[name] = n - before[name]
		}
	}
	return all
}
