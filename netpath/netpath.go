// Package netpath holds what the network paths share: the lanes that a path brings packets to, and for
// measurements the two ends that it connects, as steps.
//
// Each path is a folder that returns steps; a path never changes the host itself.
package netpath

import (
	"fmt"
	"net/netip"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
)

// End is one side of a path: a namespace with one veth device in it, and the other end of that
// veth on the host.
type End struct {
	Netns     string // name under /run/netns
	Port      string // the device on the host
	Device    string // the device in the namespace
	MAC       string // of Device
	Addresses []netip.Prefix
}

// Pair is what a path connects.
type Pair struct {
	Client, Application End
	Bridge              string // the device between them, of a path that has one
}

// Lab returns the pair that measurements use: namespaces of its own, and addresses from the ranges
// for benchmarks (RFC 2544, 198.18.0.0/15) and for private use (RFC 4193, fd00::/8), which no
// other link of a host carries.
func Lab() Pair {
	end := func(role, port string, n int) End {
		return End{
			Netns: "isolane-prove-" + role, Port: port, Device: "eth0",
			MAC: fmt.Sprintf("02:15:01:a0:00:%02x", n),
			Addresses: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("198.18.0.%d/24", n)),
				netip.MustParsePrefix(fmt.Sprintf("fd15:01a0::%d/64", n)),
			},
		}
	}
	return Pair{Bridge: "islp-br", Client: end("client", "islp-client", 1),
		Application: end("app", "islp-app", 2)}
}

// CongestionControl returns the steps that make TCP in both namespaces use an algorithm from the
// first moment of a socket. To change it later, as programs can, is not the same: a socket that
// was born with BBR keeps its pacing timers.
func (p Pair) CongestionControl(name string) []journal.Step {
	var steps []journal.Step
	for _, e := range []End{p.Client, p.Application} {
		steps = append(steps, journal.Step{Kind: change.KindSysctl, After: name,
			Target: change.SysctlTarget(e.Netns, "net/ipv4/tcp_congestion_control")})
	}
	return steps
}

// Ends returns the steps that make both namespaces and their veth pairs; master is the bridge that
// takes the host ends, or "", and gro says whether these join frames as a network card's driver does.
func (p Pair) Ends(master string, gro bool) ([]journal.Step, error) {
	var steps []journal.Step
	for _, e := range []End{p.Client, p.Application} {
		link, err := netdev.LinkStep(e.Port, netdev.Link{Type: netdev.Veth, Master: master, GRO: gro,
			Peer: &netdev.Peer{Netns: e.Netns, Name: e.Device, MAC: e.MAC, Addresses: e.Addresses, WireFrames: true}})
		if err != nil {
			return nil, err
		}
		steps = append(steps, namespace(e.Netns), link)
	}
	return steps, nil
}
