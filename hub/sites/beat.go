package sites

import (
	"context"
	"encoding/json"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
)

// Pulse is how often a host says that it is there, and life how long the hub believes it.
const (
	Pulse = 2 * time.Minute
	life  = 5 * time.Minute
)

// Calm is how often a host reads what a watch may have missed, at most a fifth later, so that those that came
// back together do not read together for ever. Inventory is how often it says all that it is like, also where
// nothing has changed but what always does.
const (
	Calm      = 10 * time.Minute
	Inventory = time.Hour
)

// Beat renews the Lease by which the hub sees that a host is there, for that host. last is what it returned
// the time before, nil: nothing; what it returns with an error is nil.
func Beat(ctx context.Context, core kubernetes.Interface, host string, last *coordinationv1.Lease) (
	*coordinationv1.Lease, error) {
	leases := core.CoordinationV1().Leases(api.Namespace(host))
	now, seconds := metav1.NowMicro(), int32(life.Seconds())
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

// Announce tells hosts by which URLs they reach the hub, with commas between them: where they look which hub
// it is.
func Announce(ctx context.Context, core kubernetes.Interface, urls string) error {
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{api.URLs: urls}}})
	if err == nil {
		_, err = core.CoreV1().Namespaces().Patch(ctx, metav1.NamespaceSystem, types.MergePatchType, change,
			metav1.PatchOptions{FieldManager: manager})
	}
	return err
}

func kept(l *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}
