package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/programs"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/prove/settings"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/process"
	"isolane.dev/isolane/witness/judge"
)

// settle is the time between the start of application and neighbours and the first probe.
const settle = 500 * time.Millisecond

// patience is how long after its window a probe may still take, and neighbours may take to end.
const patience = 20 * time.Second

var errStarved = fmt.Errorf("the probe did not end within %s after its window: it hangs, or something else "+
	"keeps it off its CPU", patience)

// Bed is a host on which the runs of a session are made, one at a time.
type Bed struct {
	Self     string // the isolane binary
	Root     fs.FS  // of the host
	Lanes    *lanes.Lanes
	Journal  *journal.Journal  // of what is not the lane's: paths, groups of neighbours and client
	Scenario scenario.Scenario // around the lane in force, if there is one
	Kinds    scenario.Drivers
	InForce  *enforce.LaneGroup // the lane that is proved; nil: each run makes its own
	Mode     scenario.Mode
	Settings map[string]string        // of the host, as the session found them in this boot
	Layouts  map[string]layout.Layout // by cell that is measured in this boot
	Paths    []Path
	Only     *scenario.Probe                     // runs instead of the cell's probes
	Capacity map[string]float64                  // by probe whose load is a share of it
	LeftOut  []results.LeftOut                   // of this boot's cells and others
	Pods     *Pods                               // of cells that are not of processes; nil: no cell has pods
	Seed     uint64                              // of what is random in its measurements
	Draw     string                              // the seed of the next run, as in probe.Conditions
	Fault    func(context.Context, moment) error // the self-test's; nil otherwise
	process  bool                                // the present cell has no pods, whatever the session has
	late     time.Duration                       // total delay of clients that should have begun together
}

// moment is a point of a run at which the self-test breaks something.
type moment struct {
	probe       string // the probe whose clients have just started; "": before the first
	application []*programs.Process
	outside     []*programs.Process // what clients behind the application ask, or a program at the wire's end
	neighbours  *programs.Process
	pods        *podsOfRun // instead of application and neighbours
}

// responder returns the process that answers the clients: the first server.
func (m moment) responder() (*os.Process, error) {
	if m.pods != nil {
		return os.FindProcess(m.pods.application.PID)
	}
	return m.application[0].OS(), nil
}

// Run measures one cell and leaves the host as it was. It fails if the host could not be restored, or the
// session cannot continue. What fails in the run alone makes it void.
func (r *Bed) Run(ctx context.Context, c results.Cell) (results.Run, error) {
	r.process = r.IsProcess(c)
	if err := r.stayOff(c.Application); err != nil {
		return results.Run{}, err
	}
	run := results.Run{Cell: c.Name, Started: time.Now(),
		Changed: settings.Changed(r.Settings, settings.Read(r.Root))}
	err := r.measure(ctx, c, &run)
	uerr := r.undo(context.WithoutCancel(ctx))
	if ctx.Err() != nil { // then other errors are no news, except about what is left on the host
		if left, ok := errors.AsType[*programs.LeftError](err); ok {
			uerr = errors.Join(left, uerr)
		}
		return run, cmp.Or(uerr, ctx.Err())
	}
	if uerr != nil {
		return run, errors.Join(err, uerr)
	}
	run.Duration = results.Nanoseconds(time.Since(run.Started))
	if err != nil {
		run.Void = append(run.Void, strings.Split(err.Error(), "\n")...) // one a line, as joined
	}
	return run, nil
}

// stayOff keeps this process off the application's CPUs in all cells: it would run there only where the
// application floats.
func (r *Bed) stayOff(application cpuset.Set) error {
	online, err := host.Online(r.Root)
	if err != nil || online.Difference(application).IsEmpty() {
		return err
	}
	return process.StayOff(application)
}

