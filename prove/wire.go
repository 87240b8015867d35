package prove

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// Path is a path of lanes that scenarios can name: it needs no more than a wire.
type Path interface {
	netpath.Path
	About() string // what it is; "" of one that needs more
	WireGRO() bool // the wire has GRO (see netpath.Wire)
}

// Paths are those that scenarios can name.
func Paths(all []netpath.Path) []Path {
	var able []Path
	for _, p := range all {
		if a, ok := p.(Path); ok && a.About() != "" {
			able = append(able, a)
		}
	}
	return able
}

// checksummed is a path that may need the checksums of frames.
type checksummed interface{ WireChecksums() bool }

// supporter is a path that a host may lack.
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

// applicationAddresses are those of an instance of the application, which are at most as many as a factor
// allows.
func applicationAddresses(instance int) []netip.Prefix { return addresses(byte(2 + instance)) }

// applicationNetns is where an instance of the application is, in a lane or not.
func applicationNetns(instance int) string {
	return netpath.Lane{Name: layout.Instance(instance)}.Netns()
}

// wire has the outside client at its other end.
func wire() netpath.Wire {
	return netpath.Wire{Uplink: "islp-wire", Netns: "isolane-prove-client", MAC: "02:15:01:a0:00:01",
		Addresses: addresses(1)}
}

// connect makes the wire, and returns the networks that the instances of an application at it declare.
func (r *runner) connect(ctx context.Context, given factor.Conditions) (
	all []lane.Network, err error,
) {
	if r.pods != nil { // they have the cluster's
		return nil, nil
	}
	path, err := r.path(given.Path)
	if err != nil {
		return nil, err
	}
	outside := wire()
	if c, is := path.(checksummed); is {
		outside.Checksums = c.WireChecksums()
	}
	steps, err := outside.Steps(path.WireGRO())
	if err != nil {
		return nil, err
	}
	n := lane.Network{Path: path.Name(), Device: outside.Uplink}
	if r.ownPath() != "" {
		n.Rate = r.inForce.Lane.Spec.Network.Rate
	}
	for i := range layout.Instances(given) {
		n.Addresses = nil
		for _, a := range applicationAddresses(i) {
			n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
		}
		all = append(all, n)
	}
	if _, err = r.journal.Apply(ctx, steps); err != nil {
		return nil, fmt.Errorf("the wire to the outside client: %w", err)
	}
	return all, nil
}

// pathSteps make the paths of instances that have no lanes of their own.
func (r *runner) pathSteps(networks []lane.Network) ([]journal.Step, error) {
	path, err := r.path(networks[0].Path)
	if err != nil {
		return nil, err
	}
	var all []netpath.Lane
	for i, n := range networks {
		all = append(all, netpath.Of(r.root, layout.Instance(i), n))
	}
	return path.Steps(all)
}

// between is a probe whose application stands between its clients and what they ask, as a router does. Each
// instance has a client behind it, in a network of its own, and what they ask is outside.
type between interface {
	Outside(self string, c probe.Conditions) []string // the command line of what they ask
}

// standsBetween says whether some probe's application does.
func (r *runner) standsBetween() bool {
	return slices.ContainsFunc(r.scenario.Spec.Probes, func(p scenario.Probe) bool {
		_, is := p.Probe.(between)
		return is
	})
}

// behindNetns is where the client of an instance is that stands between.
func behindNetns(instance int) string { return fmt.Sprintf("isolane-prove-behind-%d", instance+1) }

// beyond are the steps that the networks of all instances need beside their paths: TCP's algorithm at both
// ends, and where they stand between, what is behind each.
func (r *runner) beyond(c results.Cell, given factor.Conditions, instances int) (steps []journal.Step,
	err error) {
	ends := []string{wire().Netns}
	between := instances > 0 && r.standsBetween()
	if between { // so that each side's work is on its own CPUs, as interrupts of a card are
		steps = append(steps, netdev.ReceiversStep("", wire().Uplink, c.Application),
			netdev.ReceiversStep(wire().Netns, netpath.Device, c.Client))
	}
	for i := range instances {
		ends = append(ends, applicationNetns(i))
		if between {
			more, berr := behind(i, r.cpusOf(c, given, i), c.Client)
			steps, err = append(steps, more...), errors.Join(err, berr)
			ends = append(ends, behindNetns(i))
		}
	}
	if cc := r.scenario.Spec.CongestionControl; instances > 0 && cc != "" {
		steps = append(steps, netpath.CongestionControl(cc, ends...)...)
	}
	return steps, err
}

// behind are the steps of the network behind an instance: the namespace of its client, and a bridge between
// the two. No frame is longer than a wire carries, and the ends join frames, as network cards do.
func behind(instance int, application, client cpuset.Set) ([]journal.Step, error) {
	n := instance + 1
	master := fmt.Sprintf("islp-lan%d", n)
	bridge, err := netdev.LinkStep(master, netdev.Link{Type: netdev.Bridge})
	steps := []journal.Step{bridge,
		{Kind: netdev.KindNamespace, Target: behindNetns(instance), After: netdev.Present}}
	for _, end := range []struct {
		port, mac, netns, device string
		cpus                     cpuset.Set
	}{
		{"islp-in%d", "02:15:01:a0:01:%02x", applicationNetns(instance), probe.Behind, application},
		{"islp-out%d", "02:15:01:a0:02:%02x", behindNetns(instance), netpath.Device, client},
	} {
		link, lerr := netdev.LinkStep(fmt.Sprintf(end.port, n), netdev.Link{Type: netdev.Veth, Master: master,
			Peer: &netdev.Peer{Netns: end.netns, Name: end.device, MAC: fmt.Sprintf(end.mac, n), GRO: true,
				WireFrames: true}})
		err = errors.Join(err, lerr)
		steps = append(steps, link, netdev.ReceiversStep(end.netns, end.device, end.cpus))
	}
	return steps, err
}
