package agent

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/desired"
)

// A host whose disk takes nothing, so that it takes over nothing, says that it is there, and why.
func TestUnkept(t *testing.T) {
	o := Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	o.Lanes.Dir = o.file("lanes")
	if err := os.Mkdir(o.file("hub"), 0o700); err != nil {
		t.Fatal(err)
	}
	space := api.Namespace("one")
	var objects []runtime.Object
	for _, content := range []map[string]any{
		{"kind": "Host", "metadata": map[string]any{"name": "one"}, "spec": map[string]any{"site": "east"}},
		{"kind": "Instance", "metadata": map[string]any{"name": "acme.web", "uid": "u", "generation": 1, "finalizers": []any{api.Finalizer}},
			"spec": map[string]any{"lane": map[string]any{}, "command": []any{"true"}}},
	} {
		content["apiVersion"] = api.Group + "/" + api.Version
		u, err := api.To(content)
		if err != nil {
			t.Fatal(err)
		}
		u.SetNamespace(space)
		objects = append(objects, u)
	}
	core := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "hub"}})
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{api.Resource("instances"): "InstanceList", api.Resource("hosts"): "HostList"}, objects...)
	client.PrependReactor("list", "instances", func(a clienttest.Action) (bool, runtime.Object, error) {
		all, err := client.Tracker().List(a.GetResource(), schema.GroupVersionKind{Group: api.Group, Version: api.Version, Kind: "Instance"}, space)
		if list, is := all.(*unstructured.UnstructuredList); is {
			list.SetResourceVersion("7")
		}
		return true, all, err
	})
	core.PrependReactor("create", "certificatesigningrequests", func(clienttest.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("not now")
	})
	full := errors.New("no space left on device")
	a := &Agent{o: o, joined: joined{Name: "one"}, instances: o.instances(), server: &server{core: core, client: client, name: "one"},
		unwatch: func() {}, news: make(chan struct{}, 1)}
	a.desired = &desired.Agent{State: desired.State{Hub: desired.Hub{ID: "hub"}}, NewMark: func() string { return "mark" },
		Runtime: a.instances, Save: func(desired.State) error { return full }}
	if err := a.sync(t.Context()); !errors.Is(err, full) {
		t.Errorf("found %v", err)
	}
	if l, err := core.CoordinationV1().Leases(space).Get(t.Context(), "one", metav1.GetOptions{}); err != nil || l.Spec.RenewTime == nil {
		t.Errorf("its Lease: %v, %v", l, err)
	}
	u, err := client.Resource(api.Resource("hosts")).Namespace(space).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h, err := api.From[api.Host](u)
	if says := "what is to run is not written down: no space left on device"; err != nil || len(h.Status.Conditions) != 1 || h.Status.Conditions[0].Message != says {
		t.Errorf("the hub hears %+v, %v; expected %s", h.Status.Conditions, err, says)
	}
	if said, rerr := os.ReadFile(o.file(saidFile)); rerr != nil || !strings.HasPrefix(string(said), "takes over nothing that the hub says: what is to run") {
		t.Errorf("people at the site read %q, %v", said, rerr)
	}
}
