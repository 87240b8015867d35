package prove

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/results"
)

// Path is a path of lanes that scenarios can name: it needs no more than a wire.
type Path interface {
	netpath.Path
	About() string // what it is
	WireGRO() bool // the wire has GRO (see netpath.Wire)
}

// Paths are those that scenarios can name.
func Paths(all []netpath.Path) []Path {
	var able []Path
	for _, p := range all {
		if a, ok := p.(Path); ok {
			able = append(able, a)
		}
	}
	return able
}

// supporter is a path that may be impossible on a kernel.
type supporter interface{ Supported() error }

// path is the driver of that name; "" is the last, the plainest.
func (r *runner) path(name string) (Path, error) {
	if name == "" && len(r.paths) > 0 {
		return r.paths[len(r.paths)-1], nil
	}
	k := slices.IndexFunc(r.paths, func(p Path) bool { return p.Name() == name })
	if k < 0 {
		return nil, fmt.Errorf("path %q is unknown", name)
	}
	return r.paths[k], nil
}

// addresses are those of one end, from the ranges for benchmarks (RFC 2544, 198.18.0.0/15) and for private
// use (RFC 4193, fd00::/8), which no other link of a host carries.
func addresses(n byte) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, n}), 24),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x15, 0x01, 0xa0, 15: n}), 64)}
}

func applicationAddresses() []netip.Prefix { return addresses(2) }

// applicationNetns is where the application is, in a lane or not.
func applicationNetns() string { return netpath.Lane{Name: layout.Application}.Netns() }

// wire has the outside client at its other end.
func wire() netpath.Wire {
	return netpath.Wire{Uplink: "islp-wire", Netns: "isolane-prove-client", MAC: "02:15:01:a0:00:01",
		Addresses: addresses(1)}
}

// connect makes the wire, and returns the network that an application behind it declares.
func (r *runner) connect(ctx context.Context, c results.Cell, given factor.Conditions) (
	n lane.Network, err error,
) {
	name := given.Path
	if other, ok := c.InForce[r.scenario.PathFactor()]; ok {
		name = other
	}
	path, err := r.path(name)
	if err != nil {
		return n, err
	}
	steps, err := wire().Steps(path.WireGRO())
	if err != nil {
		return n, err
	}
	n = lane.Network{Path: path.Name(), Device: wire().Uplink}
	if r.ownPath() != "" {
		n.Rate = r.inForce.Lane.Spec.Network.Rate
	}
	for _, a := range applicationAddresses() {
		n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
	}
	if _, err = r.journal.Apply(ctx, steps); err != nil {
		return n, fmt.Errorf("the wire to the outside client: %w", err)
	}
	return n, nil
}

// pathSteps make the path of an application that has no lane of its own.
func (r *runner) pathSteps(n lane.Network) ([]journal.Step, error) {
	path, err := r.path(n.Path)
	if err != nil {
		return nil, err
	}
	return path.Steps([]netpath.Lane{netpath.Of(r.root, layout.Application, n)})
}
