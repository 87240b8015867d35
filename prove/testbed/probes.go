package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/network"
	"isolane.dev/isolane/prove/programs"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/guest"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/witness"
	"isolane.dev/isolane/witness/tail"
)

// privileged is a probe that needs capabilities which a lane takes from root's programs.
type privileged interface {
	Capabilities() []string // as in capabilities(7), without CAP_
}

// capabilities returns what a probe's application needs in addition to a lane's.
func capabilities(spec scenario.Probe) []string {
	if p, ok := spec.Probe.(privileged); ok {
		return p.Capabilities()
	}
	return nil
}

// unhurried is a probe that takes more time than others, besides warm-up and window.
type unhurried interface{ Patience() time.Duration }

// restorer is a probe whose client runs a program that changes the host, and restores it when asked to end,
// within this time.
type restorer interface{ Restores() time.Duration }

// measurer is what measures, and where.
type measurer struct {
	confines process.Lane
	env      []string
	argv     []string
	guest    guest.Guest // the zero value is the host
	subject  witness.Subject
}

// outside returns the confines of the client. Real-time priority would keep the application off a CPU that
// they share.
func (r *Bed) outside(at place) (process.Lane, error) {
	dir, err := knob.GroupDir(at.host, layout.Client)
	client := r.Scenario.Spec.Client
	if at.given.Distance == factor.SameCPU {
		client = scenario.Client{}
	}
	netns := network.Wire().Netns
	if r.Pods != nil { // the node reaches its pods
		netns = ""
	}
	return process.Lane{Netns: netns, Cgroup: dir, Policy: client.Policy, Priority: client.Priority}, err
}

// measures says where what measures runs, and what its threads are to the witness.
func (r *Bed) measures(at place, spec scenario.Probe, given probe.Conditions) (m measurer, err error) {
	m.argv = spec.Client(r.Self, given)
	if !spec.Inside() {
		m.subject = witness.Subject{Role: results.Client, Planned: at.cell.Client}
		if m.confines, err = r.outside(at); err != nil {
			return m, err
		}
		if stands(spec) {
			m.confines.Netns = network.BehindNetns(given.Instance)
		}
		return m, err
	}
	m.subject = witness.Subject{Role: results.Application, Planned: at.cell.Application, Tree: true}
	m.confines, m.env, err = r.inside(at, given.Instance, capabilities(spec)...)
	if err != nil || at.given.Guest.Runtime == "" {
		return m, err
	}
	m.guest = at.given.Guest
	m.argv, err = r.inGuest(at, &m.guest, &m.confines, m.argv)
	return m, err
}

// inGuest returns the command line that runs argv in a guest, which gets a directory for its files.
func (r *Bed) inGuest(at place, g *guest.Guest, confines *process.Lane, argv []string) (_ []string,
	err error) {
	g.Bind = at.given.Place == factor.InLane
	if g.CPUs == 0 {
		g.CPUs = r.Layouts[at.cell.Name].Lane.Len() // as many in each placement
	}
	if at.given.Place == factor.InLane {
		if g.PageBytes, err = r.pages(g.MemoryMiB()); err != nil {
			return nil, err
		}
	}
	g.Dir, err = os.MkdirTemp(at.scratch, "guest-")
	confines.Capabilities = nil // making a guest needs more, and the guest has only what it needs
	return guest.Command(r.Self, *g, argv), err
}

// pages returns the size of huge pages of the application's lane that have room for that much; 0 if it has
// none.
func (r *Bed) pages(mebibytes int) (bytes uint64, err error) {
	l, err := r.Lanes.Lane(r.laneName(0))
	for _, p := range l.Hugepages {
		if p.Pages*p.PageBytes >= uint64(mebibytes)<<20 {
			bytes = p.PageBytes
		}
	}
	return bytes, err
}

// serving returns the command line of a serving program of the application, on the host or in a container.
func (r *Bed) serving(at place, confines *process.Lane, argv, need []string, dir string) ([]string,
	error) {
	g := at.given.Guest
	if g.Runtime == "" {
		return argv, nil
	}
	g.Serve = &guest.Serve{Capabilities: need, Folder: dir}
	return r.inGuest(at, &g, confines, argv)
}

