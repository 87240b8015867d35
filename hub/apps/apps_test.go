package apps

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/api"
)

// A host may write any machine into its status. An impossible one gets no Apps, with the reason, and ends
// nothing.
func TestUntrueHosts(t *testing.T) {
	text, err := json.Marshal(hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ name, old, new, says string }{
		{"true", "", "", ""},
		{"no such CPU", `"id":0,`, `"id":-1,`, "status.machine: cpus[0].id: expected 0 to 8191, in ascending order, found -1"},
		{"too many CPUs", `"id":3,`, `"id":8192,`, "cpus[3].id"},
		{"without order", `"id":1,`, `"id":3,`, "cpus[2].id: expected 4 to 8191, in ascending order, found 2"},
		{"no such node", `"numaNode":0`, `"numaNode":1024`, "cpus[0].numaNode: expected 0 to 1023, found 1024"},
		{"no such nodes", `"numaNodes":[{"id":0,`, `"numaNodes":[{"id":-1,`, "numaNodes[0].id"},
		{"too many nodes", `"numaNodes":[{"id":0,`, `"numaNodes":[{"id":1024},{"id":0,`, "numaNodes[0].id: expected 0 to 1023"},
		{"no such card", `"pciDevices":[`, `"pciDevices":[{"address":"0000:3b:00.0","sriov":{"numVFs":2000000000}}`,
			"pciDevices[0].sriov.numVFs: expected 65535 at most"},
		{"no such lane", `"cpus":[`, `"lanes":[{"name":"a","cpus":"1","spec":{"cpus":{"count":-1}}}],"cpus":[`, "lanes[0]: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			said := strings.Replace(string(text), row.old, row.new, 1)
			if row.old != "" && said == string(text) {
				t.Fatalf("no %s in %s", row.old, text)
			}
			var machine map[string]any
			if err := json.Unmarshal([]byte(said), &machine); err != nil {
				t.Fatal(err)
			}
			packed, err := trimHost(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "isolane.dev/v1alpha1", "kind": "Host",
				"metadata": map[string]any{"name": "one", "namespace": api.Namespace("one")},
				"spec":     map[string]any{"site": "default"}, "status": map[string]any{"machine": machine}}})
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			c := &Controller{Log: slog.New(slog.NewTextHandler(&log, nil)), changed: map[string]bool{"host-one/one": true},
				hosts: cache.NewStore(cache.MetaNamespaceKeyFunc), sites: cache.NewStore(cache.MetaNamespaceKeyFunc)}
			if err := c.hosts.Add(packed); err != nil {
				t.Fatal(err)
			}
			c.refresh(t.Context())
			if refused := strings.Contains(log.String(), "a host gets no Apps"); refused != (row.says != "") ||
				!strings.Contains(log.String(), row.says) {
				t.Errorf("it says %s\nexpected %q", &log, row.says)
			}
		})
	}
}

