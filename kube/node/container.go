package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	resourceapi "k8s.io/api/resource/v1"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// serveRuntime is a plugin of the container runtime until ctx ends; it comes back when the runtime has been
// started again.
func (n *Node) serveRuntime(ctx context.Context) {
	for ctx.Err() == nil {
		r := &runtime{Node: n}
		var err error
		r.stub, err = stub.New(r, stub.WithPluginName("isolane"), stub.WithPluginIdx("50"),
			stub.WithSocketPath(n.NRI), stub.WithOnClose(func() {}))
		if err == nil {
			err = r.stub.Run(ctx)
		}
		if ctx.Err() == nil {
			n.Log.WarnContext(ctx, "container runtime", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// runtime answers the container runtime, which goes on without an answer after two seconds, or as long as its
// plugin_request_timeout says.
type runtime struct {
	*Node
	stub stub.Stub
}

// attaching is how long a container waits for the lanes' lock, below what the runtime waits. Old ones do not
// say that.
func (r *runtime) attaching() time.Duration {
	return cmp.Or(r.stub.RequestTimeout(), stub.DefaultRequestTimeout) * 9 / 10
}

// Synchronize is told what runs when the runtime or this program has been started. A container whose lane has
// not come to it gets it now; all others are taken off the lanes' CPUs.
func (r *runtime) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) (
	[]*api.ContainerUpdate, error,
) {
	l, err := lanes.Look(r.Lanes)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	clear(r.set) // what has ended meanwhile nobody tells
	clear(r.untouched)
	r.mu.Unlock()
	var updates []*api.ContainerUpdate
	for _, c := range containers {
		at := slices.IndexFunc(pods, func(p *api.PodSandbox) bool { return p.Id == c.PodSandboxId })
		if at < 0 || !runs(c) {
			continue
		}
		r.note(pods[at], c, r.partition == offer.Cpusets) // by cgroup v1 they may be this program's
		placed, has, cerr := r.laneOf(l, pods[at], c)
		if cerr == nil && has {
			cerr = r.bring(ctx, placed, c)
		}
		if errors.Is(cerr, journal.ErrBusy) || errors.Is(cerr, context.DeadlineExceeded) {
			// The runtime drops this plugin, which comes back in a second and tries again.
			return nil, fmt.Errorf("container %s/%s: %w", podName(pods[at]), c.Name, cerr)
		}
		if cerr != nil {
			r.Log.WarnContext(ctx, "container", "pod", podName(pods[at]), "name", c.Name, "err", cerr)
		}
		if u := r.update(l, placed, has, c); u != nil {
			u.SetIgnoreFailure()
			updates = append(updates, u)
		}
	}
	if err = r.takeOff(ctx); err == nil {
		r.Log.InfoContext(ctx, "synchronized", "containers", len(containers))
		r.hear()
	}
	return updates, err
}

// RunPodSandbox takes a new pod's cgroup off the lanes' CPUs: the runtime has no way to say where it begins.
func (r *runtime) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	if err := r.takeOff(ctx); err != nil { // no fault of this pod
		r.Log.WarnContext(ctx, "lanes' CPUs", "pod", podName(pod), "err", err)
	}
	return nil
}

// CreateContainer keeps a container off the lanes' CPUs, where the kernel does not do it. Also one that gets
// a lane: its CPUs come when its cgroup is there.
func (r *runtime) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error,
) {
	a, err := r.adjust(pod, c)
	if err != nil && len(named(c)) > 0 {
		return nil, nil, err
	}
	if err != nil { // a node whose lanes cannot be read starts its other containers
		r.Log.WarnContext(ctx, "lanes' CPUs", "pod", podName(pod), "container", c.Name, "err", err)
		a = nil
	}
	if a.GetLinux().GetResources().GetCpu().GetCpus() == "" {
		r.mu.Lock()
		r.untouched[c.Id] = true
		r.mu.Unlock()
	}
	return a, nil, nil
}

func (r *runtime) adjust(pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	l, err := lanes.Look(r.Lanes)
	if err != nil {
		return nil, err
	}
	placed, has, err := r.laneOf(l, pod, c)
	if err != nil {
		return nil, err
	}
	a := &api.ContainerAdjustment{}
	if has {
		a.SetLinuxCPUSetMems(placed.MemoryNodes.String())
		if err = tell(l, placed.Name, named(c)[0], a); err != nil {
			return nil, err
		}
	}
	cpus, keep, err := r.others(l, c)
	if keep {
		a.SetLinuxCPUSetCPUs(cpus.String())
	}
	return a, err
}

// tell tells one of several containers of its part of a claim's device: the claim's file knows no container.
func tell(l *lanes.Lanes, part, device string, a *api.ContainerAdjustment) error {
	if len(partsOf(l.Placement, device)) < 2 {
		return nil
	}
	env, err := environment(l, part)
	for _, e := range env {
		variable, value, _ := strings.Cut(e, "=")
		a.AddEnv(variable, value)
	}
	return err
}

// StartContainer brings the lane to the container: its cgroup exists, and its program does not run yet.
func (r *runtime) StartContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	r.mu.Lock()
	ours := !r.untouched[c.Id]
	delete(r.untouched, c.Id)
	r.mu.Unlock()
	r.note(pod, c, ours && r.partition == offer.Cpusets)
	if len(named(c)) == 0 {
		return nil
	}
	l, err := lanes.Look(r.Lanes)
	if err != nil {
		return err
	}
	placed, has, err := r.laneOf(l, pod, c)
	if err == nil && has {
		err = r.bring(ctx, placed, c)
	}
	if err != nil {
		r.Log.WarnContext(ctx, "start", "pod", podName(pod), "container", c.Name, "err", err)
	}
	return err
}

