// Package workload runs Instances on their host, each in its lane: a command, a systemd service, a Podman
// container, or a pod of the cluster of which the host is a node. It asks no hub.
package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/history/diary"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/hub/pods"
	"isolane.dev/isolane/lanes"
)

// Options say where Instances run, and as which users.
type Options struct {
	Dir   string // of records of what was started, and its output
	Lanes lanes.Options
	Users Users
	// Cluster is the cluster of which this host is a node. If it is nil, Instances are processes of the host.
	Cluster *pods.Cluster
}

// Instances are those of this host. Workloads outlive the agent: the next agent finds them in their cgroups.
// Instances is a desired.Runtime, so callers hold the lock of desired, except for Wake and Ended.
type Instances struct {
	lanes           lanes.Options
	diary           diary.Diary
	users           Users
	dir             string
	cluster         *pods.Cluster
	ended           chan struct{}
	beganAt         map[string]time.Time    // when this agent started each, by name
	outcomes        map[string]Outcome      // why an Instance does not run, by UID
	retriedAt       map[string]time.Time    // when it last tried to take back what a lane had left, by name
	ending          map[string]chan error   // receives the result of an end that takes its time, by name
	storeErrors     map[string]error        // why something about a running Instance is not stored, by name
	inCluster       map[string]promisedLane // Instances in the cluster, by name
	clusterFailedAt time.Time               // when the cluster last failed to answer
}

// New returns the Instances of a host, before any look at them.
func New(o Options) *Instances {
	return &Instances{lanes: o.Lanes, users: o.Users, dir: o.Dir, cluster: o.Cluster,
		diary: diary.Diary{Dir: history.Place(), Who: history.Caller("isolane-hub agent")},
		ended: make(chan struct{}, 1), beganAt: map[string]time.Time{}, outcomes: map[string]Outcome{},
		retriedAt: map[string]time.Time{}, ending: map[string]chan error{}, storeErrors: map[string]error{},
		inCluster: map[string]promisedLane{}}
}

// Ended signals that a process has ended, or that there is something else to do.
func (p *Instances) Ended() <-chan struct{} { return p.ended }

// Flush stores the events that the history of the host has not accepted yet.
func (p *Instances) Flush() error { return p.diary.Flush() }

// restartPause is how long a process that ends at once is left alone.
const restartPause = 5 * time.Second

func (p *Instances) recordFile(name string) string { return filepath.Join(p.dir, name+".json") }

// logFile returns the file with what a command has printed since it began.
func (p *Instances) logFile(name string) string { return p.recordFile(name) + ".log" }

// Ensure starts an Instance that does not run, and restarts one that runs by another spec. If this host
// cannot run the wanted spec, Ensure looks after what ran before.
func (p *Instances) Ensure(ctx context.Context, uid string, i desired.Instance) error {
	err := p.ensure(ctx, i)
	p.outcomes[uid] = outcomeOf(i, err)
	return err
}

func (p *Instances) ensure(ctx context.Context, i desired.Instance) error {
	started, was, err := p.readRecord(i)
	ours := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var spec api.InstanceSpec
	if err = json.Unmarshal(i.Spec, &spec); err != nil {
		return err
	}
	w, same := p.workload(i.Name, spec), bytes.Equal(started, i.Spec)
	_, pids, err := p.laneGroup(i.Name)
	switch {
	case err != nil && !isNoLane(err):
		return err
	case err == nil && !ours:
		return fmt.Errorf("a lane %s is in force that the hub has not asked for: expected isolane release "+
			"%[1]s, or another name", i.Name)
	case same && (err == nil || p.cluster != nil):
		if runs, rerr := w.isRunning(ctx, pids); runs || rerr != nil {
			return errors.Join(asTenantError(rerr), rotateLog(p.logFile(i.Name)))
		}
	}
	begun := ours && !was.Reserve
	if err = p.users.checkUser(spec); err == nil { // before what runs is ended
		err = w.checkPossible(ctx, begun && was.Service == spec.Service)
	}
	if err = asTenantError(err); err == nil && begun && p.cluster == nil {
		err = p.checkFits(i.Name, spec)
	}
	switch {
	case err != nil && !same && begun:
		i.Spec = started
		if before := p.ensure(ctx, i); before != nil {
			return fmt.Errorf("%w; what ran before does not run: %w", err, before)
		}
		return fmt.Errorf(goesOnPrefix+"%w", err)
	case err != nil:
		return err
	}
	if same && time.Since(p.beganAt[i.Name]) < restartPause {
		return asTenantError(fmt.Errorf("it has ended less than %s after it began: see %s", restartPause,
			w.whereOutput()))
	}
	if begun && (p.cluster == nil || !same) { // a pod may wait to be bound
		if err = p.workload(i.Name, was).end(ctx); err != nil {
			return err
		}
	}
	if err = p.start(ctx, i, w); err != nil {
		return err
	}
	return p.checkRunning(ctx, i.Name, w)
}

