// Package pods runs Instances as pods of the Kubernetes cluster of which their host is a node. Their lanes
// belong to claims, which isolane-kube places and puts in force. The package is the scheduler of these pods:
// it gives a claim a device of its own node when the hub asks, and binds the pod when the hub has confirmed
// the Instance.
package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
)

// Cluster is the Kubernetes cluster of which this host is a node.
type Cluster struct {
	Client    kubernetes.Interface
	Node      string // this host's name there
	Namespace string // of the pods and claims, and of nothing else
}

// Pod is an Instance in the cluster: one container of an image, and its claim.
type Pod struct {
	Cluster
	Name  string // of the Instance
	Spec  api.InstanceSpec
	User  *int64 // of its programs, which have no capabilities; nil: root, as is usual in containers
	Lanes lanes.Options
}

// scheduler is the scheduler name of the pods, so that no other scheduler takes them.
const scheduler = "isolane-hub"

// object returns the name of the pod and of the claim. Other nodes may have an Instance of the same name.
func (p Pod) object() string { return p.Name + "." + p.Node }

// Said returns the command that shows the output of the pod.
func (p Pod) Said() string {
	return fmt.Sprintf("kubectl logs --namespace %s %s", p.Namespace, p.object())
}

// Possible says why this node cannot run the pod.
func (p Pod) Possible(ctx context.Context) error {
	if p.Spec.Image == "" {
		return errors.New("spec.image: expected one: this host is a node of a Kubernetes cluster, where what " +
			"runs are pods")
	}
	want, err := api.Lane(p.Name, p.Spec.Lane)
	if err != nil {
		return err
	}
	if len(want.Spec.Apart.Lanes) > 0 {
		return errors.New("spec.lane.apart: expected none: lanes of pods have names of their own")
	}
	node, err := p.Client.CoreV1().Nodes().Get(ctx, p.Node, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("node %s: %w", p.Node, err)
	}
	// By default a kubelet lists at most 50 images (nodeStatusMaxImages).
	const most = 50
	there := slices.ContainsFunc(node.Status.Images, func(i corev1.ContainerImage) bool {
		return slices.Contains(i.Names, p.Spec.Image)
	})
	if !there && len(node.Status.Images) < most {
		return fmt.Errorf("spec.image: %s is not on node %s: expected it there already, by its whole name",
			p.Spec.Image, p.Node)
	}
	return nil
}

func (p Pod) pods() podsOf { return podsOf{p.Client.CoreV1().Pods(p.Namespace)} }

// Runs reports whether the pod is bound and has not ended. The error says why its container does not come up.
// It is an api.NotYet if the container still may.
func (p Pod) Runs(ctx context.Context) (bool, error) {
	is, err := p.pods().find(ctx, p.object())
	if is == nil || err != nil || is.Spec.NodeName == "" {
		return false, err
	}
	if is.DeletionTimestamp != nil {
		return true, fmt.Errorf("pod %s is being deleted", p.object())
	}
	if is.Status.Phase == corev1.PodFailed || is.Status.Phase == corev1.PodSucceeded {
		return false, nil
	}
	for _, c := range is.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Message != "" {
			return true, fmt.Errorf("pod %s: %s: %s", p.object(), w.Reason, w.Message)
		}
	}
	if is.Status.Phase == corev1.PodRunning {
		return true, nil
	}
	why := "the kubelet of node " + p.Node + " has said nothing of it"
	for _, c := range is.Status.ContainerStatuses {
		if c.State.Waiting != nil {
			why = c.State.Waiting.Reason
		}
	}
	return true, api.NotYet(fmt.Sprintf("pod %s has not started: %s; kubectl describe pod --namespace %s %[1]s "+
		"has its events", p.object(), why, p.Namespace))
}

// Begin binds the pod that the reservation has made. If that pod was lost or has ended, it makes a new one.
func (p Pod) Begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	is, err := p.pods().find(ctx, p.object())
	if err != nil {
		return err
	}
	if is == nil || is.Spec.NodeName != "" {
		if err = p.End(ctx); err == nil { // also removes what is left of the claim
			_, err = p.Reserve(ctx)
		}
		if err != nil {
			return err
		}
	}
	return p.pods().Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.object()},
		Target: corev1.ObjectReference{Kind: "Node", Name: p.Node}}, metav1.CreateOptions{})
}

// attemptTimeout is how long one attempt may take.
const attemptTimeout = 10 * time.Second

// End deletes the pod, and then, when nothing of the pod is left, its claim.
func (p Pod) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if err := p.pods().end(ctx, p.object()); err != nil {
		return err
	}
	err := p.claimsOf().Delete(ctx, p.object(), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// grace is how many seconds a pod has to end before it is killed.
const grace = 5

// manifest returns the pod. Its container requests the lane's memory and the CPUs that the lane owns, so that
// the scheduler counts them. The kubelet lets it use only the hugepages of its limits.
func (p Pod) manifest(want lane.Lane, owned int) *corev1.Pod {
	requests := corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(owned), resource.DecimalSI)}
	if size := want.Spec.Memory.Size; size > 0 {
		requests[corev1.ResourceMemory] = *resource.NewQuantity(int64(size), resource.BinarySI)
	}
	limits := corev1.ResourceList{}
	for page, size := range want.Spec.Memory.Hugepages {
		limits[corev1.ResourceName(corev1.ResourceHugePagesPrefix+page)] =
			*resource.NewQuantity(int64(size), resource.BinarySI)
	}
	security := &corev1.SecurityContext{}
	if p.User != nil {
		security = &corev1.SecurityContext{RunAsUser: p.User, RunAsGroup: p.User,
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	}
	return &corev1.Pod{ObjectMeta: p.metadata(), Spec: corev1.PodSpec{
		SchedulerName: scheduler, Hostname: hostname(p.Name), TerminationGracePeriodSeconds: new(int64(grace)),
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
		ResourceClaims: []corev1.PodResourceClaim{{Name: request, ResourceClaimName: new(p.object())}},
		Containers: []corev1.Container{{Name: "main", Image: p.Spec.Image, Args: p.Spec.Command,
			ImagePullPolicy: corev1.PullNever, SecurityContext: security,
			Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: request}}, Limits: limits,
				Requests: requests}}},
	}}
}

// hostname makes a valid host name of a pod's name, which may have dots and be too long.
func hostname(name string) string {
	const most = 63 // RFC 1123
	name = strings.ReplaceAll(name, ".", "-")
	return strings.TrimRight(name[:min(len(name), most)], "-")
}

func (p Pod) metadata() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: p.object(), Labels: map[string]string{api.TenantOf: p.Spec.Tenant}}
}

// podsOf is the client for the pods of the namespace.
type podsOf struct{ typedcore.PodInterface }

// find returns a pod, or nil if there is none.
func (p podsOf) find(ctx context.Context, name string) (*corev1.Pod, error) {
	is, err := p.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return is, err
}

// end deletes a pod and waits until it is gone.
func (p podsOf) end(ctx context.Context, name string) error {
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		is, err := p.find(ctx, name)
		if is == nil && err == nil {
			tick.Stop()
			return nil
		}
		if err == nil && is.DeletionTimestamp == nil {
			if err = p.Delete(ctx, name, metav1.DeleteOptions{}); apierrors.IsNotFound(err) {
				err = nil
			}
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pod %s has not ended: %w", name, ctx.Err())
		case <-tick.C:
		}
	}
}
