package simulate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/api"
)

// A simulated host writes what an agent does: all of its status when a lane has come, and something different
// each time.
func TestReports(t *testing.T) {
	object := func(kind, name string, o any) runtime.Object {
		u, err := api.To(o)
		if err != nil {
			t.Fatal(err)
		}
		u.SetAPIVersion(api.Group + "/" + api.Version)
		u.SetKind(kind)
		u.SetName(name)
		u.SetNamespace(api.Namespace("one"))
		return u
	}
	asked := api.Instance{Spec: api.InstanceSpec{Lane: []byte(`{"cpus":{"count":1}}`)}}
	asked.UID = "u"
	h := &Host{Name: "one", rest: func() {}, mine: map[string]bool{}, runs: map[string]bool{}, like: Like{Findings: []api.Finding{{Rule: "turbo"}},
		Machine: hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t)},
		core: fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}),
		client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{api.Resource("instances"): "InstanceList"},
			object("Host", "one", api.Host{}), object("Instance", "web", asked))}
	h.hosts = h.client
	told := func() api.HostStatus {
		u, err := h.resource("hosts").Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		now, err := api.From[api.Host](u)
		if err != nil {
			t.Fatal(err)
		}
		return now.Status
	}
	u, err := h.resource("instances").Get(t.Context(), "web", metav1.GetOptions{})
	if err == nil {
		err = h.heard(t.Context(), u, false)
	}
	s := told()
	if !h.Runs("web") || h.Runs("other") {
		t.Error("the hub is told that web runs, and nothing else")
	}
	if err != nil || s.Free != "2-3" || len(s.Findings) != 1 || len(s.Changes) != 1 || s.Changes[0].Lane != "web" || len(s.Conditions) != 1 {
		t.Errorf("when a lane has come: %v, %+v", err, s)
	}
	if err = h.talk(t.Context()); err != nil || string(told().Machine) == string(s.Machine) {
		t.Errorf("the second time nothing is written, %v", err)
	}
}
