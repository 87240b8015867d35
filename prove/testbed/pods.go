package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/factor"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/prove/layout"
	"isolane.dev/isolane/prove/scenario"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/runtime/pod"
	"isolane.dev/isolane/witness"
)

// Pod is the runtime of application and neighbours that are pods.
const Pod = "pod"

// Pods makes the pods of a session. While they exist, the node part changes the lanes of the host.
type Pods struct {
	cluster pod.Cluster
	static  *pod.Cluster // the node for cells with only a cpuset, which its kubelet assigns; nil: none
	lanes   lanes.Options
	address netip.Addr // of the application; before it runs, all its own addresses
	netns   string     // of the pod whose network a process has: its path
	lane    string     // of the application, if it has one
	started []pod.Pod  // that exist
	away    bool       // the lanes of the host are not this process's now
}

// inPods reports whether application and neighbours of the present cell are pods.
func (r *Bed) inPods() bool { return r.Pods != nil && !r.process }

// IsProcess reports whether a cell has a process even in a session with pods.
func (r *Bed) IsProcess(c results.Cell) bool { return r.Scenario.Conditions(c).Process }

// Groups returns the cgroups that the runs of a session make.
func (r *Bed) Groups() []string {
	return r.ownGroups(r.Pods == nil || slices.ContainsFunc(r.Scenario.AllCells(), r.IsProcess))
}

// podsOfRun are the pods of one run.
type podsOfRun struct {
	application pod.Pod
	neighbours  *pod.Pod // nil: none
}

// PodsCan rejects probes whose application needs more than a pod has.
func PodsCan(s scenario.Scenario) error {
	for _, p := range s.Spec.Probes {
		if _, is := p.Probe.(between); is || len(capabilities(p)) > 0 {
			return fmt.Errorf("probe %s: its application cannot be in a pod", p.Name)
		}
	}
	return nil
}

// FindPods finds the cluster of a session with pods, and with static that node.
func FindPods(ctx context.Context, static string, o lanes.Options) (*Pods, error) {
	c, of, err := pod.Find(ctx, static)
	return &Pods{cluster: c, static: of, lanes: o, address: netip.IPv4Unspecified()}, err
}

// Described returns the description for the record. A resumed session must be on the same node.
func (p *Pods) Described(before *results.Pods) (*results.Pods, error) {
	now := results.Pods{Node: p.cluster.Node, Kubelet: p.cluster.Version, Image: p.cluster.Image}
	if p.static != nil {
		now.Static = p.static.Node
	}
	if before != nil && *before != now {
		return nil, fmt.Errorf("the session began with pods of %v, here are %v", *before, now)
	}
	return &now, nil
}

// Notes says what a reader must know about pods.
func (p *Pods) Notes() []string {
	notes := []string{fmt.Sprintf("Application and neighbours are pods of node %s (kubelet %s): programs of "+
		"this host, over the image %s. Floating ones are BestEffort. Their packets take the cluster's network.",
		p.cluster.Node, p.cluster.Version, p.cluster.Image),
		"Pods may use the outside client's CPU too, below its real-time priority."}
	if p.static != nil {
		notes = append(notes, fmt.Sprintf("The pinned ones are Guaranteed pods of node %s (kubelet %s), which "+
			"gives them CPUs by its CPU manager, policy static; their neighbours are pods of that node. The "+
			"client is outside of both.", p.static.Node, p.static.Version))
	}
	return notes
}

// on returns the node of a cell's pods.
func (p *Pods) on(given factor.Conditions) pod.Cluster {
	if given.Place == factor.InCpuset && !given.Process {
		return *p.static
	}
	return p.cluster
}

// measurePods measures a cell whose application and neighbours are pods. Undo ends what it starts.
func (r *Bed) measurePods(ctx context.Context, at place, run *results.Run) error {
	m := moment{pods: &podsOfRun{}}
	var err error
	m.pods.application, err = r.startApplication(ctx, at)
	if err == nil && len(at.given.Neighbours) > 0 {
		m.pods.neighbours, err = r.startNeighbourPod(ctx, at)
	}
	if err != nil {
		return err
	}
	return r.measureStarted(ctx, at, m, run)
}

// handOver lets the node part change the lanes of the host. takeOver ends that.
func (r *Bed) handOver() error {
	err := errors.Join(r.Journal.Close(), r.Lanes.Close())
	r.Journal, r.Lanes, r.Pods.away = journal.None(nil), lanes.None(r.Pods.lanes), true
	return err
}

// takeOver opens the lanes again, with the journal of this run.
func (r *Bed) takeOver(ctx context.Context) error {
	l, _, err := lanes.OpenPatiently(ctx, r.Pods.lanes)
	if err != nil {
		return err
	}
	r.Lanes, r.Pods.away = l, false
	j, err := l.Beside("prove")
	if err == nil {
		r.Journal = j
	}
	return err
}

// startNetwork starts a pod that only sleeps, and whose network a process takes, so that its packets go the
// same way as a pod's.
func (r *Bed) startNetwork(ctx context.Context, at place) error {
	p, err := r.startPod(ctx, at, pod.Workload{Name: "prove-network",
		Programs: [][]string{{"sleep", "infinity"}}})
	if err != nil {
		return err
	}
	r.Pods.address, r.Pods.netns = p.Address, fmt.Sprintf("/proc/%d/ns/net", p.PID)
	return r.takeOver(ctx)
}

