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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/ask"
	"isolane.dev/isolane/kube/node/cards"
	"isolane.dev/isolane/kube/offer"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

// answer solves each pod that waits for its claims, and writes the results into the claims. If why says that
// nothing is offered, it refuses all with that reason.
func (n *Node) answer(ctx context.Context, l *lanes.Lanes, why string) error {
	var failed error
	late := time.Now().Add(time.Second) // for the scheduler's counts, of all pods together
	asked := map[types.UID]bool{}
	for _, c := range n.nodeClaims() {
		if !n.isUnanswered(c) || len(c.Status.ReservedFor) == 0 {
			continue
		}
		by := c.Status.ReservedFor[0]
		if asked[by.UID] {
			continue
		}
		asked[by.UID] = true
		if no := ask.OfPod(c); no != nil {
			_, err := n.writeAnswer(ctx, c, plan.Placement{}, no)
			failed = errors.Join(failed, err)
			continue
		}
		pod, err := n.Client.CoreV1().Pods(c.Namespace).Get(ctx, by.Name, metav1.GetOptions{})
		if err == nil && pod.UID == by.UID { // otherwise the pod has gone, and its claim will go too
			err = n.answerPod(ctx, l, pod, c, why, late)
		}
		// What has gone or changed meanwhile is handled at the next look.
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failed = errors.Join(failed, fmt.Errorf("pod %s/%s: %w", c.Namespace, by.Name, err))
		}
	}
	return failed
}

// isUnanswered reports whether a claim has devices without an answer.
func (n *Node) isUnanswered(c *resourceapi.ResourceClaim) bool {
	for _, r := range offer.Results(c, n.Name) {
		if len(r.BindingConditions) > 0 && !isAnswered(c, r) {
			return true
		}
	}
	return false
}

func isAnswered(c *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult) bool {
	for _, s := range c.Status.Devices {
		if s.Driver == r.Driver && s.Pool == r.Pool && s.Device == r.Device &&
			(meta.IsStatusConditionTrue(s.Conditions, offer.Placed) ||
				meta.IsStatusConditionTrue(s.Conditions, offer.Refused)) {
			return true
		}
	}
	return false
}

// answerPod answers all claims of a pod at once. If one has no devices yet, or still has the lane of an
// earlier pod, it waits for the next look. A claim that is reserved for the pod but does not belong to it is
// refused alone.
func (n *Node) answerPod(ctx context.Context, l *lanes.Lanes, pod *corev1.Pod,
	waits *resourceapi.ResourceClaim, why string, late time.Time) error {
	began := time.Now()
	claims := []*resourceapi.ResourceClaim{waits}
	var all []*resourceapi.ResourceClaim
	if names := ask.ClaimsOf(pod); slices.Contains(names, waits.Name) {
		claims = nil
		for _, name := range names {
			o, is, err := n.claims.GetByKey(pod.Namespace + "/" + name)
			c, ok := o.(*resourceapi.ResourceClaim)
			if err != nil || !is || !ok || c.Status.Allocation == nil {
				return err
			}
			all = append(all, c)
			if isAllocatedHere(c, n.Name) && n.isUnanswered(c) {
				claims = append(claims, c)
			}
		}
	}
	for _, c := range claims {
		// The lane of a pod that was deleted by force goes when that has ended. Then this is called again.
		of, err := n.preparedFor(string(c.UID))
		if err != nil || of != "" && of != string(pod.UID) && len(lanesOf(l, string(c.UID))) > 0 {
			return err
		}
	}
	a, err := n.account(l, claims)
	if err != nil {
		return err
	}
	p, refused := n.solve(ctx, a, pod, claims, late)
	if refused == nil {
		refused = ask.RefuseRealTime(host.Live(), p, claims...)
	}
	if why != "" {
		refused = errors.New(why)
	}
	if refused == nil {
		if p, err = cards.Explain(ctx, n.Client, a.host, n.Name, all, claims, p); err != nil {
			n.Log.WarnContext(ctx, "devices of other drivers", "err", err)
		}
	}
	if _, mistaken := errors.AsType[ask.Mistake](refused); refused != nil && !mistaken { // else no node fits it
		if err = n.withhold(ctx, claims); err != nil {
			return err
		}
	}
	for _, c := range claims {
		text, err := n.writeAnswer(ctx, c, p, refused)
		if err != nil {
			return err
		}
		if refused == nil {
			n.emitPlaced(ctx, pod, c, text)
		}
		n.Log.InfoContext(ctx, "answered", "pod", pod.Namespace+"/"+pod.Name, "claim", c.Name,
			"milliseconds", time.Since(began).Milliseconds(), "refused", refused)
	}
	return nil
}

