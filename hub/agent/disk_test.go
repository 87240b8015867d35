package agent

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

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

var errFull = errors.New("no space left on device")

// kept returns a host with an Instance that it has not taken over, and a disk that takes no writes, and its
// hub.
func kept(t *testing.T) (*Agent, *fake.Clientset, func() api.Host) {
	t.Helper()
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
	a := &Agent{o: o, joined: joined{Name: "one"}, instances: o.instances(), server: &server{core: core, client: client, name: "one"},
		unwatch: func() {}, news: make(chan struct{}, 1)}
	a.desired = &desired.Agent{State: desired.State{Hub: desired.Hub{ID: "hub"}}, NewMark: func() string { return "mark" },
		Runtime: a.instances, Save: func(desired.State) error { return errFull }}
	return a, core, func() api.Host {
		u, err := client.Resource(api.Resource("hosts")).Namespace(space).Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		h, err := api.From[api.Host](u)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
}

// A host that reserves or begins something does not look at itself before that is done.
func TestBusy(t *testing.T) {
	a, _, host := kept(t)
	if err := a.sync(t.Context()); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	told := func() string { return host().Status.Conditions[0].Message }
	was := told()
	a.note("follows the hub", "something new")
	a.reserved = map[string]reservation{"u": {name: "acme.web"}}
	if err := a.report(t.Context(), desired.Findings{}); err != nil || told() != was {
		t.Errorf("%v: it tells %q while something is reserved", err, told())
	}
	a.reserved = nil
	if err := a.report(t.Context(), desired.Findings{}); err != nil || told() != "something new" {
		t.Errorf("%v: it tells %q", err, told())
	}
	a.note("follows the hub", "")
	a.busy = time.Now().Add(-time.Hour)
	if err := a.report(t.Context(), desired.Findings{Changed: true}); err != nil || told() != "" {
		t.Errorf("%v: it tells %q after an hour in which something began all the time", err, told())
	}
}

// A host whose disk takes no writes, so that it takes nothing over, sends signs of life, and says why.
func TestUnkept(t *testing.T) {
	a, core, host := kept(t)
	if err := a.sync(t.Context()); !errors.Is(err, errFull) {
		t.Errorf("found %v", err)
	}
	if l, err := core.CoordinationV1().Leases(api.Namespace("one")).Get(t.Context(), "one", metav1.GetOptions{}); err != nil || l.Spec.RenewTime == nil {
		t.Errorf("its Lease: %v, %v", l, err)
	}
	asked := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "hub", Annotations: map[string]string{api.Renewal: "5m0s"}}}
	if _, err := core.CoreV1().Namespaces().Update(t.Context(), asked, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := a.sync(t.Context()); !errors.Is(err, errFull) {
		t.Errorf("found %v", err)
	}
	l, err := core.CoordinationV1().Leases(api.Namespace("one")).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || *l.Spec.LeaseDurationSeconds != 750 || a.untilPulse() < 5*time.Minute {
		t.Errorf("its Lease when the hub asks for one each five minutes: %v, %v", l, err)
	}
	h := host()
	if says := "what is to run is not written down: no space left on device"; len(h.Status.Conditions) != 1 || h.Status.Conditions[0].Message != says {
		t.Errorf("the hub hears %+v; expected %s", h.Status.Conditions, says)
	}
	if said, rerr := os.ReadFile(a.o.file(saidFile)); rerr != nil || !strings.HasPrefix(string(said), "takes over nothing that the hub says: what is to run") {
		t.Errorf("people at the site read %q, %v", said, rerr)
	}
}
