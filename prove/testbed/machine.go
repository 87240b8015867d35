package testbed

import (
	"context"
	"fmt"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/network"
	"isolane.dev/isolane/prove/programs"
	"isolane.dev/isolane/runtime/guest"
)

// devices returns the devices that an instance of the application has in its namespace.
func (r *Bed) devices(path Path) (all []string) {
	if !speaks(path) {
		all = append(all, netpath.Device)
	}
	if r.standsBetween() {
		all = append(all, probe.Behind)
	}
	return all
}

// taps returns the steps by which virtual machines get the frames of these devices, instead of the
// namespaces.
func (r *Bed) taps(path Path, instances int) (steps []journal.Step) {
	for i := range instances {
		for _, device := range r.devices(path) {
			steps = append(steps, netdev.TapStep(network.ApplicationNetns(i), device))
		}
	}
	return steps
}

// lacksMachine says why a cell cannot have a vhost-user path without a virtual machine; nil if it can.
func lacksMachine(path Path, given factor.Conditions) error {
	if given.Guest.Runtime == guest.VM {
		return nil
	}
	return fmt.Errorf("path %s gives a socket and no network device: expected a factor of kind runtime with %s",
		path.Name(), guest.VM)
}

// vhostUser returns the device of a machine on a vhost-user path.
func (r *Bed) vhostUser(path Path, instance int) *guest.VhostUser {
	v, _ := netpath.VhostUserOf([]netpath.Path{path},
		netpath.Of(r.Root, layout.Instance(instance), lane.Network{Path: path.Name()}))
	return &guest.VhostUser{Device: netpath.Device, Socket: v.Socket, MAC: v.MAC, MTU: v.MTU,
		Addresses: network.ApplicationAddresses(instance)}
}

// startMachine starts the virtual machine of an instance, with all its servers.
func (r *Bed) startMachine(ctx context.Context, at place, instance int, all []server) (
	[]*programs.Process, error,
) {
	g, m := at.given.Guest, &guest.Machine{Taps: map[string]string{}}
	for _, s := range all {
		needs, modules, _ := s.spec.InMachine()
		m.Programs = append(m.Programs, guest.Program{Argv: s.argv, Ready: s.spec.Ready(), Folder: s.dir})
		m.Also, m.Modules = append(m.Also, needs...), append(m.Modules, modules...)
	}
	path, err := r.path(at.given.Path)
	if err != nil {
		return nil, err
	}
	if speaks(path) {
		m.VhostUser = r.vhostUser(path, instance)
	}
	for _, device := range r.devices(path) {
		m.Taps[device] = netdev.TapOf(device)
	}
	g.Machine = m
	confines, env, err := r.inside(at, instance)
	if err != nil {
		return nil, err
	}
	argv, err := r.inGuest(at, &g, &confines, nil)
	if err != nil {
		return nil, err
	}
	p, err := programs.Start(ctx, r.Self, "virtual machine", confines, env, argv,
		programs.Ready{Text: guest.Ready, More: g.Overhead()})
	if err != nil {
		return nil, fmt.Errorf("virtual machine: %w", err)
	}
	p.Dir = g.Dir
	return []*programs.Process{p}, nil
}
