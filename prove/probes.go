package prove

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/guest"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/witness"
)

// privileged is a probe that needs capabilities which a lane takes from root's programs.
type privileged interface {
	Capabilities() []string // as in capabilities(7), without CAP_
}

// capabilities are those that a probe's application needs beside a lane's.
func capabilities(spec scenario.Probe) []string {
	if p, ok := spec.Probe.(privileged); ok {
		return p.Capabilities()
	}
	return nil
}

// unhurried is a probe that takes longer than others, beside warm-up and window.
type unhurried interface{ Patience() time.Duration }

// restorer is a probe whose client runs a program that changes the host, and restores that when it is asked
// to end. It takes so long for that at most.
type restorer interface{ Restores() time.Duration }

// measurer is what measures, and where.
type measurer struct {
	confines process.Lane
	env      []string
	argv     []string
	guest    guest.Guest // the zero value is the host
	subject  witness.Subject
}

// outside are the confines of the client.
func (r *runner) outside(at place) (process.Lane, error) {
	dir, err := knob.GroupDir(at.host, layout.Client)
	client := r.scenario.Spec.Client
	return process.Lane{Netns: wire().Netns, Cgroup: dir, Policy: client.Policy, Priority: client.Priority}, err
}

// measures says where what measures runs, and what its threads are to the witness.
func (r *runner) measures(at place, spec scenario.Probe, given probe.Conditions) (m measurer, err error) {
	m.argv = spec.Client(r.self, given)
	if !spec.Inside() {
		m.subject = witness.Subject{Role: witness.Client, Planned: at.cell.Client}
		m.confines, err = r.outside(at)
		return m, err
	}
	m.subject = witness.Subject{Role: witness.Application, Planned: at.cell.Application}
	_, m.subject.Tree = spec.Probe.(restorer)
	if m.confines, m.env, err = r.inside(at, capabilities(spec)...); err != nil || at.given.Guest.Runtime == "" {
		return m, err
	}
	m.guest, m.subject.Tree = at.given.Guest, true
	m.guest.Bind = at.given.Place == factor.InLane
	if m.guest.CPUs == 0 {
		m.guest.CPUs = r.layouts[at.cell.Name].Lane.Len() // as many in each placement
	}
	m.guest.Dir, err = os.MkdirTemp(at.scratch, "guest-")
	m.argv = guest.Command(r.self, m.guest, m.argv)
	m.confines.Capabilities = nil // it takes more to make a guest, and the guest has no more than it needs
	return m, err
}

// probe makes one measurement with a fresh process.
func (r *runner) probe(ctx context.Context, at place, spec scenario.Probe, w *witness.Session,
	m moment) (results.Measurement, error) {
	given := r.conditions(spec, at)
	by, err := r.measures(at, spec, given)
	if err != nil {
		return results.Measurement{}, err
	}
	// else there is nothing to explain, or nobody knows when it was
	sampled := spec.Metrics(spec.Name)[0].Sampled && !by.guest.OwnClock() && r.only == nil
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limitOf(spec, by, given), errStarved)
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
	p, err := startClient(ctx, r.self, spec, by)
	if err != nil {
		return results.Measurement{}, starved(err)
	}
	by.subject.PID = p.pid()
	w.AddSubject(by.subject)
	if r.fault != nil {
		m.probe = spec.Name
		if err = r.fault(ctx, m); err != nil {
			return results.Measurement{}, errors.Join(err, p.stop(syscall.SIGKILL, time.Second))
		}
	}
	out, err := p.wait()
	took := time.Since(began)
	w.SubjectDone(p.pid())
	if err != nil {
		return results.Measurement{}, starved(err)
	}
	measured, err := spec.Parse(out, given)
	if err == nil {
		err = described(measured, spec)
	}
	if err == nil {
		err = complete(&measured, by.guest)
	}
	if !by.guest.OwnClock() {
		early(&measured, took, given.Window)
	}
	if err != nil || !sampled {
		return measured, err
	}
	if all, lost, ok := w.Recorded(); ok {
		measured.Tail, err = tail(measured, all, lost)
	}
	return measured, err
}

// limitOf is how long what measures may take. A client that something starves, such as a foreign real-time
// program on its CPU, must not hold the session up for ever.
func limitOf(spec scenario.Probe, by measurer, given probe.Conditions) time.Duration {
	limit := given.Warmup + given.Window + by.guest.Overhead() + patience
	if u, ok := spec.Probe.(unhurried); ok {
		limit += u.Patience()
	}
	return limit
}

// startClient starts what measures. A restorer is asked to end when ctx does, the others are killed.
func startClient(ctx context.Context, self string, spec scenario.Probe, by measurer) (*proc, error) {
	asked, ok := spec.Probe.(restorer)
	if !ok {
		return startAwaiting(ctx, self, spec.Name, by.confines, by.env, by.argv, "")
	}
	p, err := startAwaiting(context.WithoutCancel(ctx), self, spec.Name, by.confines, by.env, by.argv, "")
	if err == nil {
		// who waits for it hears how it ended
		context.AfterFunc(ctx, func() { _ = p.stop(syscall.SIGTERM, asked.Restores()) })
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

// complete adds what the guest says of itself. Moments on its own clock say nothing here.
func complete(m *results.Measurement, g guest.Guest) error {
	if g.Runtime == "" {
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

// described refuses figures that no metric describes, and those that are no numbers.
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

// conditions are those of a probe, with the application's address.
func (r *runner) conditions(spec scenario.Probe, at place) probe.Conditions {
	c := r.mode.Conditions(spec)
	c.Dir, c.CPUs = at.scratch, at.host.Online().Len()
	address := applicationAddresses()[0].Addr()
	if other := at.given.Ends.Address; other.IsValid() {
		address = other
	}
	c.Address = netip.AddrPortFrom(address, 0)
	c.CongestionControl = r.scenario.Spec.CongestionControl
	return c
}

// observe runs the probes under the eyes of the witness.
func (r *runner) observe(ctx context.Context, at place, m moment, run *results.Run) error {
	watch, err := r.watch(at.host, at.cell, m)
	if err != nil {
		return err
	}
	if r.fault != nil {
		if err = r.fault(ctx, m); err != nil {
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
		run.Measured = append(run.Measured, measured)
	}
	run.Witness, err = w.End()
	return errors.Join(failed, err)
}

func (r *runner) watch(h host.Host, c results.Cell, m moment) (witness.Watch, error) {
	w := witness.Watch{CPUs: h.Online(), Cpusets: map[string]cpuset.Set{}}
	for _, p := range m.application {
		w.Subjects = append(w.Subjects, witness.Subject{Role: witness.Application, PID: p.pid(),
			Planned: c.Application, Tree: true})
	}
	if m.client != nil {
		w.Subjects = append(w.Subjects, witness.Subject{Role: witness.Client, PID: m.client.pid(),
			Planned: c.Client, Tree: true})
	}
	application, err := r.applicationDir(h)
	if err != nil {
		return w, err
	}
	w.Measured, w.Client = c.Application, c.Client
	w.Cpusets[application] = c.Application
	w.Own, w.Workload = append(r.attached(), application), r.inForce != nil
	if r.scenario.Networked() {
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
		w.Neighbours.PID, w.Neighbours.Planned = m.neighbours.pid(), c.Neighbours
	}
	return w, nil
}
