package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// repairDrift puts back what others have changed of the lanes in force, and tells it.
func (n *Node) repairDrift(ctx context.Context) {
	found, err := n.drift.Look(ctx)
	if err != nil && ctx.Err() == nil {
		n.Log.WarnContext(ctx, "settings of lanes", "err", err)
	}
	n.tellChanged(ctx, found)
}

// tellChanged tells what others have changed, by lane: by an event of the pod whose lane it is, or of the
// node.
func (n *Node) tellChanged(ctx context.Context, found map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(found)) {
		n.Log.WarnContext(ctx, "settings of lanes", "lane", name, "changed", found[name])
		of, text := n.nodeReference(), found[name]
		if name != "" {
			text = "lane " + name + ": " + text
		}
		for _, c := range n.nodeClaims() {
			if string(c.UID) == ask.Claim(name) && len(c.Status.ReservedFor) > 0 {
				of = podReference(c, c.Status.ReservedFor[0])
			}
		}
		n.emitEvent(ctx, of, corev1.EventTypeWarning, "LaneChanged", text)
	}
}

// restoreStatus writes the status of claims again that says otherwise than their lanes in force are, because
// somebody else has written it. It does so for a claim at most each five seconds.
func (n *Node) restoreStatus(ctx context.Context, l *lanes.Lanes) (failed error) {
	for _, c := range n.nodeClaims() {
		wrong, err := n.forged(l, c)
		if wrong == "" || err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if time.Since(n.restored[c.UID]) < 5*time.Second {
			failed = errors.Join(failed, fmt.Errorf("claim %s/%s: its status is written again and again by "+
				"somebody else", c.Namespace, c.Name)) // so that the next look tries again
			continue
		}
		p, err := n.placementOf(l, c)
		if err == nil {
			n.restored[c.UID] = time.Now()
			_, err = n.writeAnswer(ctx, c, p, nil)
		}
		if err == nil {
			n.drift.Tell(wrong, "claim "+c.Name+": somebody else has written its status: put back")
		} else if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // else it comes again
			failed = errors.Join(failed, fmt.Errorf("claim %s/%s: status: %w", c.Namespace, c.Name, err))
		}
	}
	maps.DeleteFunc(n.restored, func(_ types.UID, t time.Time) bool { return time.Since(t) > time.Minute })
	return failed
}

// forged returns a lane of a claim in force about which the claim's status says something else, or "". It
// leaves alone what nobody was to answer, and what is not of the pod that has the lane.
func (n *Node) forged(l *lanes.Lanes, c *resourceapi.ResourceClaim) (string, error) {
	if len(lanesOf(l, string(c.UID))) == 0 || len(c.Status.ReservedFor) == 0 {
		return "", nil
	}
	of, err := n.preparedFor(string(c.UID))
	if err != nil || of != string(c.Status.ReservedFor[0].UID) {
		return "", err
	}
	has, first := map[string]cpuset.Set{}, ""
	for i, r := range c.Status.Allocation.Devices.Results {
		if r.Driver != offer.Driver || r.Pool != n.Name {
			continue
		}
		name := ask.Name(string(c.UID), i)
		parts := partsOf(l.Placement, name)
		if len(r.BindingConditions) == 0 || len(parts) == 0 {
			return "", nil
		}
		for _, part := range parts {
			has[name] = has[name].Union(part.CPUs)
		}
		if first == "" {
			first = parts[0].Name
		}
	}
	if ask.Says(c, n.Name, of, has) {
		return "", nil
	}
	return first, nil
}

// placementOf returns the placement of a claim whose lanes are in force, as its answer has it.
func (n *Node) placementOf(l *lanes.Lanes, c *resourceapi.ResourceClaim) (plan.Placement, error) {
	a, err := n.account(l, []*resourceapi.ResourceClaim{c})
	if err != nil {
		return plan.Placement{}, err
	}
	want, err := ask.Lanes(a.host, c, n.Name)
	if err != nil {
		return plan.Placement{}, err
	}
	for i := range want {
		for _, part := range partsOf(a.placed, want[i].Metadata.Name) {
			want[i].Spec.CPUs.List = want[i].Spec.CPUs.List.Union(part.CPUs)
		}
	}
	return solver.Solve(a.host, a.without(c), want)
}

// tellForeign says of each pod whose claim has devices of this node's pool, but for another node, why it
// waits: another node has written a slice of this pool.
func (n *Node) tellForeign(ctx context.Context) {
	seen := map[types.UID]bool{}
	for _, o := range n.claimStore.List() {
		c, is := o.(*resourceapi.ResourceClaim)
		if !is || len(offer.Results(c, n.Name)) == 0 || isAllocatedHere(c, n.Name) ||
			len(c.Status.ReservedFor) == 0 {
			continue
		}
		if seen[c.UID] = true; !n.foreign[c.UID] {
			text := fmt.Sprintf("claim %s: has devices of pool %s, and is not allocated for node %[2]s alone: "+
				"another ResourceSlice has the pool's name: delete that, then this pod", c.Name, n.Name)
			n.emitEvent(ctx, podReference(c, c.Status.ReservedFor[0]), corev1.EventTypeWarning, offer.Refused, text)
		}
	}
	n.foreign = seen
}

// checkAPI returns an error, and says it of the node, if the API server has no claims of resource.k8s.io/v1.
func (n *Node) checkAPI(ctx context.Context) error {
	_, err := n.Client.Discovery().ServerResourcesForGroupVersion(resourceapi.SchemeGroupVersion.String())
	if !apierrors.IsNotFound(err) { // without an answer this program waits for one
		return nil
	}
	err = fmt.Errorf("%s: the API server does not have it: expected Kubernetes 1.34 or later, with its "+
		"features on (1.36): %w", resourceapi.SchemeGroupVersion, err)
	n.emitEvent(ctx, n.nodeReference(), corev1.EventTypeWarning, "NoLanesOffered", err.Error())
	return err
}
