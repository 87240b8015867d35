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

	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// serveRuntime is a plugin of the container runtime until ctx ends. It connects again when the runtime
// restarts.
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

// runtime answers the container runtime, which continues without an answer after its plugin_request_timeout,
// two seconds by default.
type runtime struct {
	*Node
	stub stub.Stub
}

// attachTimeout returns how long a container waits for the lock of the lanes. It is less than the runtime's
// timeout, which old runtimes do not tell.
func (r *runtime) attachTimeout() time.Duration {
	return cmp.Or(r.stub.RequestTimeout(), stub.DefaultRequestTimeout) * 9 / 10
}

// Synchronize is called with all running containers when the runtime or this program has started. It attaches
// the lane of each container that lacks it, and takes all others off the lanes' CPUs.
func (r *runtime) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) (
	[]*api.ContainerUpdate, error,
) {
	l, err := lanes.Look(r.Lanes)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	clear(r.cpuSetters) // nobody reports containers that ended meanwhile
	clear(r.untouched)
	clear(r.keptOff)
	r.runtime = r.stub
	r.mu.Unlock()
	var updates []*api.ContainerUpdate
	for _, c := range containers {
		at := slices.IndexFunc(pods, func(p *api.PodSandbox) bool { return p.Id == c.PodSandboxId })
		if at < 0 || !isRunning(c) {
			continue
		}
		// With cgroup v1 this program may have set its CPUs.
		r.recordOtherPlugin(pods[at], c, r.partition == offer.Cpusets)
		r.recordKeptOff(pods[at], c)
		placed, has, cerr := r.laneOf(l, pods[at], c)
		if cerr == nil && has {
			cerr = r.attachOrEnd(ctx, placed, c)
		}
		if errors.Is(cerr, journal.ErrBusy) || errors.Is(cerr, context.DeadlineExceeded) {
			// The runtime then drops this plugin, which connects again after a second and retries.
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
	if err = r.moveOthersOff(ctx); err == nil {
		r.Log.InfoContext(ctx, "synchronized", "containers", len(containers))
		r.markSynchronized()
	}
	return updates, err
}

// RunPodSandbox takes a new pod's cgroup off the lanes' CPUs: the runtime cannot set where a pod starts.
func (r *runtime) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	if err := r.moveOthersOff(ctx); err != nil { // the pod is not at fault
		r.Log.WarnContext(ctx, "lanes' CPUs", "pod", podName(pod), "err", err)
	}
	return nil
}

// CreateContainer keeps a container off the lanes' CPUs if the kernel does not. That includes a container
// with a lane: it gets its CPUs once its cgroup exists.
func (r *runtime) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error,
) {
	a, err := r.adjust(pod, c)
	if err != nil && len(namedLanes(c)) > 0 {
		return nil, nil, err
	}
	if err != nil { // a node whose lanes cannot be read still starts its other containers
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
		if err = adjustForPart(l, placed.Name, namedLanes(c)[0], a); err != nil {
			return nil, err
		}
	}
	cpus, keep, err := r.cpusForOthers(l, before(c))
	if keep {
		a.SetLinuxCPUSetCPUs(cpus.String())
	}
	if !has && (keep || r.madeNarrow(pod)) {
		a.AddAnnotation(cpusBefore, before(c))
	}
	return a, err
}

// adjustForPart tells one of several containers its part of a lane: the claim's file has the same for all.
func adjustForPart(l *lanes.Lanes, part, device string, a *api.ContainerAdjustment) error {
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

// StartContainer attaches the lane to the container when its cgroup exists and its program does not run yet.
func (r *runtime) StartContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	r.mu.Lock()
	ours := !r.untouched[c.Id]
	delete(r.untouched, c.Id)
	r.mu.Unlock()
	r.recordOtherPlugin(pod, c, ours && r.partition == offer.Cpusets)
	r.recordKeptOff(pod, c)
	if len(namedLanes(c)) == 0 {
		return nil
	}
	l, err := lanes.Look(r.Lanes)
	if err != nil {
		return err
	}
	placed, has, err := r.laneOf(l, pod, c)
	if err == nil && has {
		err = r.attachOrEnd(ctx, placed, c)
	}
	if err != nil {
		r.Log.WarnContext(ctx, "start", "pod", podName(pod), "container", c.Name, "err", err)
	}
	return err
}

