package main

import (
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// hubAlone is a hub that has no host, and its administrator.
func hubAlone(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{bench: withoutHost(t)}
	f.up, f.join = f.hub(t, "hub")
	f.administer(t, filepath.Join(f.file("hub"), "admin.kubeconfig"))
	return f
}

// However an App is deleted it goes: nobody collects garbage, so nothing waits for that.
func TestCascade(t *testing.T) {
	f := hubAlone(t)
	apps := f.resource("apps", "default")
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground,
		metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground} {
		f.make(t, "apps", "App", "default", "web", spec(1, nil))
		f.app(t, "default", "web", "Pending")
		if err := apps.Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
			t.Fatal(how, err)
		}
		f.gone(t, "the App, deleted as "+string(how), func() error {
			_, err := apps.Get(t.Context(), "web", metav1.GetOptions{})
			return err
		})
	}
}
