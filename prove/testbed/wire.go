package testbed

import (
	"context"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/runtime/guest"
)

// Path is a path of lanes that scenarios can name: it needs no more than a wire, or a virtual machine too.
type Path interface {
	netpath.Path
	About() string // what it is
	WireGRO() bool // the wire has GRO (see netpath.Wire)
}

// Paths returns those that scenarios can name.
func Paths(all []netpath.Path) []Path {
	var able []Path
	for _, p := range all {
		if a, ok := p.(Path); ok {
			able = append(able, a)
		}
	}
	return able
}

// speaks reports whether the application has a vhost-user socket in place of a network device.
func speaks(p Path) bool {
	return !netpath.Namespaced([]netpath.Path{p}, lane.Network{Path: p.Name()})
}

// checksummed is a path that may need the checksums of frames.
type checksummed interface{ WireChecksums() bool }

// supporter is a path that a host may lack.
type supporter interface{ Supported() error }

// path returns the driver of that name; "" is the last, the plainest.
func (r *Bed) path(name string) (Path, error) {
	if name == "" && len(r.Paths) > 0 {
		return r.Paths[len(r.Paths)-1], nil
	}
	k := slices.IndexFunc(r.Paths, func(p Path) bool { return p.Name() == name })
	if k < 0 {
		return nil, fmt.Errorf("path %q is unknown", name)
	}
	return r.Paths[k], nil
}

// LacksPath says why this host cannot have a path, or nil.
func (r *Bed) LacksPath(name string) error {
	path, err := r.path(name)
	if s, is := path.(supporter); is && err == nil {
		err = s.Supported()
	}
	return err
}

// addresses returns those of one end, from the ranges for benchmarks (RFC 2544, 198.18.0.0/15) and for
// private use (RFC 4193, fd00::/8), which no other link of a host carries.
func addresses(n byte) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, 0, n}), 24),
		netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x15, 0x01, 0xa0, 15: n}), 64)}
}

// applicationAddresses returns those of an instance of the application, which are at most as many as a factor
// allows.
func applicationAddresses(instance int) []netip.Prefix { return addresses(byte(2 + instance)) }

// applicationNetns returns where an instance of the application is, in a lane or not.
func applicationNetns(instance int) string {
	return netpath.Lane{Name: layout.Instance(instance)}.Netns()
}

// wire has the outside client at its other end.
func wire() netpath.Wire {
	return netpath.Wire{Uplink: "islp-wire", Netns: "isolane-prove-client", MAC: "02:15:01:a0:00:01",
		Addresses: addresses(1)}
}

// connect makes the wire, or what a path has in its place, and returns the networks that the instances of an
// application at it declare.
func (r *Bed) connect(ctx context.Context, h host.Host, given factor.Conditions) (
	all []netpath.Lane, err error,
) {
	if r.Pods != nil { // they have the cluster's
		return nil, nil
	}
	path, err := r.path(given.Path)
	if err != nil {
		return nil, err
	}
	outside, names := wire(), layout.Instances(given)
	if c, is := path.(checksummed); is {
		outside.Checksums = c.WireChecksums()
	}
	outside.VLAN = given.VLAN
	var steps []journal.Step
	switch {
	case isFunctional(path):
		if all, err = r.functionsOf(h, len(names), path); err == nil {
			steps, err = path.Steps(all[:1])
			all = all[1:]
		}
	case !isWhole(path):
		steps, err = outside.Steps(path.WireGRO())
	}
	if err != nil {
		return nil, err
	}
	n := lane.Network{Path: path.Name(), Device: outside.Uplink, VLAN: given.VLAN}
	if n.VLAN.Outer > 0 {
		n.MTU = netpath.VethMTU // the uplink also has room for tags
	}
	if r.OwnPath() != "" {
		n.Rate = r.InForce.Lane.Spec.Network.Rate
	}
	for i := len(all); i < len(names); i++ {
		n.Addresses = nil
		for _, a := range applicationAddresses(i) {
			n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
		}
		all = append(all, netpath.Of(r.Root, names[i], n))
	}
	if _, err = r.Journal.Apply(ctx, steps); err != nil {
		return nil, fmt.Errorf("the wire to the outside client: %w", err)
	}
	return all, nil
}

// meet lets the client and each instance know each other's addresses. From then on only a virtual machine,
// where it is one, has what comes to the devices of its path.
func (r *Bed) meet(ctx context.Context, given factor.Conditions, instances int) error {
	path, err := r.path(given.Path)
	if err != nil {
		return err
	}
	for i := 0; err == nil && i < instances && !speaks(path); i++ { // else nobody is there yet
		err = wire().Reach(ctx, applicationAddresses(i)[0].Addr())
	}
	if err == nil && given.Guest.Runtime == guest.VM {
		_, err = r.Journal.Apply(ctx, r.taps(path, instances))
	}
	return err
}

// CongestionNote says that TCP's algorithm is the host's, where that is one which paces: how long it holds
// packets back depends on how a path joins acknowledgements, so that paths differ by it; "" where it is not.
func (r *Bed) CongestionNote() string {
	if !r.Scenario.Networked() || r.Pods != nil || r.Scenario.Spec.CongestionControl != "" {
		return ""
	}
	text, err := fs.ReadFile(r.Root, "proc/sys/net/ipv4/tcp_congestion_control")
	if name := strings.TrimSpace(string(text)); err == nil && strings.HasPrefix(name, "bbr") {
		return fmt.Sprintf("TCP's algorithm is this host's, %s, which paces: what it holds back differs between "+
			"paths. congestionControl: reno in the scenario is the same everywhere.", name)
	}
	return ""
}

// pathSteps make the paths of instances that have none by their lanes; none where these have.
func (r *Bed) pathSteps(networks []netpath.Lane, inLane bool) ([]journal.Step, error) {
	if len(networks) == 0 {
		return nil, nil
	}
	path, err := r.path(networks[0].Path)
	if w, is := path.(whole); is && err == nil {
		return w.Whole(wire(), networks[0])
	}
	if err != nil || inLane {
		return nil, err
	}
	tags, err := netpath.Tags([]netpath.Path{path}, networks)
	if err != nil {
		return nil, err
	}
	steps, err := path.Steps(networks)
	return append(tags, steps...), err
}
