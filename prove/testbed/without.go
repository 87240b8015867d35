package testbed

import (
	"fmt"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/network"
	"isolane.dev/isolane/results"
)

// whole is a path that is everything between client and application, so that there is no wire. No lane can
// declare it.
type whole interface {
	Whole(w netpath.Wire, l netpath.Lane) ([]journal.Step, error)
}

func isWhole(p Path) bool {
	_, is := p.(whole)
	return is
}

// isFunctional reports whether application and client have virtual functions of a card.
func isFunctional(p Path) bool {
	return netpath.Functions([]netpath.Path{p}, lane.Network{Path: p.Name()}) > 0
}

// functions finds the card whose virtual functions client and instances get: the first one with enough unused
// ones. It makes none for a measurement, because that resets the links of some cards.
func functions(h host.Host, instances int) (card string, numbers []int, err error) {
	for _, d := range h.PCIDevices {
		if d.SRIOV == nil || d.SRIOV.NumVFs == 0 || len(d.Netdevs) == 0 {
			continue
		}
		if numbers = h.FreeFunctions(d); len(numbers) > instances {
			return d.Address, numbers[:instances+1], nil
		}
	}
	return "", nil, fmt.Errorf("no network card has %d free virtual functions, for the client and the "+
		"application: echo N > /sys/class/net/CARD/device/sriov_numvfs", instances+1)
}

// functionsOf gives the client and each instance a virtual function. The client's lane is the first.
func (r *Bed) functionsOf(h host.Host, instances int, p Path) ([]netpath.Lane, error) {
	card, numbers, err := functions(h, instances)
	if err != nil {
		return nil, err
	}
	w := network.Wire()
	var all []netpath.Lane
	for i, number := range numbers {
		name, own := layout.Client, w.Addresses
		if i > 0 {
			name, own = layout.Instance(i-1), network.ApplicationAddresses(i-1)
		}
		n := lane.Network{Path: p.Name(), Device: card}
		for _, a := range own {
			n.Addresses = append(n.Addresses, lane.Address{Prefix: a})
		}
		l := netpath.Of(r.Root, name, n)
		l.Functions = netpath.PlacedFunctions{Card: card, Numbers: []int{number}}
		all = append(all, l)
	}
	all[0].MAC = w.MAC
	return all, nil
}

// LacksEnds says why a cell cannot have its path between its client and its application; nil if it can.
func (r *Bed) LacksEnds(h host.Host, given factor.Conditions) error {
	path, err := r.path(given.Path)
	if err == nil && given.VLAN.Outer > 0 {
		err = r.lacksTags(path, given)
	}
	instances := len(layout.Instances(given))
	switch {
	case err != nil || r.Pods != nil:
		return err
	case speaks(path):
		return lacksMachine(path, given)
	case !isWhole(path) && !isFunctional(path):
		return nil
	case r.standsBetween():
		return fmt.Errorf("path %s has no wire, of which applications that stand between clients and servers have "+
			"one end", path.Name())
	case isWhole(path) && instances > 1:
		return fmt.Errorf("path %s is one pair of devices: expected one of the application, found %d", path.Name(),
			instances)
	case isWhole(path):
		return nil
	}
	all, err := r.functionsOf(h, instances, path)
	for i := 0; err == nil && i < len(all); i++ {
		err = path.Possible(all[i])
	}
	return err
}

// lacksTags says why there can be no tags between client and application; nil if there can.
func (r *Bed) lacksTags(path Path, given factor.Conditions) error {
	if isWhole(path) || isFunctional(path) {
		return fmt.Errorf("path %s has no wire that could carry tags", path.Name())
	}
	err := netpath.LacksTags(r.Root) // the client's device is behind them in any case
	if _, is := path.(netpath.Tagger); is && err == nil {
		err = path.Possible(netpath.Lane{Network: lane.Network{Path: path.Name(), VLAN: given.VLAN}})
	}
	return err
}

// FunctionsNote says how client and application reach each other in cells with virtual functions; "" if there
// are none.
func (r *Bed) FunctionsNote(cells []results.Cell) string {
	for _, c := range cells {
		p, err := r.path(r.Scenario.Conditions(c).Path)
		if err == nil && r.Scenario.Networked() && r.Pods == nil && isFunctional(p) {
			return fmt.Sprintf("With path %s client and application have virtual functions of one card: its own "+
				"switch hands frames from one to the other, and no cable carries them.", p.Name())
		}
	}
	return ""
}
