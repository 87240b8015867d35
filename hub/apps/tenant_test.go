package apps

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttest "k8s.io/client-go/testing"

	"isolane.dev/isolane/hub/api"
)

// A quota counts what the other Apps use and what this one would add, and names what is in the way.
func TestQuota(t *testing.T) {
	lane := func(spec string) amounts {
		l, err := api.Lane("a.b", []byte(spec))
		if err != nil {
			t.Fatal(err)
		}
		return amountsFor(l.Spec)
	}
	two, none := 2, 0
	each := lane(`{"cpus": {"count": 1}, "memory": {"size": "1Gi", "hugepages": {"2Mi": "512Mi", "1Gi": "1Gi"}},
		"network": {"path": "sriov", "device": "eth0"}}`)
	if a := lane(`{"cpus": {"count": 1}, "network": {"path": "auto", "device": "eth0"}}`); a.functions != 1 {
		t.Errorf("path auto, which may be sriov, counts as %d functions", a.functions)
	}
	if a := lane(`{"cpus": {"count": 1}, "network": {"path": "auto"}}`); a.functions != 0 {
		t.Errorf("path auto without a device counts as %d functions", a.functions)
	}
	for _, row := range []struct {
		name  string
		quota api.TenantSpec
		most  int    // so many Instances are admitted
		says  string // about one more
	}{
		{"CPUs", api.TenantSpec{CPUs: &two}, 1, "2 CPUs, and this App would make it 3"},
		{"memory", api.TenantSpec{Memory: "3Gi"}, 3, "3Gi memory"},
		{"hugepages", api.TenantSpec{Hugepages: "1Gi"}, 0, "1Gi hugepages, and this App would make it 1536Mi"},
		{"functions", api.TenantSpec{Functions: &two}, 2, "2 functions"},
		{"Instances", api.TenantSpec{Instances: &two}, 1, "2 Instances"},
		{"nothing", api.TenantSpec{Instances: &none}, -1, "0 Instances"},
		{"no size", api.TenantSpec{Memory: "lots"}, -1, "spec.memory"},
	} {
		t.Run(row.name, func(t *testing.T) {
			tn := tenant{name: "a", quota: row.quota, each: each, others: lane(`{"cpus": {"count": 1}}`)}
			if row.most >= 0 {
				if err := tn.checkQuota(row.most); err != nil {
					t.Error(err)
				}
			}
			if err := tn.checkQuota(row.most + 1); err == nil || !strings.Contains(err.Error(), row.says) {
				t.Errorf("found %v, expected %q", err, row.says)
			}
		})
	}
}

// A referee that adds plain numbers: of 100,000 requests of tenants that come and go, none that is admitted
// exceeds a quota, and none is refused that would not.
func TestQuotaReferee(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	type ask struct {
		cpus, mib int
		lane      amounts
	}
	limits := []ask{{cpus: 8, mib: 4096}, {cpus: 30, mib: 100000}, {cpus: 100, mib: 9000}, {}} // by tenant; 0: none
	var kinds []ask
	for range 100 {
		a := ask{cpus: 1 + rng.IntN(8), mib: 1 + rng.IntN(2048)}
		lane, err := api.Lane("a.b", fmt.Appendf(nil, `{"cpus": {"count": %d}, "memory": {"size": "%dMi"}}`, a.cpus, a.mib))
		if err != nil {
			t.Fatal(err)
		}
		a.lane = amountsFor(lane.Spec)
		kinds = append(kinds, a)
	}
	has := make([][]ask, len(limits))
	taken, refused := 0, 0
	for i := range 100_000 {
		who := rng.IntN(len(limits))
		if n := len(has[who]); n > 0 && rng.IntN(3) == 0 {
			has[who] = has[who][rng.IntN(n):]
		}
		a := kinds[rng.IntN(len(kinds))]
		tn := tenant{name: "a", each: a.lane}
		if most := limits[who]; most.cpus > 0 {
			tn.quota = api.TenantSpec{CPUs: &most.cpus, Memory: fmt.Sprintf("%dMi", most.mib)}
		}
		cpus, mib := a.cpus, a.mib
		for _, h := range has[who] {
			tn.others = tn.others.plus(h.lane, 1)
			cpus, mib = cpus+h.cpus, mib+h.mib
		}
		fits := limits[who].cpus == 0 || cpus <= limits[who].cpus && mib <= limits[who].mib
		if err := tn.checkQuota(1); (err == nil) != fits {
			t.Fatalf("request %d makes it %d CPUs and %d MiB of %+v: %v", i, cpus, mib, limits[who], err)
		}
		if fits {
			has[who] = append(has[who], a)
			taken++
		} else {
			refused++
		}
	}
	if t.Logf("%d taken, %d refused", taken, refused); taken == 0 || refused == 0 {
		t.Error("expected some of each")
	}
}

// What an App no longer wants counts until the host has ended it.
func TestQuotaOfEnding(t *testing.T) {
	four := 4
	instance := func(host string) api.Instance {
		i := api.Instance{Spec: api.InstanceSpec{Lane: []byte(`{"cpus": {"count": 4}}`)}}
		i.Name, i.Namespace, i.UID = "a.b", api.Namespace(host), types.UID(host)
		return i
	}
	has := []api.Instance{instance("one")}
	reserved := instance("two") // as by a hub that has ended
	reserved.Spec.Reserve = true
	for _, row := range []struct {
		has, live []api.Instance
		says      string // about one Instance
	}{{has, has, ""}, {[]api.Instance{reserved}, nil, ""}, {has, nil, "and this App would make it 8, with what has not ended yet on one"}} {
		tn := tenant{name: "a", quota: api.TenantSpec{CPUs: &four}, each: amounts{cpus: 4}}
		if err := tn.addEnding(row.has, row.live); err != nil {
			t.Fatal(err)
		}
		if err := tn.checkQuota(1); (err == nil) != (row.says == "") || err != nil && !strings.Contains(err.Error(), row.says) {
			t.Errorf("%d live: %v, expected %q", len(row.live), err, row.says)
		}
	}
}

// A tenant whose namespace is being deleted gets no Quota there, and that is no error.
func TestQuotaOfNoNamespace(t *testing.T) {
	b := newBench(t, "east")
	u, err := api.To(api.Tenant{TypeMeta: metav1.TypeMeta{APIVersion: api.Group + "/" + api.Version, Kind: "Tenant"},
		ObjectMeta: metav1.ObjectMeta{Name: "acme"}})
	if err == nil {
		_, err = b.client.Resource(api.Resource("tenants")).Create(t.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	ending := apierrors.NewForbidden(api.Resource("quotas").GroupResource(), quota, nil)
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for _, refusal := range []error{ending, apierrors.NewNotFound(corev1.Resource("namespaces"), "acme")} {
		b.client.PrependReactor("create", "quotas", func(clienttest.Action) (bool, runtime.Object, error) { return true, nil, refusal })
		if again, err := b.writeQuota(t.Context(), "acme"); err != nil || again != retry {
			t.Errorf("%v: again after %s, %v", refusal, again, err)
		}
	}
}