// probe makes one measurement with new processes, one per instance of the application.
func (r *Bed) probe(ctx context.Context, at place, spec scenario.Probe, w *witness.Session,
	m moment) (results.Measurement, error) {
	// Else there is nothing to explain, or nobody knows when it was.
	known := !spec.Inside() || !at.given.Guest.OwnClock()
	sampled := spec.Metrics(spec.Name)[0].Sampled && known && r.Only == nil
	began, run := time.Now(), ctx // run outlives what is restarted
	limit := limitOf(spec, at.given.Guest, r.Mode.Conditions(spec))
	ctx, cancel := programs.WithLimit(ctx, limit, errStarved)
	defer cancel()
	if sampled {
		w.Record()
	}
	starved := func(err error) error {
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStarved) {
			return cause
		}
		return err
	}
	counted, err := r.segments(ctx, at, spec)
	if err != nil {
		return results.Measurement{}, err
	}
	clients, err := r.startClients(ctx, at, spec, w)
	if m.probe = spec.Name; err == nil && r.Fault != nil {
		err = r.Fault(ctx, m)
	}
	var said string
	if err == nil {
		said, err = r.restart(run, at, spec, clients, m, w)
	}
	if err != nil {
		for _, c := range clients {
			err = errors.Join(err, c.Stop(syscall.SIGKILL, time.Second))
		}
		return results.Measurement{}, starved(err)
	}
	measured, err := merged(clients, spec, at.given, began, w)
	r.wereLate(clients, measured)
	if err == nil {
		measured.Segments, err = counted(ctx)
		whileKilled(&measured, said)
	}
	for _, p := range m.application {
		err = cmp.Or(err, complete(&measured, guest.Guest{Dir: p.Dir}))
	}
	if err != nil || !sampled {
		return measured, starved(err)
	}
	if all, lost, ok := w.Recorded(); ok {
		var why string
		if measured.Tail, why, err = tail.Of(measured, all, lost); why != "" {
			w.Warn("no tail of " + why)
		}
	}
	return measured, err
}

// limitOf returns how long what measures may take. A starved client, for example by a foreign real-time
// program on its CPU, must not block the session for ever.
func limitOf(spec scenario.Probe, in guest.Guest, given probe.Conditions) time.Duration {
	limit := given.Warmup + given.Window + in.Overhead() + patience
	if u, ok := spec.Probe.(unhurried); ok {
		limit += u.Patience()
	}
	return limit
}

// startClient starts what measures. When ctx ends, a restorer is asked to end, and others are killed.
func startClient(ctx context.Context, self string, spec scenario.Probe, by measurer) (
	*programs.Process, error,
) {
	asked, ok := spec.Probe.(restorer)
	if !ok {
		return programs.Start(ctx, self, spec.Name, by.confines, by.env, by.argv, programs.Ready{})
	}
	p, err := programs.Start(context.WithoutCancel(ctx), self, spec.Name, by.confines, by.env, by.argv,
		programs.Ready{})
	if err == nil {
		// whoever waits for it learns how it ended
		context.AfterFunc(ctx, func() { _ = p.Stop(syscall.SIGTERM, asked.Restores()) })
	}
	return p, err
}

// early makes a measurement void that took less time than its window.
func early(m *results.Measurement, took, window time.Duration) {
	if took < window {
		m.Void = append(m.Void, fmt.Sprintf("it ended early: after %s of a window of %s",
			took.Round(time.Millisecond), window))
	}
}

// complete adds what the guest says of itself. Times of its own clock mean nothing here, so it drops them.
func complete(m *results.Measurement, g guest.Guest) error {
	if g.Dir == "" {
		return nil
	}
	facts, err := guest.Facts(g.Dir)
	if m.Facts == nil {
		m.Facts = facts
	}
	maps.Copy(m.Facts, facts)
	if g.OwnClock() {
		m.Worst = nil
	}
	return err
}

// described rejects figures that no metric describes, and those that are no numbers.
func described(m results.Measurement, spec scenario.Probe) error {
	metrics := spec.Metrics(spec.Name)
	known := func(name string, sampled bool) bool {
		return slices.ContainsFunc(metrics, func(m results.Metric) bool {
			return m.Name == name &&
				m.Sampled == sampled
		})
	}
	for name, v := range m.Values {
		if !known(name, false) || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("expected a number for one of its metrics, found %s: %g", name, v)
		}
	}
	for name := range m.Samples {
		if !known(name, true) {
			return fmt.Errorf("expected samples of one of its metrics, found %s", name)
		}
	}
	return nil
}