// update returns what a running container should have, or nil if the kernel sees to that. In cgroup v2 a
// cgroup above limits containers without own CPUs, and is restored later. The runtime could not do that.
func (r *runtime) update(l *lanes.Lanes, placed plan.Lane, has bool, c *api.Container) *api.ContainerUpdate {
	cpus, keep, err := r.cpusForOthers(l, before(c))
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

// laneOf returns the lane of a container's claim. It fails if the claim is not this pod's, or its lane is not
// in force: with an annotation a pod can name any device.
func (r *runtime) laneOf(l *lanes.Lanes, pod *api.PodSandbox, c *api.Container) (
	p plan.Lane, has bool, err error,
) {
	names := namedLanes(c)
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
	mine := slices.ContainsFunc(r.nodeClaims(), func(o *resourceapi.ResourceClaim) bool {
		return string(o.UID) == ask.Claim(names[0]) && len(o.Status.ReservedFor) > 0 &&
			string(o.Status.ReservedFor[0].UID) == pod.Uid // the first pod keeps the lane
	})
	if !mine || of != "" && of != pod.Uid { // nobody has checked a pod that came later
		return p, false, fmt.Errorf("container %s: lane %s: expected the claim of this pod alone: a lane is "+
			"one pod's: delete this pod, and give it a claim of its own, by a ResourceClaimTemplate", c.Name, names[0])
	}
	for _, part := range partsOf(l.Placement, names[0]) {
		if ask.Container(part) == c.Name {
			return part, true, nil
		}
	}
	p, err = l.Lane(names[0])
	return p, err == nil, err
}

// attachOrEnd is attach, but ends the container if attaching was undone: the runtime may have continued, and
// the hook may have seen the lane in force.
func (r *runtime) attachOrEnd(ctx context.Context, placed plan.Lane, c *api.Container) error {
	err := r.attach(ctx, placed, c)
	if u, is := errors.AsType[undoneError](err); is {
		err = errors.Join(err, killCgroup(ctx, u.group))
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
	patient, cancel := context.WithTimeout(ctx, r.attachTimeout())
	defer cancel()
	l, done, err := r.openLanes(patient)
	if err != nil {
		return err
	}
	defer done()
	if slices.ContainsFunc(l.Attached, func(at attached.Workload) bool {
		return at.Lane == placed.Name && strings.HasSuffix(at.Group, "/"+group) && !at.Begun && !at.Leaving &&
			(at.Own || r.partition != offer.Remote) // else detachIfShared would detach it
	}) {
		return nil
	}
	// Finish this however long it takes: the runtime continues without an answer, and the hook may have seen the
	// lane in force. If it were undone then, the container would run outside of its lane.
	whole := context.WithoutCancel(ctx)
	a, err := l.Attach(whole, attached.Workload{Lane: placed.Name, Group: group, Own: true,
		Alone: r.partition == offer.Cpusets, NoQuota: true})
	if err == nil {
		err = r.detachIfShared(whole, l, placed.Name, a.Warnings)
	}
	if err != nil {
		return undoneError{err, group}
	}
	r.Log.InfoContext(ctx, "attached", "lane", placed.Name, "cpus", placed.CPUs.String(), "threads", a.Threads,
		"milliseconds", time.Since(began).Milliseconds(), "warnings", a.Warnings)
	return nil
}

// detachIfShared detaches a container from its lane if nothing keeps others off its CPUs.
func (r *runtime) detachIfShared(ctx context.Context, l *lanes.Lanes, name string, warnings []string) error {
	groups, err := l.Groups()
	if err != nil {
		return err
	}
	for _, g := range groups {
		for _, at := range slices.Clone(l.Attached) {
			if g.Lane.Name != name || at.Lane != name || isExclusive(r.partition, at.Own, g.Partition) {
				continue
			}
			err = fmt.Errorf("lane %s: expected it in its container's cgroup (partition %s), found %q: isolane "+
				"status on the node says why: %s", name, r.partition, g.Partition, strings.Join(warnings, "; "))
			return errors.Join(err, l.Detach(ctx, at))
		}
	}
	return nil
}

// isExclusive reports whether others are kept off a lane's CPUs. own: the lane is in its container's cgroup.
// says is the kernel's word on the partition, "" with cgroup v1. If cpusets keep others off, none is needed.
func isExclusive(kind string, own bool, says string) bool {
	if kind == offer.Cpusets {
		return own || says == ""
	}
	return own && (says == "root" || says == "isolated")
}

// moveOthersOff takes cgroups made since the last change off the lanes' CPUs, if the kernel does not.
func (r *runtime) moveOthersOff(ctx context.Context) error {
	if r.partition != offer.Cpusets {
		return nil
	}
	l, err := lanes.Look(r.Lanes)
	if err != nil || len(l.Placement.Lanes) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.attachTimeout())
	defer cancel()
	l, done, err := r.openLanes(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err = l.Apply(ctx, l.Placement); errors.Is(err, fs.ErrNotExist) {
		err = nil // a cgroup has gone meanwhile
	}
	return err
}

// namedLanes returns the lanes that a container's devices name.
func namedLanes(c *api.Container) (names []string) {
	for _, d := range c.CDIDevices {
		if name, ours := laneOfDevice(d.Name); ours {
			names = append(names, name)
		}
	}
	return names
}

func isRunning(c *api.Container) bool {
	return c.State == api.ContainerState_CONTAINER_RUNNING || c.State == api.ContainerState_CONTAINER_CREATED
}

func podName(p *api.PodSandbox) string { return p.Namespace + "/" + p.Name }

// cgroupOf returns the path of a container's cgroup below the hierarchy, as runc makes it. The runtime gives
// a path, or with systemd slice:prefix:name (systemd.slice(5): a-b.slice is in a.slice).
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