// undo takes back what a run has changed, in reverse order.
func (r *Bed) undo(ctx context.Context) error {
	if err := r.endPods(ctx); err != nil {
		return err
	}
	err := r.Journal.Undo(ctx)
	if r.InForce != nil {
		return err
	}
	var own []string
	for i := 0; ; i++ {
		if _, none := r.Lanes.Lane(layout.Instance(i)); none != nil {
			break
		}
		own = append(own, layout.Instance(i))
	}
	if len(own) > 0 {
		_, rerr := r.Lanes.Release(ctx, own...)
		err = errors.Join(err, rerr)
	}
	return err
}

// prepare puts the host into the cell's conditions.
func (r *Bed) prepare(ctx context.Context, h host.Host, c results.Cell, given factor.Conditions,
	run *results.Run) error {
	var groups []knob.Group
	var networks []netpath.Lane
	var steps []journal.Step
	var err error
	if r.Scenario.Networked() {
		groups = append(groups, knob.Group{Name: layout.Client, CPUs: c.Client})
		if networks, err = r.connect(ctx, h, given); err != nil {
			return err
		}
	}
	inLane := r.InForce == nil && !r.inPods() && given.Place == factor.InLane
	if r.InForce == nil && !r.inPods() && !inLane {
		groups = append(groups, knob.Group{Name: layout.Application, CPUs: c.Application})
	}
	if inLane {
		err = r.putLanes(ctx, r.Layouts[c.Name].Placement, len(layout.Instances(given)), networks, run)
	}
	if err == nil {
		steps, err = r.pathSteps(networks, inLane)
	}
	if err != nil {
		return err
	}
	beyond, err := r.beyond(c, given, len(networks))
	if err != nil {
		return err
	}
	steps = append(steps, beyond...)
	if len(given.Neighbours) > 0 && !r.inPods() {
		groups = append(groups, knob.Group{Name: neighboursGroup, CPUs: c.Neighbours})
	}
	own, err := knob.Groups(h, groups...)
	if err != nil {
		return err
	}
	awake, err := knob.Awake(knob.View{Root: r.Root, Host: h}, layout.Awake(c, given))
	if err != nil {
		return err
	}
	refused, err := r.Journal.Apply(ctx, slices.Concat(steps, own, awake))
	for _, f := range refused {
		run.Notes = append(run.Notes, "refused: "+f.Err.Error())
	}
	if err == nil && len(networks) > 0 {
		err = r.meet(ctx, given, len(networks))
	}
	if err != nil {
		return err
	}
	return r.adopt(h, given)
}

// putLanes puts the lanes of the application in force, with their paths, as isolane apply does. They end with
// this process. Without a network, or with a whole path, lanes have no path.
func (r *Bed) putLanes(ctx context.Context, placement plan.Placement, count int, networks []netpath.Lane,
	run *results.Run) error {
	placement.Lanes = slices.Clone(placement.Lanes)
	own := placement.Lanes[len(placement.Lanes)-count:] // after those in force
	for i := range own {
		if err := r.Lanes.SetOwner(own[i].Name, os.Getpid()); err != nil {
			return err
		}
		if len(networks) == 0 {
			continue
		}
		path, err := r.path(networks[i].Path)
		if err != nil {
			return err
		}
		if isWhole(path) {
			continue
		}
		own[i].Spec.Network = networks[i].Network
		if f := networks[i].Functions; f.Card != "" {
			own[i].Devices = []plan.Device{{Address: f.Card, VFs: f.Numbers}}
		}
	}
	a, err := r.Lanes.Put(ctx, placement)
	for _, f := range a.Refused {
		run.Notes = append(run.Notes, "refused: "+f.Reason)
	}
	return err
}

// adopt records in the journal the processes that will run in the cell's groups.
func (r *Bed) adopt(h host.Host, given factor.Conditions) error {
	var dirs []string
	var err error
	if r.InForce == nil && !r.inPods() {
		if dirs, err = r.applicationDirs(h, given); err != nil {
			return err
		}
	}
	for _, name := range r.ownGroups(!r.inPods()) {
		if name == layout.Application || name == neighboursGroup && len(given.Neighbours) == 0 {
			continue
		}
		dir, derr := knob.GroupDir(h, name)
		if derr != nil {
			return derr
		}
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		if err = r.Journal.Adopt(journal.Step{Kind: change.KindProcesses, Target: dir,
			After: change.Running}); err != nil {
			return err
		}
	}
	return nil
}