// solve places the claims of a pod. The scheduler writes what it counts for them into the status of the pod a
// moment after it has reserved them. If only that is missing, solve waits until late. A scheduler that counts
// nothing writes nothing; then solve waits for each pod that asks for too little. It does not remember this,
// because the scheduler may be restarted with the feature on.
func (n *Node) solve(ctx context.Context, a account, pod *corev1.Pod, claims []*resourceapi.ResourceClaim,
	late time.Time) (plan.Placement, error) {
	of := func(pod *corev1.Pod) (plan.Placement, error) {
		return ask.Solve(a.host, a.placed, n.Name, pod, claims, n.otherClaimsOf(pod, claims...)...)
	}
	p, refused := of(pod)
	if refused == nil || !n.claimsCountAsCPUs() || len(pod.Status.NodeAllocatableResourceClaimStatuses) > 0 {
		return p, refused
	}
	if _, still := of(ask.AllCounted(pod, claims)); still != nil {
		return p, refused
	}
	_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Until(late), true,
		func(context.Context) (bool, error) { // read once even if it is late
			now, err := n.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			if err == nil && now.UID == pod.UID {
				pod = now
			}
			return len(pod.Status.NodeAllocatableResourceClaimStatuses) > 0, nil
		})
	return of(pod)
}

// claimsCountAsCPUs reports whether claims count as CPUs of the node, as far as the API server tells. What
// the scheduler does is in the status of the pod.
func (n *Node) claimsCountAsCPUs() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.uncounted
}

// emitPlaced writes an event for a pod that says what its claim got.
func (n *Node) emitPlaced(ctx context.Context, pod *corev1.Pod, c *resourceapi.ResourceClaim, text string) {
	of := podReference(c, resourceapi.ResourceClaimConsumerReference{Name: pod.Name, UID: pod.UID})
	n.emitEvent(ctx, of, corev1.EventTypeNormal, offer.Placed, fmt.Sprintf("claim %s: %s", c.Name, text))
}

// podReference returns a pod for which a claim is reserved, for events.
func podReference(c *resourceapi.ResourceClaim, by resourceapi.ResourceClaimConsumerReference,
) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: c.Namespace, Name: by.Name,
		UID: by.UID}
}

// writeAnswer writes the answer for a claim into its status, and returns it as text.
func (n *Node) writeAnswer(ctx context.Context, c *resourceapi.ResourceClaim, p plan.Placement,
	refused error) (text string, err error) {
	next := c.DeepCopy()
	next.Status.Devices, err = ask.Status(c, n.Name, n.partition, p, refused, metav1.Now())
	if err != nil {
		return "", err
	}
	api := n.Client.ResourceV1().ResourceClaims(c.Namespace)
	done, err := api.UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil {
		return "", err
	}
	n.claims.Mutation(done)
	var texts []string
	for _, d := range next.Status.Devices {
		placed := meta.FindStatusCondition(d.Conditions, offer.Placed)
		if d.Driver == offer.Driver && d.Pool == n.Name && placed != nil {
			texts = append(texts, placed.Message)
		}
	}
	return strings.Join(texts, "; and "), nil
}

// otherClaimsOf returns the other claims of a pod that have lanes of this node.
func (n *Node) otherClaimsOf(
	pod *corev1.Pod, claims ...*resourceapi.ResourceClaim,
) []*resourceapi.ResourceClaim {
	names := ask.ClaimsOf(pod)
	return slices.DeleteFunc(n.nodeClaims(), func(c *resourceapi.ResourceClaim) bool {
		return c.Namespace != pod.Namespace || !slices.Contains(names, c.Name) ||
			slices.ContainsFunc(claims, func(o *resourceapi.ResourceClaim) bool { return o.UID == c.UID })
	})
}
