package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"isolane.dev/isolane/kube/offer"
)

// watchClaims follows the claims of the cluster until ctx ends, and returns when it knows them. unwatch waits
// for the end.
func (n *Node) watchClaims(ctx context.Context) (unwatch func(), err error) {
	factory := informers.NewSharedInformerFactoryWithOptions(n.Client, 0, informers.WithTransform(n.trimClaim))
	claims := factory.Resource().V1().ResourceClaims().Informer()
	_, err = claims.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: n.wakeWatchFor,
		UpdateFunc: func(was, is any) { n.wakeWatchFor(was); n.wakeWatchFor(is) }, DeleteFunc: n.wakeWatchFor})
	if err != nil {
		return func() {}, err
	}
	n.claimStore = claims.GetStore()
	n.claims = cache.NewIntegerResourceVersionMutationCache(klog.FromContext(ctx), n.claimStore, nil,
		time.Minute, false)
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), claims.HasSynced) {
		err = fmt.Errorf("resourceclaims: no list from the API server: %w", ctx.Err())
	}
	return factory.Shutdown, err
}

// wakeWatchFor calls wakeWatch if a claim may concern this node; most claims of a large cluster do not. A
// claim of other drivers may belong to a pod whose lane waits for it.
func (n *Node) wakeWatchFor(claim any) {
	if gone, is := claim.(cache.DeletedFinalStateUnknown); is {
		claim = gone.Obj
	}
	c, is := claim.(*resourceapi.ResourceClaim)
	if !is || c.Status.Allocation == nil {
		return
	}
	ours := slices.ContainsFunc(c.Status.Allocation.Devices.Results,
		func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Driver == offer.Driver })
	if !ours || len(offer.Results(c, n.Name)) > 0 {
		n.wakeWatch()
	}
}

// trimClaim removes from a claim what is not read here, because each node part has all claims of the cluster.
// Of claims of other nodes and drivers it keeps who has which device. This loses nothing when the status of a
// claim is written: the API server takes only the status from that.
func (n *Node) trimClaim(of any) (any, error) {
	if c, is := of.(*resourceapi.ResourceClaim); is {
		c.ManagedFields = nil
		if len(offer.Results(c, n.Name)) == 0 {
			c.Labels, c.Annotations, c.OwnerReferences = nil, nil, nil
			c.Spec, c.Status.Devices = resourceapi.ResourceClaimSpec{}, nil
			if a := c.Status.Allocation; a != nil {
				a.Devices.Config = nil
			}
		}
	}
	return of, nil
}

// nodeClaims returns the claims that have devices of this node, sorted by uid.
func (n *Node) nodeClaims() []*resourceapi.ResourceClaim {
	var all []*resourceapi.ResourceClaim
	for _, key := range n.claimStore.ListKeys() {
		o, is, err := n.claims.GetByKey(key)
		if c, ok := o.(*resourceapi.ResourceClaim); err == nil && is && ok && isAllocatedHere(c, n.Name) {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *resourceapi.ResourceClaim) int {
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return all
}

// isAllocatedHere reports whether a claim has devices of this node's pool and is allocated for this node:
// another node can publish slices of the same pool.
func isAllocatedHere(c *resourceapi.ResourceClaim, node string) bool {
	if len(offer.Results(c, node)) == 0 || c.Status.Allocation.NodeSelector == nil {
		return false
	}
	terms := c.Status.Allocation.NodeSelector.NodeSelectorTerms
	for _, term := range terms {
		if !slices.ContainsFunc(term.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && r.Operator == corev1.NodeSelectorOpIn &&
				slices.Equal(r.Values, []string{node})
		}) {
			return false
		}
	}
	return len(terms) > 0
}