// scratch makes a directory for the files of a run. It comes first, so that at its undo all that writes there
// has ended.
func (r *Bed) scratch(ctx context.Context) (string, error) {
	s, err := change.ScratchStep()
	if err == nil {
		_, err = r.Journal.Apply(ctx, []journal.Step{s})
	}
	return s.Target, err
}

func (r *Bed) measure(ctx context.Context, c results.Cell, run *results.Run) (err error) {
	ctx, cancel := context.WithCancel(ctx) // ends every process of this run
	defer cancel()
	h, err := host.Read(r.Root)
	if err != nil {
		return err
	}
	given := r.Scenario.Conditions(c)
	scratch, err := r.scratch(ctx)
	if err != nil {
		return err
	}
	at := place{h, c, given, nil, scratch}
	if r.Pods != nil && r.process {
		err = r.startNetwork(ctx, at)
	}
	if err == nil {
		err = r.prepare(ctx, h, c, given, run)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, programs.RunAfter(ctx, given.Limit, patience, given.After)) }()
	if err = programs.RunAll(ctx, given.Limit, given.Before); err != nil {
		return err
	}
	if at.probes, err = r.ProbesOf(c, given); err != nil {
		return err
	}
	if r.inPods() {
		return r.measurePods(ctx, at, run)
	}
	var m moment
	defer func() { err = errors.Join(err, stopAll(append(m.application, m.outside...))) }()
	client, application, err := r.startEnds(ctx, at)
	defer func() { err = errors.Join(err, stopEnds(client, application)) }()
	if err != nil {
		return err
	}
	if m.outside, err = r.startOutside(ctx, at); err != nil {
		return err
	}
	if m.application, err = r.startServers(ctx, at); err != nil {
		return err
	}
	if client != nil {
		m.outside, m.application = append(m.outside, client), append(m.application, application)
	}
	if len(given.Neighbours) > 0 {
		if m.neighbours, err = r.startNeighbours(ctx, at); err != nil {
			return err
		}
	}
	return r.measureStarted(ctx, at, m, run)
}

// measureStarted measures when all programs of a run have started, ends the neighbours, and judges the run.
func (r *Bed) measureStarted(ctx context.Context, at place, m moment, run *results.Run) error {
	err := pause(ctx, settle)
	if err == nil {
		err = r.observe(ctx, at, m, run)
	}
	if len(at.given.Neighbours) > 0 {
		err = errors.Join(err, r.stopNeighbours(ctx, m, at.scratch, run))
	}
	r.contradict(at, run)
	return err
}

// contradict makes a run void if its evidence contradicts its plan. The neighbours' own count of their work
// is part of the evidence.
func (r *Bed) contradict(at place, run *results.Run) {
	if run.Witness.Source == "" {
		return
	}
	inside := slices.ContainsFunc(at.probes, func(p scenario.Probe) bool { return p.Inside() })
	run.Void = append(run.Void, judge.Contradictions(run.Witness, r.expectations(at.cell, at.given, inside,
		run.Witness))...)
}

// expectations returns what the witness of a cell must show.
func (r *Bed) expectations(c results.Cell, given factor.Conditions, inside bool,
	w results.Witness) judge.Expect {
	e := judge.Expect{Noisy: len(given.Neighbours) > 0, Neighbours: c.Neighbours,
		Measured:     c.Application.Union(c.Client),
		StealPercent: r.Scenario.StealPercent(), Window: w.Window}
	if inside {
		e.Starter = os.Getpid()
	}
	if given.Place == factor.InLane {
		e.Lane = c.Application
	}
	return e
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// place is one cell on this host, with what is known once it is prepared.
type place struct {
	host    host.Host
	cell    results.Cell
	given   factor.Conditions
	probes  []scenario.Probe
	scratch string // directory of files that are removed after the run
}
