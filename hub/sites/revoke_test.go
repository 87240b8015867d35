package sites

import (
	"log/slog"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttest "k8s.io/client-go/testing"

	"isolane.dev/isolane/hub/api"
)

func hostNamed(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: api.Group + "/" + api.Version, Kind: "Host"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: api.Namespace(name)}}
}

// A host loses its rights when its Host object is deleted, even if no hub was watching, and no other host
// does. If it joins again at that moment, it keeps them.
func TestRevoker(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	core := fake.NewClientset()
	hosts := metadatafake.NewSimpleMetadataClient(scheme, hostNamed("stays"), hostNamed("goes"), hostNamed("rejoins"))
	for _, name := range []string{"stays", "goes", "rejoins", "went"} {
		if err := grant(t.Context(), core, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := hosts.Tracker().Delete(api.Resource("hosts"), api.Namespace("rejoins"), "rejoins"); err != nil {
		t.Fatal(err)
	}
	core.PrependReactor("delete", "rolebindings", func(a clienttest.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() == api.Namespace("rejoins") {
			return false, nil, hosts.Tracker().Add(hostNamed("rejoins"))
		}
		return false, nil, nil
	})
	hosts.PrependWatchReactor("hosts", func(clienttest.Action) (bool, watch.Interface, error) {
		w := watch.NewRaceFreeFake()
		err := hosts.Tracker().Delete(api.Resource("hosts"), api.Namespace("goes"), "goes")
		w.Modify(hostNamed("stays"))
		w.Delete(hostNamed("goes"))
		w.Stop()
		return true, w, err
	})
	var log strings.Builder
	r := Revoker{Core: core, Hosts: hosts, Log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := r.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, has := range map[string]bool{"stays": true, "goes": false, "rejoins": true, "went": false} {
		_, err := core.RbacV1().RoleBindings(api.Namespace(name)).Get(t.Context(), hostRole, metav1.GetOptions{})
		if has != (err == nil) || !has && !apierrors.IsNotFound(err) {
			t.Errorf("%s: expected rights: %t, found %v", name, has, err)
		}
		if said := strings.Contains(log.String(), "host="+name+"\n"); said == has {
			t.Errorf("%s: it is said to be revoked: %t: %s", name, said, log.String())
		}
	}
}