// checkRunning says what is not up yet of an Instance that has just begun.
func (p *Instances) checkRunning(ctx context.Context, name string, w workload) error {
	_, pids, err := p.laneGroup(name)
	if err != nil && !isNoLane(err) {
		return err
	}
	runs, err := w.isRunning(ctx, pids)
	if err == nil && !runs {
		err = api.NotYet("it has just begun")
	}
	return err
}

// readRecord returns the spec by which an Instance of that name was last reserved or started.
func (p *Instances) readRecord(i desired.Instance) (text []byte, spec api.InstanceSpec, err error) {
	if text, err = os.ReadFile(p.recordFile(i.Name)); err != nil {
		return nil, spec, err
	}
	if json.Unmarshal(text, &spec) != nil { // an older agent has left it incomplete: take the declared spec
		spec = api.InstanceSpec{}
		_ = json.Unmarshal(i.Spec, &spec) // a reservation has none
	}
	return text, spec, nil
}

// writeRecord writes what is about to begin to disk, under the name of an Instance. It writes nothing if the
// disk already has it, because the disk may take no more writes.
func (p *Instances) writeRecord(i desired.Instance) error {
	was, err := os.ReadFile(p.recordFile(i.Name))
	if err == nil && bytes.Equal(was, i.Spec) {
		return nil
	}
	return desired.WriteFile(p.recordFile(i.Name), i.Spec)
}

// Wake has all Instances looked at again.
func (p *Instances) Wake() {
	select {
	case p.ended <- struct{}{}:
	default:
	}
}

func isNoLane(err error) bool {
	_, is := errors.AsType[*enforce.NoLaneError](err)
	return is
}

// start puts the lane in force, and starts a workload in it.
func (p *Instances) start(ctx context.Context, i desired.Instance, w workload) error {
	if p.cluster != nil { // the claim has put its lane in force
		err := p.writeRecord(i)
		if err == nil {
			err = w.begin(ctx, nil)
		}
		p.beganAt[i.Name] = time.Now()
		return err
	}
	l, _, err := lanes.OpenPatiently(ctx, p.lanes)
	if err != nil {
		return err
	}
	got, err := p.putLane(ctx, l, i) // before the start: a service attaches to its lane
	if err = errors.Join(err, l.Close()); err != nil {
		return err
	}
	noted := p.storeLacks(i.Name, got)
	if l, err = lanes.Look(p.lanes); err != nil {
		return err
	}
	if err = w.begin(ctx, l); err == nil {
		p.beganAt[i.Name] = time.Now()
	}
	return errors.Join(err, noted, p.storeErrors[i.Name])
}

// End ends everything in the lane, and releases it.
func (p *Instances) End(ctx context.Context, uid string, i desired.Instance) (err error) {
	defer func() {
		if delete(p.outcomes, uid); err != nil {
			p.outcomes[uid] = outcomeOf(i, err)
		}
	}()
	_, was, err := p.readRecord(i)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it never began; a lane of its name is somebody else's
	}
	if err != nil {
		return err
	}
	if !was.Reserve {
		if err = p.workload(i.Name, was).end(ctx); err != nil {
			return err
		}
	}
	if p.cluster == nil {
		if err = p.release(ctx, i.Name); err != nil {
			return err
		}
	}
	delete(p.beganAt, i.Name)
	delete(p.retriedAt, i.Name)
	delete(p.storeErrors, i.Name)
	return errors.Join(os.RemoveAll(p.privateDir(i.Name)), os.RemoveAll(p.sessionFile(i.Name)),
		os.RemoveAll(p.leftoversFile(i.Name)), os.RemoveAll(p.lacksFile(i.Name)),
		os.RemoveAll(p.logFile(i.Name)), os.RemoveAll(rotatedLog(p.logFile(i.Name))),
		os.Remove(p.recordFile(i.Name)))
}

// laneGroup returns the cgroup of a lane in force, and the processes in it. The error is an
// *enforce.NoLaneError if there is no such lane.
func (p *Instances) laneGroup(name string) (enforce.LaneGroup, []int, error) {
	l, err := lanes.Look(p.lanes)
	if err != nil {
		return enforce.LaneGroup{}, nil, err
	}
	if _, err = l.Lane(name); err != nil {
		return enforce.LaneGroup{}, nil, err
	}
	groups, err := l.Groups()
	if err != nil {
		return enforce.LaneGroup{}, nil, err
	}
	g := groups[slices.IndexFunc(groups, func(g enforce.LaneGroup) bool { return g.Lane.Name == name })]
	pids, err := cgroup.Processes(host.Live(), g.Dir)
	return g, pids, err
}
