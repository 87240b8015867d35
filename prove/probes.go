package prove

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/probe"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/witness"
)

// probe makes one measurement with a fresh client process.
func (r *runner) probe(ctx context.Context, h host.Host, c results.Cell, spec ProbeSpec, w *witness.Session,
	m moment) (results.Measurement, error) {
	dir, err := knob.GroupDir(h, clientGroup)
	if err != nil {
		return results.Measurement{}, err
	}
	client := r.scenario.Spec.Client
	confines := process.Lane{Netns: netpath.Lab().Client.Netns, Cgroup: dir,
		Policy: client.Policy, Priority: client.Priority}
	given := r.conditions(spec)
	// A client that something starves, such as a foreign real-time program on its CPU, must not
	// hold the session up for ever.
	ctx, cancel := context.WithTimeoutCause(ctx, given.Warmup+given.Window+patience, errStarved)
	defer cancel()
	if spec.Samples() { // else there is nothing to explain
		w.Record()
	}
	p, err := start(ctx, r.self, spec.Name, confines, spec.Client(r.self, given))
	if err != nil {
		return results.Measurement{}, err
	}
	w.AddSubject(witness.Subject{Role: witness.Client, PID: p.pid(), Planned: c.Client})
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
	if err != nil || !spec.Samples() {
		return measured, err
	}
	if all, lost, ok := w.Recorded(); ok {
		measured.Tail, err = tail(measured, all, lost)
	}
	return measured, err
}

// conditions are those of a probe, with the application's address.
func (r *runner) conditions(spec ProbeSpec) probe.Conditions {
	c := r.mode.conditions(spec)
	c.Address = netip.AddrPortFrom(netpath.Lab().Application.Addresses[0].Addr(), 0)
	c.CongestionControl = r.scenario.Spec.CongestionControl
	return c
}

// observe runs the probes under the eyes of the witness.
func (r *runner) observe(ctx context.Context, h host.Host, c results.Cell, m moment, run *results.Run) error {
	watch, err := r.watch(h, c, m)
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
	for _, spec := range r.scenario.Spec.Probes {
		measured, perr := r.probe(ctx, h, c, spec, w, m)
		if perr != nil {
			failed = fmt.Errorf("%s: %w", spec.Name, perr)
			break
		}
		run.Measured = append(run.Measured, measured)
	}
	run.Witness, err = w.End()
	return errors.Join(failed, err)
}
