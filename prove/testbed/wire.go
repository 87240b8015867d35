package testbed

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/network"
	"isolane.dev/isolane/runtime/guest"
)

// Path is a path of lanes that scenarios can name: it needs no more than a wire, or also a virtual machine.
type Path interface {
	netpath.Path
	About() string // describes it
	WireGRO() bool // the wire has GRO (see netpath.Wire)
}

// Paths returns the paths that scenarios can name.
func Paths(all []netpath.Path) []Path {
	var able []Path
	for _, p := range all {
		if a, ok := p.(Path); ok {
			able = append(able, a)
		}
	}
	return able
}

// speaks reports whether the application has a vhost-user socket instead of a network device.
func speaks(p Path) bool {
	return !netpath.Namespaced([]netpath.Path{p}, lane.Network{Path: p.Name()})
}

// checksummed is a path that may need frames with checksums.
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

// LacksPath says why this host cannot have a path; nil if it can.
func (r *Bed) LacksPath(name string) error {
	path, err := r.path(name)
	if s, is := path.(supporter); is && err == nil {
		err = s.Supported()
	}
	return err
}

// connect makes the wire, or what a path has instead, and returns the networks that the application's
// instances declare on it.
func (r *Bed) connect(ctx context.Context, h host.Host, given factor.Conditions) (
	all []netpath.Lane, err error,
) {
	if r.Pods != nil { // pods have the cluster's network
		return nil, nil
	}
	path, err := r.path(given.Path)
	if err != nil {
		return nil, err
	}
	outside, names := network.Wire(), layout.Instances(given)
	raw, err := r.takesFrames(given)
	if err != nil {
		return nil, err
	}
	outside.Checksums = raw
	if c, is := path.(checksummed); is {
		outside.Checksums = raw || c.WireChecksums()
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
		steps, err = outside.Steps(path.WireGRO() && !raw)
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
		for _, a := range network.ApplicationAddresses(i) {
			n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
		}
		all = append(all, netpath.Of(r.Root, names[i], n))
	}
	if _, err = r.Journal.Apply(ctx, steps); err != nil {
		return nil, fmt.Errorf("the wire to the outside client: %w", err)
	}
	return all, nil
}

// meet makes the client and each instance learn each other's addresses. A virtual machine on the path gets
// its devices' frames only after that.
func (r *Bed) meet(ctx context.Context, given factor.Conditions, instances int) error {
	path, err := r.path(given.Path)
	if err != nil {
		return err
	}
	for i := 0; err == nil && i < instances && !speaks(path); i++ { // else nobody is there yet
		err = network.Wire().Reach(ctx, network.ApplicationAddresses(i)[0].Addr())
	}
	if err == nil && given.Guest.Runtime == guest.VM {
		_, err = r.Journal.Apply(ctx, r.taps(path, instances))
	}
	return err
}

// CongestionNote says that TCP's algorithm is the host's, if that paces. How long it holds packets back
// depends on how a path joins acknowledgements, so paths differ by it. It returns "" for other algorithms.
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

// pathSteps returns the steps of the paths of instances that are in no lanes; lanes bring their own.
func (r *Bed) pathSteps(networks []netpath.Lane, inLane bool) ([]journal.Step, error) {
	if len(networks) == 0 {
		return nil, nil
	}
	path, err := r.path(networks[0].Path)
	if w, is := path.(whole); is && err == nil {
		return w.Whole(network.Wire(), networks[0])
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
