package node

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"

	"github.com/containerd/nri/pkg/api"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lanes"
)

// cpusBefore is an annotation of the containers that this program keeps off the lanes' CPUs by their cpusets,
// and of those whose pod's cgroup was made with less (madeNarrow). It has the CPUs that the container would
// have had; "" are all of its pod's. The container runtime keeps it as long as the container, so it outlives
// this program.
const cpusBefore = offer.Driver + "/cpus-before"

// keptOff is a running container with that annotation.
type keptOff struct {
	group, pause string // its cgroup, and that of its pod's sandbox, below the hierarchy
	before       string
}

// before returns the CPUs that a container has without this program; "": all of its pod's.
func before(c *api.Container) string {
	if list, is := c.Annotations[cpusBefore]; is {
		return list
	}
	return c.GetLinux().GetResources().GetCpu().GetCpus()
}

// cpusForOthers returns the CPUs that a container without a lane may have; before are those that it would
// have had. keep is false if the kernel keeps it off, or there are no lanes.
func (n *Node) cpusForOthers(l *lanes.Lanes, before string) (cpus cpuset.Set, keep bool, err error) {
	if len(l.Placement.Lanes) == 0 || n.partition != offer.Cpusets {
		return cpus, false, nil
	}
	has, err := cpuset.Parse(before)
	if err != nil || has.IsEmpty() {
		return l.Placement.Housekeeping, true, err
	}
	if cpus = has.Difference(l.Placement.CPUs()); cpus.IsEmpty() {
		cpus = l.Placement.Housekeeping
	}
	return cpus, true, nil
}

// madeNarrow reports whether the pod's cgroup lacks CPUs of the one above. With cgroup v1 the kubelet makes
// it with those that were there then, and the lanes that had the others may go before its container is made.
func (r *runtime) madeNarrow(pod *api.PodSandbox) bool {
	if r.unified || r.partition != offer.Cpusets {
		return false
	}
	dir := path.Join(r.cpusets, path.Dir(cgroupOf(pod.GetLinux().GetCgroupsPath())))
	has, err := cpuset.Read(host.Live(), path.Join(dir, "cpuset.cpus")[1:])
	above, aerr := cpuset.Read(host.Live(), path.Join(path.Dir(dir), "cpuset.cpus")[1:])
	return errors.Join(err, aerr) == nil && !above.IsSubsetOf(has)
}

// recordKeptOff records a container that starts or runs, if it has that annotation.
func (r *runtime) recordKeptOff(pod *api.PodSandbox, c *api.Container) {
	list, is := c.Annotations[cpusBefore]
	if group := cgroupOf(c.GetLinux().GetCgroupsPath()); is && group != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.keptOff[c.Id] = keptOff{group, cgroupOf(pod.GetLinux().GetCgroupsPath()), list}
	}
}

// giveBack gives containers that were made while lanes were in force the CPUs of lanes that have gone. The
// host's journal has only those of older containers.
func (n *Node) giveBack(ctx context.Context) error {
	n.mu.Lock()
	all, runtime := maps.Clone(n.keptOff), n.runtime
	n.mu.Unlock()
	if len(all) == 0 || runtime == nil {
		return nil
	}
	l, err := lanes.Look(n.Lanes)
	if err != nil {
		return err
	}
	updates := map[string]*api.ContainerUpdate{}
	for id, k := range all {
		if cpus := n.lacks(l, k); !cpus.IsEmpty() {
			updates[id] = &api.ContainerUpdate{}
			updates[id].SetContainerId(id)
			updates[id].SetLinuxCPUSetCPUs(cpus.String())
			updates[id].SetIgnoreFailure() // it may have ended; else the next look finds it
		}
	}
	if len(updates) == 0 {
		return nil
	}
	if err = n.widen(ctx, slices.Collect(maps.Keys(updates)), all); err != nil {
		return err
	}
	// Without the lock of the lanes: a container that the runtime starts may wait for that.
	if _, err = runtime.UpdateContainers(slices.Collect(maps.Values(updates))); err == nil {
		n.Log.InfoContext(ctx, "gave CPUs back", "containers", len(updates))
	}
	return err
}

// lacks returns the CPUs that a container should have now, or none if it has them.
func (n *Node) lacks(l *lanes.Lanes, k keptOff) cpuset.Set {
	dir := path.Join(n.cpusets, k.group)
	has, err := cpuset.Read(host.Live(), path.Join(dir, "cpuset.cpus")[1:])
	above, aerr := cgroup.CPUs(host.Live(), path.Dir(path.Dir(dir))) // its pod's cgroup may lack them too
	if errors.Join(err, aerr) != nil {
		return cpuset.Set{} // it has ended
	}
	cpus, kept, err := n.cpusForOthers(l, k.before)
	if !kept && err == nil {
		cpus, err = cpuset.Parse(k.before)
	}
	if cpus.IsEmpty() {
		cpus = above
	}
	if cpus = cpus.Intersection(above); err != nil || cpus.IsSubsetOf(has) {
		return cpuset.Set{}
	}
	return cpus
}

// widen gives the cgroups of the containers' pods, and of their sandboxes, what the lanes have left: the
// kubelet and the runtime have made them with less.
func (n *Node) widen(ctx context.Context, ids []string, all map[string]keptOff) error {
	l, done, err := n.openLanes(ctx)
	if err != nil {
		return err
	}
	defer done()
	for _, id := range ids {
		for _, group := range []string{path.Dir(all[id].group), all[id].pause} {
			if group == "" {
				continue
			}
			if err = l.Widen(ctx, group); err != nil {
				return err
			}
		}
	}
	return nil
}
