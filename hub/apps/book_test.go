package apps

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"isolane.dev/isolane/hub/api"
)

// However far the watch lags behind, a book has each Instance that there is and that its hub has written, in the state that this
// write has left or a later one, and none that its hub knows to have gone.
func TestBook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{api.Resource("instances"): "InstanceList"})
		seen := cache.NewIndexer(cache.MetaNamespaceKeyFunc, byLabels())
		b := newBook(client, seen)
		is := map[string]api.Instance{}  // at the API server
		own := map[string]api.Instance{} // as last written by the hub
		var watch []func()               // what it has not shown yet
		version := 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "host")
			now, there := is[name]
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0: // the hub makes or changes it
				if version++; !there {
					now = api.Instance{TypeMeta: metav1.TypeMeta{APIVersion: "isolane.dev/v1alpha1", Kind: "Instance"},
						ObjectMeta: metav1.ObjectMeta{Name: "x.web", Namespace: name, Labels: map[string]string{api.AppOf: "x.web"}}}
				}
				now.ResourceVersion = fmt.Sprint(version)
				is[name], own[name] = now, now
				put(t, client, now)
				watch = append(watch, func() { must(t, seen.Update(&now)); b.heard(now) })
				if rapid.Bool().Draw(t, "the watch is first") {
					watch = drain(watch)
				}
				b.wrote(now)
			case 1: // its host writes a status
				if version++; there {
					now.ResourceVersion = fmt.Sprint(version)
					is[name] = now
					put(t, client, now)
					watch = append(watch, func() { must(t, seen.Update(&now)); b.heard(now) })
				}
			case 2: // it ends
				if version++; there {
					delete(is, name)
					delete(own, name)
					must(t, client.Tracker().Delete(api.Resource("instances"), name, "x.web"))
					gone := now
					gone.ResourceVersion = fmt.Sprint(version)
					watch = append(watch, func() { must(t, seen.Delete(&gone)); b.heard(gone) })
				}
			case 3: // the watch shows some more
				if len(watch) > 0 {
					watch[0]()
					watch = watch[1:]
				}
			case 4:
				watch = drain(watch)
			}
			all, err := b.with(t.Context(), api.AppOf, "x.web")
			must(t, err)
			for host, wrote := range own {
				n := slices.IndexFunc(all, func(i api.Instance) bool { return i.Namespace == host })
				if n < 0 || isNewer(wrote.ObjectMeta, all[n].ObjectMeta) {
					t.Fatalf("found %v; expected that of %s as of %s or later", all, host, wrote.ResourceVersion)
				}
			}
			if len(watch) == 0 && len(all) != len(is) {
				t.Fatalf("found %v when the watch has shown all, expected %v", all, is)
			}
		}
	})
}

func drain(watch []func()) []func() {
	for _, show := range watch {
		show()
	}
	return nil
}

func put(t *rapid.T, client *dynamicfake.FakeDynamicClient, i api.Instance) {
	u, err := api.To(i)
	must(t, err)
	if err = client.Tracker().Update(api.Resource("instances"), u, i.Namespace); err != nil {
		err = client.Tracker().Create(api.Resource("instances"), u, i.Namespace)
	}
	must(t, err)
}

func must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
