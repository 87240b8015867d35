package sites

import (
	"context"
	"encoding/json"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
)

// leaseDuration is how long the hub believes that a host is there after its last sign of life.
const leaseDuration = 5 * time.Minute

// Inventory is how often a host reports everything about itself, even if only what always changes has
// changed.
const Inventory = time.Hour

// Pulse returns how long a host waits until its next sign of life. It varies, so that hosts that came back
// together do not stay in step. Two pulses take less than life: a host that was not heard once still counts
// as there.
func Pulse() time.Duration { return wait.Jitter(2*time.Minute, 0.2) }

// Calm returns how long a host waits until it reads what its watch may have missed. The API server itself
// ends a watch after half an hour to an hour.
func Calm() time.Duration { return wait.Jitter(30*time.Minute, 0.2) }

// Beat renews the Lease by which the hub sees that a host is there. last is what the previous call returned,
// nil before the first. With an error Beat returns nil.
func Beat(ctx context.Context, core kubernetes.Interface, host string, last *coordinationv1.Lease) (
	*coordinationv1.Lease, error) {
	leases := core.CoordinationV1().Leases(api.Namespace(host))
	now, seconds := metav1.NowMicro(), int32(leaseDuration.Seconds())
	spec := coordinationv1.LeaseSpec{HolderIdentity: &host, LeaseDurationSeconds: &seconds, RenewTime: &now}
	if last == nil {
		first := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: host}, Spec: spec}
		made, err := leases.Create(ctx, first, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			return kept(made, err)
		}
		if last, err = leases.Get(ctx, host, metav1.GetOptions{}); err != nil {
			return nil, err
		}
	}
	last.Spec = spec
	return kept(leases.Update(ctx, last, metav1.UpdateOptions{}))
}

// Announce tells hosts the URLs of the hub, separated by commas. It writes them where hosts look for the
// identity of the hub.
func Announce(ctx context.Context, core kubernetes.Interface, urls string) error {
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{api.URLs: urls}}})
	if err == nil {
		_, err = core.CoreV1().Namespaces().Patch(ctx, metav1.NamespaceSystem, types.MergePatchType, change,
			metav1.PatchOptions{FieldManager: fieldManager})
	}
	return err
}

func kept(l *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}