// update is what a running container is to have; nil where the kernel sees to that, or with cgroup v2 a
// cgroup above, which gets its CPUs back: the runtime could not do that.
func (r *runtime) update(l *lanes.Lanes, placed plan.Lane, has bool, c *api.Container) *api.ContainerUpdate {
	cpus, keep, err := r.others(l, c)
	if err != nil || !keep || r.unified && !has && c.GetLinux().GetResources().GetCpu().GetCpus() == "" {
		return nil
	}
	u := &api.ContainerUpdate{}
	u.SetContainerId(c.Id)
	if has {
		cpus = placed.CPUs
		u.SetLinuxCPUSetMems(placed.MemoryNodes.String())
	}
	u.SetLinuxCPUSetCPUs(cpus.String())
	return u
}

// others are the CPUs that containers without a lane may have; keep is false where the kernel keeps them off,
// or there are no lanes.
func (r *runtime) others(l *lanes.Lanes, c *api.Container) (cpus cpuset.Set, keep bool, err error) {
	if len(l.Placement.Lanes) == 0 || r.partition != offer.Cpusets {
		return cpus, false, nil
	}
	has, err := cpuset.Parse(c.GetLinux().GetResources().GetCpu().GetCpus())
	if err != nil || has.IsEmpty() {
		return l.Placement.Housekeeping, true, err
	}
	if cpus = has.Difference(l.Placement.CPUs()); cpus.IsEmpty() {
		cpus = l.Placement.Housekeeping
	}
	return cpus, true, nil
}

// laneOf is the lane that a container's claim has. It is an error where the claim is not this pod's, or its
// lane not in force: by an annotation a pod can name any device.
func (r *runtime) laneOf(l *lanes.Lanes, pod *api.PodSandbox, c *api.Container) (
	p plan.Lane, has bool, err error,
) {
	names := named(c)
	if len(names) == 0 {
		return p, false, nil
	}
	if len(names) > 1 {
		return p, false, fmt.Errorf("container %s: lanes %s: expected one", c.Name, strings.Join(names, ", "))
	}
	of, err := r.preparedFor(ask.Claim(names[0]))
	if err != nil {
		return p, false, err
	}
	mine := slices.ContainsFunc(r.mine(), func(o *resourceapi.ResourceClaim) bool {
		return string(o.UID) == ask.Claim(names[0]) && len(o.Status.ReservedFor) > 0 &&
			string(o.Status.ReservedFor[0].UID) == pod.Uid // the first pod keeps the lane
	})
	if !mine || of != "" && of != pod.Uid { // nobody has looked at one that came later
		return p, false, fmt.Errorf("container %s: lane %s: expected the claim of this pod alone: a lane is "+
			"one pod's", c.Name, names[0])
	}
	for _, part := range partsOf(l.Placement, names[0]) {
		if ask.Container(part) == c.Name {
			return part, true, nil
		}
	}
	p, err = l.Lane(names[0])
	return p, err == nil, err
}

// bring is attach that ends the container where the lane was taken back: the runtime may have gone on, and
// the hook have seen the lane.
func (r *runtime) bring(ctx context.Context, placed plan.Lane, c *api.Container) error {
	err := r.attach(ctx, placed, c)
	if u, is := errors.AsType[undone](err); is {
		err = errors.Join(err, end(ctx, u.group))
	}
	return err
}

