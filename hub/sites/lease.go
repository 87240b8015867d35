package sites

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
)

// Inventory is how often a host reports everything about itself, even if only what always changes has
// changed.
const Inventory = time.Hour

// Calm returns how long a host waits until it reads what its watch may have missed. The API server itself
// ends a watch after half an hour to an hour. A host that has just begun its watch reads sooner, as other
// hosts, which have come back with it, may have changed how often Leases are renewed.
func Calm(begun bool) time.Duration {
	if begun {
		return wait.Jitter(5*time.Minute, 0.2)
	}
	return wait.Jitter(30*time.Minute, 0.2)
}

// Renewal is how often a host renews the Lease by which the hub sees that it is there: often while the hub
// has few hosts, and more rarely the more it has, as each renewal costs the hub some 12 to 31 ms of a CPU.
type Renewal time.Duration

// How often it is at least and at most, and how much of it is for each host of the hub.
const (
	often   = Renewal(2 * time.Minute)
	seldom  = Renewal(10 * time.Minute)
	perHost = Renewal(300 * time.Millisecond)
	step    = 30 * time.Second // so that it does not change with each host
)

// RenewalOf returns what a hub with that many hosts asks of each.
func RenewalOf(hosts int) Renewal {
	all := min(max(Renewal(hosts)*perHost, often), seldom)
	return Renewal(time.Duration(all).Truncate(step))
}

// RenewalIn reads what the hub asks from the annotations of its namespace kube-system. A hub that asks
// nothing, as earlier ones, has few hosts.
func RenewalIn(annotations map[string]string) Renewal {
	asked, err := time.ParseDuration(annotations[api.Renewal])
	if err != nil {
		return often
	}
	return min(max(Renewal(asked), often), seldom)
}

// Next returns how long a host waits until it renews its Lease again. It varies, so that hosts that came back
// together do not stay in step. The zero value is that of few hosts.
func (r Renewal) Next() time.Duration { return wait.Jitter(r.every(), 0.2) }

func (r Renewal) every() time.Duration { return time.Duration(max(r, often)) }

// Renew renews the Lease of a host. The Lease lasts longer than two of the longest waits until the next
// renewal: a host that was not heard once still counts as there. last is what the previous call returned, nil
// before the first. With an error Renew returns nil.
func (r Renewal) Renew(ctx context.Context, core kubernetes.Interface, host string,
	last *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := core.CoordinationV1().Leases(api.Namespace(host))
	now, seconds := metav1.NowMicro(), int32(2.5*r.every().Seconds())
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

func kept(l *coordinationv1.Lease, err error) (*coordinationv1.Lease, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Announcer tells hosts how often to renew their Leases. The zero value of asked is no announcement yet.
type Announcer struct {
	Core  kubernetes.Interface
	Log   *slog.Logger
	asked Renewal
}

// Hosts takes how many hosts the hub has at present.
func (a *Announcer) Hosts(ctx context.Context, hosts int) {
	now := RenewalOf(hosts)
	if now == a.asked {
		return
	}
	err := announce(ctx, a.Core, api.Renewal, time.Duration(now).String())
	if err == nil {
		a.asked = now
	} else if ctx.Err() == nil {
		a.Log.WarnContext(ctx, "hosts are not told how often to renew their Leases", "error", err)
	}
}

// AnnounceURLs tells hosts the URLs of the hub, separated by commas.
func AnnounceURLs(ctx context.Context, core kubernetes.Interface, urls string) error {
	return announce(ctx, core, api.URLs, urls)
}

// announce writes an annotation where hosts look for the identity of the hub.
func announce(ctx context.Context, core kubernetes.Interface, annotation, value string) error {
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{annotation: value}}})
	if err == nil {
		_, err = core.CoreV1().Namespaces().Patch(ctx, metav1.NamespaceSystem, types.MergePatchType, change,
			metav1.PatchOptions{FieldManager: fieldManager})
	}
	return err
}
