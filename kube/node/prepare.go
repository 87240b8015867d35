package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// PrepareResourceClaims puts the lanes of claims in force, as far as that needs no container. Repeating it
// changes nothing.
func (n *Node) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (
	map[types.UID]kubeletplugin.PrepareResult, error,
) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		devices, err := n.prepare(ctx, c)
		if err != nil {
			n.Log.WarnContext(ctx, "prepare", "claim", c.Namespace+"/"+c.Name, "err", err)
		}
		results[c.UID] = kubeletplugin.PrepareResult{Err: err, Devices: devices}
	}
	n.wakeWatch()
	return results, nil
}

func (n *Node) prepare(ctx context.Context, c *resourceapi.ResourceClaim) ([]kubeletplugin.Device, error) {
	began := time.Now()
	if err := n.change.acquire(ctx); err != nil {
		return nil, err
	}
	defer n.change.release()
	if why := n.findConflict(); why != "" {
		return nil, errors.New(why)
	}
	want, err := n.lanesFor(ctx, c)
	if err != nil {
		return nil, err
	}
	l, _, err := lanes.OpenPatiently(ctx, n.Lanes)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err = l.Recorded(); err != nil {
		return nil, err
	}
	p, _, err := l.Want(want, false)
	if err != nil {
		return nil, err
	}
	of, err := n.owner(l, c)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.prepared[string(c.UID)] = true
	n.mu.Unlock()
	applied, err := l.Put(ctx, p)
	if err != nil {
		return nil, err
	}
	for _, w := range applied.Warnings {
		n.Log.WarnContext(ctx, "prepare", "claim", c.Namespace+"/"+c.Name, "warning", w)
	}
	n.Log.InfoContext(ctx, "in force", "claim", c.Namespace+"/"+c.Name, "settings", applied.Settings,
		"refused", len(applied.Refused), "milliseconds", time.Since(began).Milliseconds())
	return n.writeDevices(l, c, of)
}

// owner returns the uid of the pod that has a claim's lane or is getting it now. It records the pod before
// the lane is in force, so that after a kill no other pod gets the lane unchecked.
func (n *Node) owner(l *lanes.Lanes, c *resourceapi.ResourceClaim) (string, error) {
	uid, inForce := string(c.UID), len(lanesOf(l, string(c.UID))) > 0
	if inForce {
		if of, err := n.preparedFor(uid); err != nil || of != "" {
			return of, err
		}
	}
	if len(c.Status.ReservedFor) == 0 {
		return "", nil
	}
	of := string(c.Status.ReservedFor[0].UID)
	if inForce { // an older version recorded nobody
		return of, nil
	}
	// The runtime requires a device, but no container gets it before the lane is in force.
	return of, n.writeCDI(uid, of, []edit{{lane: ask.Name(uid, 0)}})
}

// writeDevices writes the claim's file for the container runtime, and returns the devices in it for the
// kubelet. pod is the uid of the pod that has the lane.
func (n *Node) writeDevices(l *lanes.Lanes, c *resourceapi.ResourceClaim, pod string) (
	[]kubeletplugin.Device, error,
) {
	var devices []kubeletplugin.Device
	var edits []edit
	for i, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != offer.Driver || r.Pool != n.Name {
			continue
		}
		name := ask.Name(string(c.UID), i)
		e := edit{lane: name, parts: partsOf(l.Placement, name)}
		switch len(e.parts) {
		case 0:
			return nil, fmt.Errorf("lane %s: expected it in force", name)
		case 1:
			var err error
			if e.env, err = environment(l, name); err != nil {
				return nil, err
			}
		}
		edits = append(edits, e)
		devices = append(devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool,
			DeviceName: r.Device, ShareID: r.ShareID, CDIDeviceIDs: []string{deviceID(name)}})
	}
	return devices, n.writeCDI(string(c.UID), pod, edits)
}

// lanesFor returns the lanes that a claim should get: those it was promised, or without an answer those that
// fit now. If several containers of the pod share a lane, each gets its own.
func (n *Node) lanesFor(ctx context.Context, c *resourceapi.ResourceClaim) ([]lane.Lane, error) {
	if !isAllocatedHere(c, n.Name) { // otherwise its pod would start without a lane
		return nil, fmt.Errorf("claim %s: expected devices of pool %s that are allocated for this node", c.Name,
			n.Name)
	}
	l, err := lanes.Look(n.Lanes)
	if err != nil {
		return nil, err
	}
	a, err := n.account(l, []*resourceapi.ResourceClaim{c})
	if err != nil {
		return nil, err
	}
	want, err := ask.Pinned(a.host, c, n.Name)
	if err != nil {
		return nil, err
	}
	promised, inForce, roles := true, true, false
	for i, w := range want {
		var has cpuset.Set
		for _, part := range partsOf(a.placed, w.Metadata.Name) {
			has = has.Union(part.CPUs)
		}
		if !has.IsEmpty() {
			want[i].Spec.CPUs.List = has
		}
		inForce = inForce && !has.IsEmpty()
		promised = promised && !want[i].Spec.CPUs.List.IsEmpty()
		roles = roles || len(w.Spec.Roles) > 0
	}
	if inForce && !roles {
		return want, nil
	}
	pod, err := n.podOf(ctx, c, promised)
	if err != nil {
		return nil, err
	}
	a.placed = a.without(c)
	var p plan.Placement
	switch {
	case inForce:
		p, err = solver.Solve(a.host, a.placed, want)
	case promised:
		p, err = n.placePromised(ctx, a, pod, c, want)
	default:
		p, err = ask.Solve(a.host, a.placed, n.Name, pod, []*resourceapi.ResourceClaim{c},
			n.otherClaimsOf(pod, c)...)
	}
	if err == nil {
		err = ask.RefuseRealTime(host.Live(), p, c)
	}
	if err != nil {
		return nil, err
	}
	return ask.Parts(a.host, pod, c, n.Name, p)
}

