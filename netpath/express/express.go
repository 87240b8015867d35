// Package express is a bridge with a short cut. An eBPF program runs where frames enter the host, at the
// host's ends of lanes' devices and at their uplink. It passes frames for a lane straight to the inside of
// the lane's namespace, and all others to the uplink. Frames for several receivers, such as ARP, take the
// bridge.
package express

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/netpath/bridge"
)

// Path is the path "express".
type Path struct{}

// below returns the bridge. It joins frames when they enter the host: those passed on are not joined later.
func below() bridge.Path { return bridge.Path{GRO: true} }

// Name returns "express".
func (Path) Name() string { return "express" }

// About describes the path.
func (Path) About() string {
	return "the host only hands frames over, by eBPF from the uplink into the application's namespace and back"
}

// WireGRO returns true: the wire has GRO, as the driver of a network card does.
func (Path) WireGRO() bool { return true }

// Polled marks that frames keep the number of their receive queue.
func (Path) Polled() {}

// Policed marks that lanes are limited to their rate.
func (Path) Policed() {}

// Declared accepts everything.
func (Path) Declared(lane.Network) error { return nil }

// Possible says why a lane cannot have the path on this host as it is.
func (p Path) Possible(l netpath.Lane) error {
	if err := below().Possible(l); err != nil {
		return err
	}
	if err := p.Supported(); err != nil {
		return fmt.Errorf("spec.network.path: %w", err)
	}
	if l.Uplink == "" {
		return nil
	}
	if u, err := l.FindUplink(); err != nil || u.Bridge {
		return err
	}
	return free(l.Uplink)
}

// Supported says why this kernel cannot have the path; nil if it can.
func (Path) Supported() error {
	err := features.HaveProgramHelper(ebpf.SchedCLS, asm.FnRedirectPeer)
	if err != nil {
		return fmt.Errorf("express needs bpf_redirect_peer (Linux 5.10): %w", err)
	}
	return nil
}

// Ops returns the kinds of step that the path needs.
func Ops() map[string]journal.Op {
	return map[string]journal.Op{kindFilesystem: filesystem{}, kindPort: ports{},
		kindTable: tables{sync.OnceValues(collection)}}
}

// Steps returns what makes the path of these lanes: the bridge below, a table for each uplink, and a program
// for each of its ports. The uplink comes after its lanes, so that until then no frame for a lane leaves by
// it. An uplink that is a bridge itself stays as it is: frames for no lane take that bridge.
func (Path) Steps(lanes []netpath.Lane) ([]journal.Step, error) {
	steps, err := below().Steps(lanes)
	if err != nil {
		return nil, err
	}
	// The programs enforce the lanes' rates.
	steps = slices.DeleteFunc(steps, func(s journal.Step) bool { return s.Kind == netdev.KindPolice })
	lanes = slices.Clone(lanes)
	slices.SortStableFunc(lanes, func(a, b netpath.Lane) int { return cmp.Compare(a.Uplink, b.Uplink) })
	steps = append(steps, journal.Step{Kind: kindFilesystem, Target: pins, After: mounted})
	for i, l := range lanes {
		table := tableName(l.Uplink)
		if i == 0 || lanes[i-1].Uplink != l.Uplink {
			steps = append(steps, tableStep(table))
		}
		steps = append(steps, guarded(l, table).step(netpath.Port(l.Name)))
		if l.Uplink == "" || i+1 < len(lanes) && lanes[i+1].Uplink == l.Uplink {
			continue
		}
		if u, err := l.FindUplink(); err != nil || !u.Bridge {
			steps = append(steps, port{Table: table}.step(l.Uplink))
		}
	}
	return steps, nil
}

// guarded returns the port of a lane. It may send from its declared addresses, from the one that the kernel
// gives it on the link (RFC 4291, appendix A), and from those of others for whom it routes. Without a
// declared address it may send from any.
func guarded(l netpath.Lane, table string) port {
	p := port{Table: table, Lane: l.MAC, Rate: l.Rate, Router: len(l.Sources) > 0}
	for _, a := range l.Addresses {
		p.Sources = append(p.Sources, netip.PrefixFrom(a.Addr(), a.Addr().BitLen()))
	}
	for _, from := range l.Sources {
		p.Sources = append(p.Sources, from.Prefix)
	}
	m, err := p.mac()
	if err != nil || len(p.Sources) == 0 {
		return p
	}
	p.Sources = append(p.Sources, netip.PrefixFrom(netpath.LinkLocal(m[:]), 128))
	return p
}
