package sites

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"isolane.dev/isolane/hub/api"
)

// The more hosts a hub has, the more rarely each renews its Lease, as the hub has announced. A Lease lasts
// longer than two waits, even the longest.
func TestRenewal(t *testing.T) {
	core := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}})
	var log strings.Builder
	a := Announcer{Core: core, Log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, row := range []struct {
		hosts int
		every time.Duration
	}{{0, 2 * time.Minute}, {499, 2 * time.Minute}, {500, 150 * time.Second}, {1000, 5 * time.Minute}, {10000, 10 * time.Minute}, {1, 2 * time.Minute}} {
		a.Hosts(t.Context(), row.hosts)
		before := len(core.Actions())
		if a.Hosts(t.Context(), row.hosts); len(core.Actions()) > before {
			t.Errorf("%d hosts: announced twice", row.hosts)
		}
		system, err := core.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		asked := RenewalIn(system.Annotations)
		lease, err := asked.Renew(t.Context(), core, "one", nil)
		if err != nil {
			t.Fatal(err)
		}
		var longest time.Duration
		for range 1000 {
			wait := asked.Next()
			if longest = max(longest, wait); wait < row.every || wait > row.every*6/5 {
				t.Fatalf("%d hosts: waits %s, expected %s or up to a fifth more", row.hosts, wait, row.every)
			}
		}
		if lasts := time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second; lasts <= 2*longest || lasts > 3*row.every {
			t.Errorf("%d hosts: a Lease lasts %s, and waits up to %s", row.hosts, lasts, longest)
		}
	}
	for _, asked := range []string{"", "soon", "1ms", "-5m"} {
		if got := RenewalIn(map[string]string{api.Renewal: asked}); got != often {
			t.Errorf("%q: got %s", asked, time.Duration(got))
		}
	}
	if log.Len() > 0 {
		t.Error(log.String())
	}
}
