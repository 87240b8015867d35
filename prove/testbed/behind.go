package testbed

import (
	"errors"
	"fmt"
	"slices"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/change/netdev/queues"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
)

// between is a probe whose application stands between its clients and what they ask, as a router does. Each
// instance has a client behind it, in a network of its own; what they ask is outside.
type between interface {
	Outside(self string, c probe.Conditions) []string // the command line of what they ask
}

// kernelWorker is a probe whose application's work the kernel may do.
type kernelWorker interface{ InKernel() bool }

// frameTaker is a probe whose application may take frames as they are at its devices.
type frameTaker interface{ TakesFrames() bool }

// takesFrames reports whether the application takes frames before the kernel has joined them. They have to
// be as on a wire: single, and with checksums.
func (r *Bed) takesFrames(given factor.Conditions) (bool, error) {
	probes, err := r.Scenario.ProbesOf(given, r.Kinds.Probes)
	return slices.ContainsFunc(probes, func(p scenario.Probe) bool {
		t, is := p.Probe.(frameTaker)
		return is && t.TakesFrames()
	}), err
}

// inKernel reports whether the kernel does the application's work in a cell.
func (r *Bed) inKernel(c results.Cell, given factor.Conditions) (bool, error) {
	probes, err := r.ProbesOf(c, given)
	return slices.ContainsFunc(probes, func(p scenario.Probe) bool {
		k, is := p.Probe.(kernelWorker)
		return is && k.InKernel()
	}), err
}

// standsBetween reports whether some probe's application stands in between.
func (r *Bed) standsBetween() bool {
	return slices.ContainsFunc(r.Scenario.Spec.Probes, stands)
}

// stands reports whether the application stands between its clients and what they ask.
func stands(spec scenario.Probe) bool {
	_, is := spec.Probe.(between)
	return is
}

// behindNetns returns the namespace of the client behind an instance.
func behindNetns(instance int) string { return fmt.Sprintf("isolane-prove-behind-%d", instance+1) }

// beyond returns the steps that the networks of all instances need beside their paths: TCP's algorithm at
// both ends, and what is behind each instance that stands in between.
func (r *Bed) beyond(c results.Cell, given factor.Conditions, instances int) (steps []journal.Step,
	err error) {
	ends := []string{wire().Netns}
	between, tagged := instances > 0 && r.standsBetween(), netpath.LacksTags(r.Root) == nil
	if between { // each side's work is on its own CPUs, as a card's interrupts are
		steps = append(steps, queues.ReceiversStep("", wire().Uplink, c.Application),
			queues.ReceiversStep(wire().Netns, netpath.Device, c.Client))
		if netdev.CanShape() == nil { // else behindNote says so
			steps = append(steps, netdev.RateStep(wire().Netns, netpath.Device, cardRate))
		}
	}
	raw, rerr := r.takesFrames(given)
	if between && tagged {
		more, terr := trunk(raw, c.Application, c.Client)
		steps, err = append(steps, more...), terr
	}
	kernel, kerr := r.inKernel(c, given)
	path, perr := r.path(given.Path)
	for i := range instances {
		if kernel { // the kernel does it on the application's CPUs
			steps = append(steps, queues.ReceiversStep(applicationNetns(i), netpath.Device, r.cpusOf(c, given, i)))
		}
		if perr == nil && speaks(path) { // nothing else makes it
			steps = append(steps, journal.Step{Kind: netdev.KindNamespace, Target: applicationNetns(i),
				After: netdev.Present})
		}
		ends = append(ends, applicationNetns(i))
		if between {
			more, berr := behind(i, tagged, raw, r.cpusOf(c, given, i), c.Client)
			steps, err = append(steps, more...), errors.Join(err, berr)
			ends = append(ends, behindNetns(i))
		}
	}
	if cc := r.Scenario.Spec.CongestionControl; instances > 0 && cc != "" {
		steps = append(steps, netpath.CongestionControl(cc, ends...)...)
	}
	return steps, errors.Join(err, perr, kerr, rerr)
}

// cardRate is the rate of the card of what they ask. It gives the card a queue: a full veth has room for 256
// frames, and then they wait there (since Linux 6.16) and are not lost.
const cardRate = 25_000_000_000