// conditions returns the conditions of a probe at an instance of the application, with the address that
// clients ask. If there are several instances, each has a directory of its own.
func (r *Bed) conditions(spec scenario.Probe, at place, instance int) (probe.Conditions, error) {
	c := r.Mode.Conditions(spec)
	c.Dir, c.CPUs, c.ApplicationCPUs = at.scratch, at.host.Online().Len(), at.cell.Application.Len()
	c.Instance, c.Instances = instance, at.given.Instances
	c.Seed, c.Draw = r.Seed, r.Draw
	address := network.ApplicationAddresses(instance)[0].Addr()
	if _, is := spec.Probe.(between); is {
		address = network.Wire().Addresses[0].Addr()
	}
	if other := at.given.Ends.Address; other.IsValid() {
		address = other
	}
	if r.Pods != nil {
		address = r.Pods.address
	}
	c.Address = netip.AddrPortFrom(address, 0)
	c.CongestionControl = r.Scenario.Spec.CongestionControl
	if c.Instances < 2 {
		return c, nil
	}
	c.Dir = filepath.Join(c.Dir, layout.Instance(instance))
	return c, os.MkdirAll(c.Dir, 0o755)
}

// observe runs the probes while the witness watches.
func (r *Bed) observe(ctx context.Context, at place, m moment, run *results.Run) error {
	watch, err := r.watch(at.host, at.cell, m)
	if err != nil {
		return err
	}
	if r.Fault != nil {
		if err = r.Fault(ctx, m); err != nil {
			return err
		}
	}
	w, err := witness.Begin(ctx, watch)
	if err != nil {
		return err
	}
	var failed error
	for _, spec := range at.probes {
		measured, perr := r.probe(ctx, at, spec, w, m)
		if perr != nil {
			failed = fmt.Errorf("%s: %w", spec.Name, perr)
			break
		}
		measured.CacheLine = w.CacheLine()
		run.Measured = append(run.Measured, measured)
	}
	run.Witness, err = w.End()
	return errors.Join(failed, err, m.ended(at.given))
}

// ended says which programs have ended that should have run all the time, and how; nil: none.
func (m moment) ended(given factor.Conditions) (err error) {
	for i, p := range m.application {
		err = errors.Join(err, named(p.Ended(), given, i*max(1, given.Instances)/len(m.application)))
	}
	for _, p := range m.outside {
		err = errors.Join(err, p.Ended())
	}
	return err
}

func (r *Bed) watch(h host.Host, c results.Cell, m moment) (witness.Watch, error) {
	w := witness.Watch{CPUs: h.Online(), Cpusets: map[string]cpuset.Set{}}
	for _, p := range m.application {
		w.Subjects = append(w.Subjects, witness.Subject{Role: results.Application, PID: p.PID(),
			Planned: c.Application, Tree: true})
	}
	for _, p := range m.outside {
		w.Subjects = append(w.Subjects, witness.Subject{Role: results.Outside, PID: p.PID(), Planned: c.Client,
			Tree: true})
	}
	given := r.Scenario.Conditions(c)
	w.Measured, w.Client = c.Application, c.Client
	if m.pods != nil {
		return r.watchPods(h, c, m.pods, w)
	}
	dirs, err := r.applicationDirs(h, given)
	if err != nil {
		return w, err
	}
	for i, dir := range dirs {
		w.Cpusets[dir] = r.cpusOf(c, given, i)
	}
	w.Own, w.Workload = append(r.attached(), dirs...), r.InForce != nil
	if r.Scenario.Networked() {
		client, err := knob.GroupDir(h, layout.Client)
		if err != nil {
			return w, err
		}
		w.Cpusets[client], w.Own = c.Client, append(w.Own, client)
	}
	if !c.Neighbours.IsEmpty() {
		dir, err := knob.GroupDir(h, neighboursGroup)
		if err != nil {
			return w, err
		}
		w.Cpusets[dir] = c.Neighbours
	}
	if m.neighbours != nil {
		w.Neighbours.PID, w.Neighbours.Planned = m.neighbours.PID(), c.Neighbours
	}
	return w, nil
}