// attach brings a lane to the cgroup of a container, as isolane attach --cgroup does.
func (r *runtime) attach(ctx context.Context, placed plan.Lane, c *api.Container) error {
	group := cgroupOf(c.GetLinux().GetCgroupsPath())
	if group == "" {
		return errors.New("the container runtime does not say the container's cgroup")
	}
	began := time.Now()
	patient, cancel := context.WithTimeout(ctx, r.attaching())
	defer cancel()
	if err := r.change.take(patient); err != nil {
		return err
	}
	defer r.change.give()
	l, _, err := lanes.OpenPatiently(patient, r.Lanes)
	if err != nil {
		return err
	}
	defer l.Close()
	if slices.ContainsFunc(l.Attached, func(at attached.Workload) bool {
		return at.Lane == placed.Name && strings.HasSuffix(at.Group, "/"+group) && !at.Begun && !at.Leaving &&
			(at.Own || r.partition != offer.Remote) // else recover did not bring it in as kept wants it
	}) {
		return nil
	}
	// To its end, however long that takes: the runtime goes on without an answer, and the hook may have seen the
	// lane in force. Were it undone after that, the container would run outside of it.
	whole := context.WithoutCancel(ctx)
	a, err := l.Attach(whole, attached.Workload{Lane: placed.Name, Group: group, Own: true,
		Alone: r.partition == offer.Cpusets})
	if err == nil {
		err = r.kept(whole, l, placed.Name, a.Warnings)
	}
	if err != nil {
		return undone{err, group}
	}
	r.Log.InfoContext(ctx, "attached", "lane", placed.Name, "cpus", placed.CPUs.String(), "threads", a.Threads,
		"milliseconds", time.Since(began).Milliseconds(), "warnings", a.Warnings)
	return nil
}

// kept lets a container out of its lane again where nobody keeps others off its CPUs.
func (r *runtime) kept(ctx context.Context, l *lanes.Lanes, name string, warnings []string) error {
	groups, err := l.Groups()
	if err != nil {
		return err
	}
	for _, g := range groups {
		for _, at := range slices.Clone(l.Attached) {
			if g.Lane.Name != name || at.Lane != name || keepsOff(r.partition, at.Own, g.Partition) {
				continue
			}
			err = fmt.Errorf("lane %s: expected it in its container's cgroup (partition %s), found %q: isolane "+
				"status on the node says why: %s", name, r.partition, g.Partition, strings.Join(warnings, "; "))
			return errors.Join(err, l.Detach(ctx, at))
		}
	}
	return nil
}

// keepsOff says whether a lane is in its container's cgroup, by what the kernel says of its partition: a
// valid one, or where others are kept off by their cpusets none, which is nothing at all with cgroup v1.
func keepsOff(kind string, own bool, says string) bool {
	if kind == offer.Cpusets {
		return own || says == ""
	}
	return own && (says == "root" || says == "isolated")
}

// takeOff takes cgroups off the lanes' CPUs that were made since the last change, where the kernel does not.
func (r *runtime) takeOff(ctx context.Context) error {
	if r.partition != offer.Cpusets {
		return nil
	}
	l, err := lanes.Look(r.Lanes)
	if err != nil || len(l.Placement.Lanes) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.attaching())
	defer cancel()
	if err = r.change.take(ctx); err != nil {
		return err
	}
	defer r.change.give()
	l, _, err = lanes.OpenPatiently(ctx, r.Lanes)
	if err != nil {
		return err
	}
	defer l.Close()
	if err = l.Apply(ctx, l.Placement); errors.Is(err, fs.ErrNotExist) {
		err = nil // a cgroup went meanwhile
	}
	return err
}

// named are the lanes that a container's devices name.
func named(c *api.Container) (names []string) {
	for _, d := range c.CDIDevices {
		if name, ours := laneOfDevice(d.Name); ours {
			names = append(names, name)
		}
	}
	return names
}

func runs(c *api.Container) bool {
	return c.State == api.ContainerState_CONTAINER_RUNNING || c.State == api.ContainerState_CONTAINER_CREATED
}

func podName(p *api.PodSandbox) string { return p.Namespace + "/" + p.Name }

// cgroupOf is the cgroup of a container below the hierarchy, as runc makes it: a path, or with systemd
// slice:prefix:name (systemd.slice(5): a-b.slice lies in a.slice).
func cgroupOf(cgroupsPath string) string {
	slice, scope, systemd := strings.Cut(cgroupsPath, ":")
	if !systemd {
		return strings.Trim(cgroupsPath, "/")
	}
	prefix, name, ok := strings.Cut(scope, ":")
	parts := strings.Split(strings.TrimSuffix(slice, ".slice"), "-")
	if !ok || slice == "" {
		return ""
	}
	dir := ""
	for i := range parts {
		dir = path.Join(dir, strings.Join(parts[:i+1], "-")+".slice")
	}
	return path.Join(dir, prefix+"-"+name+".scope")
}