// An App counts as running as far as its hosts are there and report its present spec, and is looked after
// when a host goes or comes back.
func TestStatusOf(t *testing.T) {
	lease := func(host string, ago time.Duration) *coordinationv1.Lease {
		at := metav1.NewTime(time.Now().Add(-ago))
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: host, Namespace: api.Namespace(host),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: host, Time: &at}}}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(300))}}
	}
	c := &Controller{Core: fake.NewClientset(lease("here", time.Minute), lease("gone", time.Hour)),
		apps:  cache.NewStore(cache.MetaNamespaceKeyFunc),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	for _, on := range []string{"here", "gone"} {
		if err := c.apps.Add(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "default", "name": "on-" + on},
			"status": map[string]any{"hosts": []any{on}}}}); err != nil {
			t.Fatal(err)
		}
	}
	hosts := 0
	c.Count = func(_ context.Context, n int) { hosts = n }
	woken := func() (names []string) {
		for c.checkLeases(t.Context()); c.queue.Len() > 0; {
			name, _ := c.queue.Get()
			c.queue.Done(name)
			names = append(names, name)
		}
		return names
	}
	if names := woken(); len(names) > 0 || len(c.expired) > 0 {
		t.Errorf("looked after %v when the hub had just begun, %v", names, c.expired)
	}
	c.leasesSince = c.leasesSince.Add(-time.Minute)
	if names := woken(); !slices.Equal(names, []string{"default.on-gone"}) {
		t.Errorf("looked after %v when a host had gone", names)
	}
	if names := woken(); len(names) > 0 || hosts != 2 {
		t.Errorf("looked after %v when nothing had changed, counted %d hosts", names, hosts)
	}
	instance := func(host string, generation int64) api.Instance {
		i := api.Instance{Status: api.InstanceStatus{Phase: Running, Generation: generation}}
		i.Namespace, i.Generation = api.Namespace(host), 2
		return i
	}
	failed := instance("here", 2)
	failed.Status.Phase, failed.Status.Message, failed.Status.Brief = "Failed", "lane secret: no image", "no image"
	before := instance("here", 2)
	before.Status.Brief = "it runs as before"
	for _, row := range []struct {
		live    []api.Instance
		phase   string
		running int
		says    string
	}{
		{[]api.Instance{instance("here", 2)}, Running, 1, ""},
		{[]api.Instance{instance("here", 1)}, Starting, 0, ""},
		{[]api.Instance{before}, Running, 1, "host here: it runs as before"},
		{[]api.Instance{failed}, Starting, 0, "host here: Failed: no image"},
		{[]api.Instance{instance("here", 2), instance("gone", 2)}, Starting, 1, "of hosts that say nothing: gone (last there at "},
	} {
		s := c.statusOf(api.App{}, row.live)
		if s.Phase != row.phase || s.Running != row.running || !strings.Contains(s.Message, row.says) || len(s.Hosts) != len(row.live) {
			t.Errorf("found %+v, expected %s, %d, %q", s, row.phase, row.running, row.says)
		}
	}
	here := instance("here", 2)
	here.Status.Brief = "changes are put off"
	if says := c.waitsFor([]api.Instance{here, instance("gone", 2)}); !strings.HasPrefix(says, "gone (last there at ") ||
		!strings.HasSuffix(says, "), here (changes are put off)") {
		t.Errorf("found %q", says)
	}
	c.Core = fake.NewClientset(lease("here", time.Minute), lease("gone", 0))
	if names := woken(); !slices.Equal(names, []string{"default.on-gone"}) {
		t.Errorf("looked after %v when a host was back", names)
	}
}

// The name of an Instance also decides to which App it belongs: a label alone makes it no other App's, and
// hides nothing from its tenant's quota.
func TestOf(t *testing.T) {
	object := func(host, name, app string) runtime.Object {
		u, err := api.To(api.Instance{TypeMeta: metav1.TypeMeta{APIVersion: "isolane.dev/v1alpha1", Kind: "Instance"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: api.Namespace(host), Labels: map[string]string{api.AppOf: app, api.TenantOf: "victim"}},
			Spec:       api.InstanceSpec{Lane: []byte(`{"cpus": {"count": 1}}`)}})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	c := &Controller{Client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{api.Resource("instances"): "InstanceList"},
		object("aaa", "other.db", "victim.web"), object("zzz", "victim.web", "victim.web"))}
	c.book = newBook(c.Client, cache.NewIndexer(cache.MetaNamespaceKeyFunc, byLabels()))
	if err := c.book.catchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	all, err := c.instancesOf(t.Context(), "victim.web")
	if err != nil || len(all) != 1 || hostOf(all[0]) != "zzz" {
		t.Errorf("found %v, %v; expected the one of host zzz", all, err)
	}
	if others, err := c.amountsOf(t.Context(), "victim", "victim.web"); err != nil || others.instances != 1 {
		t.Errorf("found %+v, %v", others, err)
	}
}