// The trunk is one wire for all networks behind the instances. Each has two tags on it: the same outer one
// for all, and the number of the instance inside.
const (
	trunkInside  = "islp-edge"   // the application's end
	trunkOutside = "islp-access" // the client's
	outerTag     = 100
	usualMTU     = 1500
	tagsSize     = 8 // by which a frame may be longer, as between switches of providers
)

// outer returns the device that takes the outer tag off at an end of the trunk.
func outer(end string) string { return end + ".s" }

// trunk returns the steps of the trunk, which joins no frames that are taken raw. At its ends the CPUs of
// each side handle what comes in.
func trunk(raw bool, application, client cpuset.Set) (steps []journal.Step, err error) {
	add := func(name string, l netdev.Link) {
		s, lerr := netdev.LinkStep(name, l)
		steps, err = append(steps, s), errors.Join(err, lerr)
	}
	add(trunkInside, netdev.Link{Type: netdev.Veth, GRO: !raw, WireFrames: true, Peer: &netdev.Peer{
		Name: trunkOutside, MAC: "02:15:01:a0:03:01", MTU: usualMTU + tagsSize, GRO: true, WireFrames: true}})
	for _, end := range []string{trunkInside, trunkOutside} {
		add(outer(end), netdev.Link{Type: netdev.VLAN, Parent: end, Tag: outerTag, Service: true})
	}
	return append(steps, queues.ReceiversStep("", trunkInside, application),
		queues.ReceiversStep("", trunkOutside, client)), err
}

// BehindNote says what networks behind the instances are made of; "" if there are none.
func (r *Bed) BehindNote() string {
	if r.Pods != nil || !r.standsBetween() {
		return ""
	}
	queue := ""
	if why := netdev.CanShape(); why != nil {
		queue = fmt.Sprintf(" The server's card has no queue beyond the 256 frames of its veth: %v.", why)
	}
	if why := netpath.LacksTags(r.Root); why != nil {
		return fmt.Sprintf("Behind each instance is a bridge of its own, without VLAN tags (QinQ): %v.%s", why,
			queue)
	}
	return fmt.Sprintf("The networks behind the instances share one wire, on which each has two VLAN tags of "+
		"its own (QinQ): %d by 802.1ad, in it the number of the instance by 802.1Q.%s", outerTag, queue)
}

// behind returns the steps of the network behind an instance: the namespace of its client, and what connects
// the two, which is tags on the trunk or a bridge. No frame is longer than on a wire, and the ends of trunk
// or bridge join frames, as network cards do, unless they are taken raw.
func behind(instance int, tagged, raw bool, application, client cpuset.Set) ([]journal.Step, error) {
	n := instance + 1
	master := fmt.Sprintf("islp-lan%d", n)
	steps := []journal.Step{{Kind: netdev.KindNamespace, Target: behindNetns(instance), After: netdev.Present}}
	var err error
	if !tagged {
		var bridge journal.Step
		bridge, err = netdev.LinkStep(master, netdev.Link{Type: netdev.Bridge})
		steps = append([]journal.Step{bridge}, steps...)
	}
	for _, end := range []struct {
		port, mac, netns, device, trunk string
		cpus                            cpuset.Set
	}{
		{"islp-in%d", "02:15:01:a0:01:%02x", applicationNetns(instance), probe.Behind, trunkInside, application},
		{"islp-out%d", "02:15:01:a0:02:%02x", behindNetns(instance), netpath.Device, trunkOutside, client},
	} {
		l := netdev.Link{Type: netdev.Veth, Master: master, Peer: &netdev.Peer{Netns: end.netns, Name: end.device,
			MAC: fmt.Sprintf(end.mac, n), GRO: true, WireFrames: true, Checksums: raw}}
		if tagged {
			l.Type, l.Master, l.Parent, l.Tag, l.Peer.MTU = netdev.VLAN, "", outer(end.trunk), n, usualMTU
		}
		link, lerr := netdev.LinkStep(fmt.Sprintf(end.port, n), l)
		steps, err = append(steps, link), errors.Join(err, lerr)
		if !tagged { // else the trunk's ends have them
			steps = append(steps, queues.ReceiversStep(end.netns, end.device, end.cpus))
		}
	}
	return steps, err
}
