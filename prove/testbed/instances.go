package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/network"
	"isolane.dev/isolane/prove/programs"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/guest"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/witness"
)

// inside returns the confines of an instance of the application. need are capabilities in addition to those
// that a lane leaves.
func (r *Bed) inside(at place, instance int, need ...string) (process.Lane, []string, error) {
	dirs, err := r.applicationDirs(at.host, at.given)
	if err != nil {
		return process.Lane{}, nil, err
	}
	confines := process.Lane{Cgroup: dirs[instance]}
	if r.Scenario.Networked() {
		confines.Netns = network.ApplicationNetns(instance)
	}
	if r.Pods != nil {
		confines.Netns = r.Pods.netns
	}
	if at.given.Place != factor.InLane {
		return confines, nil, nil
	}
	// all that isolane run gives
	return r.Lanes.Inside(r.laneName(instance), lanes.With{Netns: confines.Netns, Workload: true,
		Capabilities: need})
}

// named says which instance an error is about, if there are several.
func named(err error, given factor.Conditions, instance int) error {
	if err == nil || given.Instances < 2 {
		return err
	}
	return fmt.Errorf("instance %d (%s): %w", instance+1, layout.Instance(instance), err)
}

// startServers starts the servers of all instances at the same time.
func (r *Bed) startServers(ctx context.Context, at place) ([]*programs.Process, error) {
	n := len(layout.Instances(at.given))
	servers, errs := make([][]*programs.Process, n), make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			var err error
			servers[i], err = r.startServersOf(ctx, at, i)
			errs[i] = named(err, at.given, i)
		})
	}
	all.Wait()
	return slices.Concat(servers...), errors.Join(errs...)
}

// server is a program of the application that serves.
type server struct {
	spec scenario.Probe
	argv []string
	dir  string // of its files
}

// serversOf returns the servers of an instance, each once.
func (r *Bed) serversOf(at place, instance int) (all []server, err error) {
	for _, spec := range at.probes {
		given, err := r.conditions(spec, at, instance)
		if err != nil {
			return all, err
		}
		argv := spec.Server(r.Self, given)
		if len(argv) > 0 && !slices.ContainsFunc(all, func(o server) bool { return slices.Equal(o.argv, argv) }) {
			all = append(all, server{spec, argv, given.Dir})
		}
	}
	return all, nil
}

// startServersOf starts the servers of one instance.
func (r *Bed) startServersOf(ctx context.Context, at place, instance int) (
	servers []*programs.Process, err error,
) {
	all, err := r.serversOf(at, instance)
	if err == nil && len(all) > 0 && at.given.Guest.Runtime == guest.VM {
		return r.startMachine(ctx, at, instance, all)
	}
	for _, s := range all {
		confines, env, ierr := r.inside(at, instance, capabilities(s.spec)...)
		if ierr == nil {
			s.argv, ierr = r.serving(at, &confines, s.argv, capabilities(s.spec), s.dir)
		}
		if ierr != nil {
			return servers, ierr
		}
		p, serr := programs.Start(ctx, r.Self, s.spec.Kind+" server", confines, env, s.argv,
			programs.Ready{Text: s.spec.Ready()})
		if serr != nil {
			return servers, fmt.Errorf("%s server: %w", s.spec.Kind, serr)
		}
		servers = append(servers, p)
	}
	return servers, err
}

// startOutside starts what the clients behind the application ask, where the outside client usually is. On
// shared CPUs a real-time client has precedence, because it has to be on time.
func (r *Bed) startOutside(ctx context.Context, at place) (servers []*programs.Process, err error) {
	var started [][]string
	for _, spec := range at.probes {
		b, is := spec.Probe.(between)
		if !is {
			continue
		}
		given, err := r.conditions(spec, at, 0)
		if err != nil {
			return servers, err
		}
		given.Dir = at.scratch
		argv := b.Outside(r.Self, given)
		if slices.ContainsFunc(started, func(o []string) bool { return slices.Equal(o, argv) }) {
			continue
		}
		started = append(started, argv)
		confines, err := r.outside(at)
		if err != nil {
			return servers, err
		}
		confines.Priority = max(min(confines.Priority, 1), confines.Priority-1)
		p, err := programs.Start(ctx, r.Self, spec.Kind+" server outside", confines, nil, argv,
			programs.Ready{Text: spec.Ready()})
		if err != nil {
			return servers, fmt.Errorf("%s server outside: %w", spec.Kind, err)
		}
		servers = append(servers, p)
	}
	return servers, nil
}

