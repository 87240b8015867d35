package testbed

import (
	"errors"
	"fmt"
	"slices"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/change/netdev/queues"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/network"
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

// beyond returns the steps that the networks of all instances need beside their paths: TCP's algorithm at
// both ends, and what is behind each instance that stands in between.
func (r *Bed) beyond(c results.Cell, given factor.Conditions, instances int) (steps []journal.Step,
	err error) {
	ends := []string{network.Wire().Netns}
	between, tagged := instances > 0 && r.standsBetween(), netpath.LacksTags(r.Root) == nil
	if between { // each side's work is on its own CPUs, as a card's interrupts are
		steps = append(steps, queues.ReceiversStep("", network.Wire().Uplink, c.Application),
			queues.ReceiversStep(network.Wire().Netns, netpath.Device, c.Client))
		if netdev.CanShape() == nil { // else behindNote says so
			steps = append(steps, netdev.RateStep(network.Wire().Netns, netpath.Device, cardRate))
		}
	}
	raw, rerr := r.takesFrames(given)
	if between && tagged {
		more, terr := network.Trunk(raw, c.Application, c.Client)
		steps, err = append(steps, more...), terr
	}
	kernel, kerr := r.inKernel(c, given)
	path, perr := r.path(given.Path)
	for i := range instances {
		netns := network.ApplicationNetns(i)
		if kernel { // the kernel does it on the application's CPUs
			steps = append(steps, queues.ReceiversStep(netns, netpath.Device, r.cpusOf(c, given, i)))
		}
		if perr == nil && speaks(path) { // nothing else makes it
			steps = append(steps, journal.Step{Kind: netdev.KindNamespace, Target: netns, After: netdev.Present})
		}
		ends = append(ends, netns)
		if between {
			more, berr := network.Behind(i, tagged, raw, r.cpusOf(c, given, i), c.Client)
			steps, err = append(steps, more...), errors.Join(err, berr)
			ends = append(ends, network.BehindNetns(i))
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
		"its own (QinQ): %d by 802.1ad, in it the number of the instance by 802.1Q.%s", network.OuterTag, queue)
}
