package sites

import (
	"context"
	"log/slog"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"isolane.dev/isolane/hub/api"
)

// hostRole names the RoleBinding of a host in its namespace, and the ClusterRole that it grants.
const hostRole = "isolane:host"

// grant gives a host its rights.
func grant(ctx context.Context, core kubernetes.Interface, host string) error {
	_, err := core.RbacV1().RoleBindings(api.Namespace(host)).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: hostRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: hostRole},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: api.User(host)}},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return err
}

// Revoker takes the rights of hosts whose Host object somebody has deleted, because their certificates stay
// valid until they expire. It ends nothing that runs on them.
type Revoker struct {
	Core  kubernetes.Interface
	Hosts metadata.Interface
	Log   *slog.Logger
}

// Run revokes hosts until the context ends.
func (r Revoker) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := r.follow(ctx); err != nil && ctx.Err() == nil {
			r.Log.WarnContext(ctx, "hosts that somebody revokes are not seen", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// follow revokes the hosts that have gone, and those that go later. It reads the bindings first: a host with
// a binding had a Host object by then.
func (r Revoker) follow(ctx context.Context) error {
	bindings, err := r.Core.RbacV1().RoleBindings("").List(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + hostRole})
	if err != nil {
		return err
	}
	hosts := r.Hosts.Resource(api.Resource("hosts"))
	list, err := hosts.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for n := range list.Items {
		there[list.Items[n].Name] = true
	}
	for n := range bindings.Items {
		name, is := strings.CutPrefix(bindings.Items[n].Namespace, api.Namespace(""))
		if is && !there[name] {
			err = r.revoke(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	w, err := hosts.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		gone, is := event.Object.(*metav1.PartialObjectMetadata)
		if is && event.Type == watch.Deleted {
			err = r.revoke(ctx, gone.Name)
		}
		if err != nil {
			break // to look at all of them again
		}
	}
	return err
}

// revoke takes the rights of one host, unless it has joined again.
func (r Revoker) revoke(ctx context.Context, host string) error {
	is, err := r.host(ctx, host)
	if is || err != nil {
		return err
	}
	bindings := r.Core.RbacV1().RoleBindings(api.Namespace(host))
	if err = bindings.Delete(ctx, hostRole, metav1.DeleteOptions{}); apierrors.IsNotFound(err) {
		return nil // it went with its namespace
	}
	if err != nil {
		return err
	}
	if is, err = r.host(ctx, host); is { // it has just joined, and taken these rights for its own
		return grant(ctx, r.Core, host)
	}
	r.Log.WarnContext(ctx, "a host was revoked: its Host is deleted, and what runs there goes on", "host", host)
	return err
}

func (r Revoker) host(ctx context.Context, name string) (bool, error) {
	hosts := r.Hosts.Resource(api.Resource("hosts")).Namespace(api.Namespace(name))
	_, err := hosts.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