// placePromised places what a claim was promised. The host's own programs do not know of promises. If one of
// their lanes has these CPUs now, for example after a boot, the claim gets others, and its status says so.
func (n *Node) placePromised(ctx context.Context, a account, pod *corev1.Pod, c *resourceapi.ResourceClaim,
	want []lane.Lane) (plan.Placement, error) {
	p, err := solver.Solve(a.host, a.placed, want)
	if err == nil {
		// The answered pod was checked then, by the rules of then, and may be resized since. A later one was not.
		if ask.AnsweredFor(c, n.Name) != string(pod.UID) {
			err = ask.Fits(a.host, pod, []*resourceapi.ResourceClaim{c}, n.Name, p, n.otherClaimsOf(pod, c)...)
		}
		return p, err
	}
	again := c.DeepCopy()
	again.Status.Devices = nil
	other, no := ask.Solve(a.host, a.placed, n.Name, pod, []*resourceapi.ResourceClaim{again},
		n.otherClaimsOf(pod, c)...)
	if no != nil {
		return p, fmt.Errorf("what it was promised (%w) is gone, and nothing else fits: %w", err, no)
	}
	n.Log.WarnContext(ctx, "what was promised is gone", "claim", c.Namespace+"/"+c.Name, "err", err)
	text, err := n.writeAnswer(ctx, c, other, nil)
	if err == nil {
		n.emitPlaced(ctx, pod, c, text)
	}
	return other, err
}

// podOf returns the first pod for which a claim is reserved, which keeps the lane; another pod of the same
// name is an error. If nothing was promised, it must be the only one.
func (n *Node) podOf(ctx context.Context, c *resourceapi.ResourceClaim, promised bool) (*corev1.Pod, error) {
	if len(c.Status.ReservedFor) == 0 || !promised && len(c.Status.ReservedFor) > 1 {
		return nil, fmt.Errorf("claim %s: expected to be reserved for one pod, found %d", c.Name,
			len(c.Status.ReservedFor))
	}
	if err := ask.OfPod(c); err != nil {
		return nil, err
	}
	by := c.Status.ReservedFor[0]
	pod, err := n.Client.CoreV1().Pods(c.Namespace).Get(ctx, by.Name, metav1.GetOptions{})
	if err == nil && pod.UID != by.UID {
		err = fmt.Errorf("claim %s: reserved for a pod %s that has gone: expected its uid %s, found %s", c.Name,
			by.Name, by.UID, pod.UID)
	}
	return pod, err
}

// partsOf returns the lanes of a claim's device: one, or one for each of several containers.
func partsOf(p plan.Placement, device string) []plan.Lane {
	return slices.DeleteFunc(slices.Clone(p.Lanes), func(l plan.Lane) bool {
		return !ask.PartOf(l.Name, device)
	})
}

// environment returns what isolane run tells a workload about its lane.
func environment(l *lanes.Lanes, name string) ([]string, error) {
	_, env, err := l.Inside(name, lanes.With{Workload: true})
	// Where the node has mounted hugepages is not where the container has.
	return slices.DeleteFunc(env, func(e string) bool { return strings.HasPrefix(e, "ISOLANE_HUGEPAGES_") }), err
}

// UnprepareResourceClaims releases the lanes of claims. Repeating it changes nothing.
func (n *Node) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (
	map[types.UID]error, error,
) {
	results := map[types.UID]error{}
	for _, c := range claims {
		results[c.UID] = n.release(ctx, string(c.UID))
		if err := results[c.UID]; err != nil {
			n.Log.WarnContext(ctx, "unprepare", "claim", c.Namespace+"/"+c.Name, "err", err)
		}
	}
	n.wakeWatch()
	return results, nil
}

// release releases the lanes of a claim, and then removes its file.
func (n *Node) release(ctx context.Context, uid string) error {
	l, done, err := n.openLanes(ctx)
	if err != nil {
		return err
	}
	defer done()
	if names := lanesOf(l, uid); len(names) > 0 {
		released, rerr := l.Release(ctx, names...)
		if rerr != nil {
			return rerr
		}
		n.Log.InfoContext(ctx, "released", "lanes", names, "takenBack", released.TakenBack,
			"left", len(released.Left))
	}
	if err = n.removeCDI(uid); err == nil {
		n.mu.Lock()
		delete(n.prepared, uid)
		n.mu.Unlock()
	}
	return err
}

// WatchHealthStatus says that devices have no health: a device could not name single lanes.
func (*Node) WatchHealthStatus(context.Context, chan<- kubeletplugin.DeviceHealthReport) error {
	return kubeletplugin.ErrHealthNotSupported
}
