package prove

import (
	"context"
	"fmt"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/runtime/guest"
)

// devices are those that an instance of the application has in its namespace.
func (r *runner) devices() []string {
	if r.standsBetween() {
		return []string{netpath.Device, probe.Behind}
	}
	return []string{netpath.Device}
}

// taps are the steps by which virtual machines have the frames of these devices, in place of the namespaces.
func (r *runner) taps(instances int) (steps []journal.Step) {
	for i := range instances {
		for _, device := range r.devices() {
			steps = append(steps, netdev.TapStep(applicationNetns(i), device))
		}
	}
	return steps
}

// startMachine starts the virtual machine of an instance, with all its servers.
func (r *runner) startMachine(ctx context.Context, at place, instance int, all []server) ([]*proc, error) {
	g, m := at.given.Guest, &guest.Machine{Taps: map[string]string{}}
	for _, s := range all {
		programs, modules, _ := s.spec.InMachine()
		m.Programs = append(m.Programs, guest.Program{Argv: s.argv, Ready: s.spec.Ready(), Folder: s.dir})
		m.Also, m.Modules = append(m.Also, programs...), append(m.Modules, modules...)
	}
	for _, device := range r.devices() {
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
	p, err := startAwaiting(ctx, r.self, "virtual machine", confines, env, argv,
		awaited{guest.Ready, g.Overhead()})
	if err != nil {
		return nil, fmt.Errorf("virtual machine: %w", err)
	}
	p.dir = g.Dir
	return []*proc{p}, nil
}