// stopAll kills servers.
func stopAll(servers []*programs.Process) (err error) {
	for _, p := range servers {
		err = errors.Join(err, p.Stop(syscall.SIGKILL, time.Second))
	}
	return err
}

// client measures one instance.
type client struct {
	*programs.Process
	by    measurer
	given probe.Conditions
	busy  func() time.Duration // how long its and the application's CPUs have been busy since it began
}

// together returns when the clients of several instances begin, once all are there; 0 for a single one. If
// they were late in earlier runs of the session, they get twice that much more time.
func (r *Bed) together(given factor.Conditions) (int64, error) {
	if given.Instances < 2 {
		return 0, nil
	}
	clock, err := probe.NewClock()
	lead := 100*time.Millisecond + time.Duration(given.Instances)*25*time.Millisecond + 2*r.late
	return clock.Now() + int64(lead), err
}

// wereLate adds to r.late how long after the common start the last client began. That start had r.late in it
// already. It ignores harmless delays: on busy CPUs each client is some ms late.
func (r *Bed) wereLate(clients []client, m results.Measurement) {
	given := clients[0].given
	if given.Start == 0 || m.Begin == 0 {
		return
	}
	late := time.Duration(int64(m.Begin)-given.Start) - given.Warmup
	if late > max(10*time.Millisecond, given.Window/100) {
		r.late = min(r.late+late, maxLateness)
	}
}

// maxLateness limits how much a client that did not run for long can lengthen later runs.
const maxLateness = 5 * time.Second

// startClients starts the clients of a probe, one per instance. If one does not start, the others end.
func (r *Bed) startClients(ctx context.Context, at place, spec scenario.Probe, w *witness.Session) (
	all []client, err error) {
	start, err := r.together(at.given)
	if err != nil {
		return nil, err
	}
	for i := range layout.Instances(at.given) {
		given, err := r.conditions(spec, at, i)
		if err != nil {
			return all, named(err, at.given, i)
		}
		given.Start = start
		by, err := r.measures(at, spec, given)
		if err != nil {
			return all, named(err, at.given, i)
		}
		busy := r.busy(at)
		p, err := startClient(ctx, r.Self, spec, by)
		if err != nil {
			return all, named(err, at.given, i)
		}
		by.subject.PID = p.PID()
		w.AddSubject(by.subject)
		all = append(all, client{p, by, given, busy})
	}
	return all, nil
}

// result waits for the end of a client.
func (c client) result(spec scenario.Probe, began time.Time, w *witness.Session) (results.Measurement,
	error) {
	out, err := c.Wait()
	took := time.Since(began)
	c.given.Busy = c.busy()
	w.SubjectDone(c.PID())
	if err != nil {
		return results.Measurement{}, err
	}
	measured, err := spec.Parse(out, c.given)
	if err == nil {
		err = complete(&measured, c.by.guest)
	}
	if !c.by.guest.OwnClock() {
		early(&measured, took, c.given.Window)
	}
	return measured, err
}

// busy returns a function that says how long the CPUs of application and client have been busy since now,
// interrupts included. It returns 0 if others are meant to run there too, or it is unknown.
func (r *Bed) busy(at place) func() time.Duration {
	cpus := at.cell.Application.Union(at.cell.Client)
	before, err := host.CPUTimes(r.Root)
	return func() time.Duration {
		now, nerr := host.CPUTimes(r.Root)
		if err != nil || nerr != nil || r.inPods() || at.given.Instances > 1 || len(at.given.Neighbours) > 0 {
			return 0
		}
		var ticks uint64
		for id := range cpus.All() {
			ticks += now[id].Busy + now[id].Interrupts - before[id].Busy - before[id].Interrupts
		}
		return time.Duration(ticks) * time.Second / 100
	}
}

// merged waits for all clients, even if one fails, and returns what they measured together.
func merged(all []client, spec scenario.Probe, given factor.Conditions, began time.Time,
	w *witness.Session) (m results.Measurement, err error) {
	each := make([]results.Measurement, len(all))
	for i, c := range all {
		var failed error
		each[i], failed = c.result(spec, began, w)
		err = errors.Join(err, named(failed, given, i))
	}
	if err != nil {
		return m, err
	}
	m = each[0]
	if together, is := spec.Probe.(probe.Merger); is {
		m, err = together.Merge(spec.Name, each)
	}
	return m, cmp.Or(err, described(m, spec))
}
