package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
	"isolane.dev/isolane/hub/sites"
)

// server is the hub as this host reaches it: the host's own namespace.
type server struct {
	core    kubernetes.Interface
	client  dynamic.Interface
	reports dynamic.Interface // for what is large: the Host; nil: client
	rest    func()            // closes the connection of reports until it is needed again
	name    string            // of this host
	lease   *coordinationv1.Lease

	host      *unstructured.Unstructured // as last read
	instances map[string]*unstructured.Unstructured
	bare      []string                // UIDs of Instances without our finalizer: they would vanish unnoticed
	asked     map[string]api.Instance // Instances that are only to be reserved, by their UIDs
	heard     time.Time               // when this view was read
	urls      []string                // by which the hub says that it is reached
	renewal   sites.Renewal           // as the hub asks
	list      string                  // resourceVersion of the list, to watch from
}

func (s *server) resource(name string) dynamic.ResourceInterface {
	by := s.client
	if name == "hosts" && s.reports != nil {
		by = s.reports
	}
	return by.Resource(api.Resource(name)).Namespace(api.Namespace(s.name))
}

// View reads everything that the hub says to this host.
func (s *server) View(ctx context.Context) (v desired.View, err error) {
	from := time.Now()
	system, err := s.core.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if err != nil {
		return v, err
	}
	if s.urls = nil; system.Annotations[api.URLs] != "" {
		s.urls = strings.Split(system.Annotations[api.URLs], ",")
	}
	s.renewal = sites.RenewalIn(system.Annotations)
	if s.host, err = s.resource("hosts").Get(ctx, s.name, metav1.GetOptions{}); err != nil {
		return v, err
	}
	h, err := api.From[api.Host](s.host)
	if err != nil {
		return v, err
	}
	list, err := s.resource("instances").List(ctx, metav1.ListOptions{})
	if err != nil {
		return v, err
	}
	v = desired.View{Hub: string(system.UID), Mark: h.Status.Mark}
	s.list, s.bare, s.instances = list.GetResourceVersion(), nil, map[string]*unstructured.Unstructured{}
	s.asked, s.heard = map[string]api.Instance{}, from
	if v.Revision, err = strconv.ParseUint(s.list, 10, 64); err != nil {
		return v, fmt.Errorf("the hub's resourceVersion: %w", err)
	}
	for i := range list.Items {
		o, err := object(&list.Items[i])
		if err != nil {
			return v, err
		}
		s.instances[o.UID] = &list.Items[i]
		if reserve, _, _ := unstructured.NestedBool(list.Items[i].Object, "spec", "reserve"); reserve {
			if s.asked[o.UID], err = api.From[api.Instance](&list.Items[i]); err != nil {
				return v, err
			}
			continue // no Instance yet
		}
		if !o.Deleted && !slices.Contains(list.Items[i].GetFinalizers(), api.Finalizer) {
			s.bare = append(s.bare, o.UID)
			continue
		}
		v.Objects = append(v.Objects, o)
	}
	return v, nil
}

func object(u *unstructured.Unstructured) (o desired.Object, err error) {
	i, err := api.From[api.Instance](u)
	if err != nil {
		return o, err
	}
	o = desired.Object{UID: string(i.UID), Name: i.Name, Generation: i.Generation,
		Deleted: i.DeletionTimestamp != nil, Adopts: i.Spec.Adopts}
	if i.Spec.Tenant == "" { // a person has made it in this host's namespace
		i.Spec.Tenant = i.Namespace
	}
	i.Spec.Adopts, i.Spec.Reserve = "", false // they say whose place it takes and since when, not what runs
	o.Spec, err = json.Marshal(i.Spec)
	return o, err
}

// claim adds the finalizer to the Instances that lack it, if the hub is trusted, and reports whether there
// were any.
func (s *server) claim(ctx context.Context) (bool, error) {
	for _, uid := range s.bare {
		u := s.instances[uid]
		err := api.SetFinalizers(ctx, s.resource("instances"), u, append(u.GetFinalizers(), api.Finalizer))
		if err != nil {
			return false, err
		}
	}
	return len(s.bare) > 0, nil
}

// Acknowledge writes a mark into the status of the Host if that is still as it was read.
func (s *server) Acknowledge(ctx context.Context, _ desired.View, mark string) error {
	u := s.host.DeepCopy()
	if err := unstructured.SetNestedField(u.Object, mark, "status", "mark"); err != nil {
		return err
	}
	updated, err := s.resource("hosts").UpdateStatus(ctx, u, metav1.UpdateOptions{})
	if err == nil {
		s.host = updated
	}
	return err
}

// Release removes the finalizer from an Instance that has a tombstone, so that it vanishes.
func (s *server) Release(ctx context.Context, uid string) error {
	u := s.instances[uid]
	if u == nil || u.GetDeletionTimestamp() == nil {
		return nil // it belongs to another view
	}
	others := slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == api.Finalizer })
	err := api.SetFinalizers(ctx, s.resource("instances"), u, others)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return err
}
