package prove

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/witness"
)

// privileged is a probe that needs capabilities which a lane takes from root's programs.
type privileged interface {
	Capabilities() []string // as in capabilities(7), without CAP_
}

// measures says where what measures runs, and what its threads are to the witness.
func (r *runner) measures(at place, spec scenario.Probe) (process.Lane, []string, witness.Subject, error) {
	if spec.Inside() {
		var need []string
		if p, ok := spec.Probe.(privileged); ok {
			need = p.Capabilities()
		}
		confines, env, err := r.inside(at, need...)
		return confines, env, witness.Subject{Role: witness.Application, Planned: at.cell.Application}, err
	}
	dir, err := knob.GroupDir(at.host, clientGroup)
	client := r.scenario.Spec.Client
	return process.Lane{Netns: netpath.Lab().Client.Netns, Cgroup: dir, Policy: client.Policy,
		Priority: client.Priority}, nil, witness.Subject{Role: witness.Client, Planned: at.cell.Client}, err
}

// probe makes one measurement with a fresh process.
func (r *runner) probe(ctx context.Context, at place, spec scenario.Probe, w *witness.Session,
	m moment) (results.Measurement, error) {
	confines, env, subject, err := r.measures(at, spec)
	if err != nil {
		return results.Measurement{}, err
	}
	given := r.conditions(spec, at)
	sampled := spec.Metrics(spec.Name)[0].Sampled // else there is nothing to explain
	// A client that something starves, such as a foreign real-time program on its CPU, must not
	// hold the session up for ever.
	ctx, cancel := context.WithTimeoutCause(ctx, given.Warmup+given.Window+patience, errStarved)
	defer cancel()
	if sampled {
		w.Record()
	}
	p, err := startAwaiting(ctx, r.self, spec.Name, confines, env, spec.Client(r.self, given), "")
	if err != nil {
		return results.Measurement{}, err
	}
	subject.PID = p.pid()
	w.AddSubject(subject)
	if r.fault != nil {
		m.probe = spec.Name
		if err = r.fault(ctx, m); err != nil {
			return results.Measurement{}, errors.Join(err, p.stop(syscall.SIGKILL, time.Second))
		}
	}
	out, err := p.wait()
	w.SubjectDone(p.pid())
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errStarved) {
		err = cause
	}
	if err != nil {
		return results.Measurement{}, err
	}
	measured, err := spec.Parse(out, given)
	if err == nil {
		err = described(measured, spec)
	}
	if err != nil || !sampled {
		return measured, err
	}
	if all, lost, ok := w.Recorded(); ok {
		measured.Tail, err = tail(measured, all, lost)
	}
	return measured, err
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
	c.Dir = at.scratch
	c.Address = netip.AddrPortFrom(netpath.Lab().Application.Addresses[0].Addr(), 0)
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