// startPod starts a pod with what all pods have.
func (r *Bed) startPod(ctx context.Context, at place, w pod.Workload) (pod.Pod, error) {
	for _, argv := range w.Programs {
		program, err := exec.LookPath(argv[0])
		if err == nil {
			argv[0], err = filepath.Abs(program)
		}
		if err != nil {
			return pod.Pod{}, err
		}
	}
	self, err := filepath.Abs(r.Self)
	if err == nil && !r.Pods.away {
		err = r.handOver()
	}
	if err != nil {
		return pod.Pod{}, err
	}
	w.Folders, w.Files = []string{at.scratch}, []string{self}
	w.Until = time.Now().Add(10*time.Minute + 2*r.Estimate())
	r.Pods.started = append(r.Pods.started, pod.Pod{Name: w.Name}) // even if it does not become ready
	return r.Pods.on(at.given).Start(ctx, r.Root, w)
}

// startApplication starts all servers in one container, whose lane must get the planned CPUs.
func (r *Bed) startApplication(ctx context.Context, at place) (p pod.Pod, err error) {
	w := pod.Workload{Name: layout.Application}
	for _, spec := range at.probes {
		given, cerr := r.conditions(spec, at, 0)
		if cerr != nil {
			return p, cerr
		}
		argv := spec.Server(r.Self, given)
		same := func(other []string) bool { return slices.Equal(other, argv) }
		if len(argv) > 0 && !slices.ContainsFunc(w.Programs, same) {
			w.Programs, w.Ready = append(w.Programs, argv), append(w.Ready, spec.Ready())
		}
	}
	if at.given.Place == factor.InLane {
		own := r.Layouts[at.cell.Name].Placement.Lanes
		w.Lane = &pod.Lane{Spec: at.given.Lane, Owns: own[len(own)-1].CPUs.Union(own[len(own)-1].Idle).Len()}
	}
	if at.given.Place == factor.InCpuset {
		w.CPUs = at.cell.Application.Len()
	}
	if p, err = r.startPod(ctx, at, w); err != nil {
		return p, err
	}
	var cpus cpuset.Set
	switch r.Pods.address = p.Address; {
	case w.Lane != nil:
		cpus, err = r.Pods.laneOf(p)
	case w.CPUs > 0:
		cpus, err = cgroup.CPUs(r.Root, p.Group)
	default:
		return p, nil
	}
	if err == nil && cpus != at.cell.Application {
		err = fmt.Errorf("pod %s: it has CPUs %s, planned %s: what else is on the node may have changed",
			p.Name, cpus, at.cell.Application)
	}
	return p, err
}

// laneOf returns the CPUs of the lane that a pod's container got.
func (p *Pods) laneOf(of pod.Pod) (cpuset.Set, error) {
	l, err := lanes.Look(p.lanes)
	if err != nil {
		return cpuset.Set{}, err
	}
	i := slices.IndexFunc(l.Attached, func(a attached.Workload) bool { return a.Group == of.Group })
	if i < 0 {
		return cpuset.Set{}, fmt.Errorf("pod %s: no lane has come to %s: isolane-kube of this node says why",
			of.Name, of.Group)
	}
	p.lane = l.Attached[i].Lane
	own, err := l.Lane(p.lane)
	return own.CPUs, err
}

func (r *Bed) startNeighbourPod(ctx context.Context, at place) (*pod.Pod, error) {
	p, err := r.startPod(ctx, at, pod.Workload{Name: neighboursGroup, Programs: [][]string{noiseOf(at)}})
	return &p, err
}

// watchPods lets the witness watch the pods' containers.
func (r *Bed) watchPods(h host.Host, c results.Cell, of *podsOfRun, w witness.Watch) (witness.Watch,
	error) {
	client, err := knob.GroupDir(h, layout.Client)
	if err != nil {
		return w, err
	}
	w.Subjects = append(w.Subjects, witness.Subject{Role: results.Application, PID: of.application.PID,
		Planned: c.Application, Tree: true})
	w.Cpusets[of.application.Group], w.Cpusets[client] = c.Application, c.Client
	w.Own = append(w.Own, of.application.Group, client)
	if n := of.neighbours; n != nil {
		w.Neighbours.PID, w.Neighbours.Planned = n.PID, c.Neighbours
		w.Cpusets[n.Group] = c.Neighbours
	}
	return w, nil
}

// endPods removes the pods of a run, waits until their lane is released, and takes over the lanes again.
func (r *Bed) endPods(ctx context.Context) error {
	if r.Pods == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var err error
	for _, p := range r.Pods.started {
		err = errors.Join(err, p.End(ctx))
	}
	r.Pods.started, r.Pods.address = nil, netip.IPv4Unspecified()
	if err != nil {
		return err
	}
	if !r.Pods.away {
		return nil
	}
	for r.Pods.lane != "" {
		l, err := lanes.Look(r.Pods.lanes)
		if err == nil {
			if _, gone := l.Lane(r.Pods.lane); gone != nil {
				r.Pods.lane = ""
			}
			err = pause(ctx, 50*time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("lane %s of a pod that has ended: %w", r.Pods.lane, err)
		}
	}
	return r.takeOver(ctx)
}
