package apps

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/place"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
)

// bench is a controller with hosts that answer, except for those of site "dead". Those of "held" put changes off.
type bench struct {
	*Controller
	core   *fake.Clientset
	client *dynamicfake.FakeDynamicClient
	asked  []string
}

func newBench(t *testing.T, site string, hosts ...string) *bench {
	t.Helper()
	machine := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t)
	b := &bench{core: fake.NewClientset(), client: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{api.Resource("instances"): "InstanceList", api.Resource("apps"): "AppList"})}
	b.Controller = &Controller{Core: b.core, Client: b.client, refusals: map[string]map[string]refusal{}, explained: map[string]string{},
		mutes: newMutes(), hosts: cache.NewStore(cache.MetaNamespaceKeyFunc),
		book: newBook(b.client, cache.NewIndexer(cache.MetaNamespaceKeyFunc, byLabels()))}
	for _, name := range hosts {
		u, err := api.To(api.Host{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: api.Namespace(name)}, Spec: api.HostSpec{Site: site}})
		if err == nil {
			err = b.hosts.Add(u)
		}
		if err == nil {
			err = b.index.Put(place.Host{Name: name, Site: site, Machine: machine})
		}
		if err == nil {
			err = b.core.Tracker().Add(leaseOf(name, time.Now()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.client.PrependWatchReactor("instances", func(action clienttest.Action) (bool, watch.Interface, error) {
		w := watch.NewRaceFreeFake()
		b.asked = append(b.asked, strings.TrimPrefix(action.GetNamespace(), api.Namespace("")))
		if site != "dead" {
			u := b.reserved(t, machine, action.GetNamespace())
			if site == "held" {
				u.Object["status"] = map[string]any{"phase": api.Refused, "message": "changes are put off"}
			}
			w.Modify(u)
		}
		return true, w, nil
	})
	return b
}

func leaseOf(who string, at time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: who, Namespace: api.Namespace(who),
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: who, Time: new(metav1.NewTime(at))}}},
		Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(300))}}
}

// reserved returns the answer of a host without lanes.
func (b *bench) reserved(t *testing.T, machine host.Host, space string) *unstructured.Unstructured {
	t.Helper()
	object, err := b.client.Tracker().Get(api.Resource("instances"), space, "default.web") // the client is busy
	if err != nil {
		t.Fatal(err)
	}
	i, err := api.From[api.Instance](object.(*unstructured.Unstructured))
	if err != nil {
		t.Fatal(err)
	}
	want, err := api.Lane(i.Name, i.Spec.Lane)
	if err != nil {
		t.Fatal(err)
	}
	placed, err := solver.Solve(machine, plan.Placement{}, []lane.Lane{want})
	if err != nil {
		t.Fatal(err)
	}
	i.Status.Phase = api.Reserved
	if i.Status.Placement, err = json.Marshal(placed); err != nil {
		t.Fatal(err)
	}
	u, err := api.To(i)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// declare declares an App, and returns its status after a turn.
func (b *bench) declare(t *testing.T, replicas, cpus int) (api.AppStatus, time.Duration) {
	t.Helper()
	all := b.appsOf("default")
	app := api.App{TypeMeta: metav1.TypeMeta{APIVersion: api.Group + "/" + api.Version, Kind: "App"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Finalizers: []string{api.AppOf}},
		Spec: api.AppSpec{Lane: fmt.Appendf(nil, `{"cpus":{"count":%d}}`, cpus), Replicas: replicas,
			Workload: api.Workload{Command: []string{"true"}}}}
	u, err := api.To(app)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = all.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		_, err = all.Create(t.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.reconcile(t.Context(), "default.web")
	if err == nil {
		u, err = all.Get(t.Context(), "web", metav1.GetOptions{})
	}
	if err == nil {
		app, err = api.From[api.App](u)
	}
	if err != nil {
		t.Fatal(err)
	}
	return app.Status, again
}

// A large App is placed in turns, so that others have theirs. The kept reasons do not mention hosts that it
// has left, or a lane that it no longer has.
func TestTurns(t *testing.T) {
	b := newBench(t, "east", "h0", "h1", "h2", "h3", "h4", "h5")
	why := func() string {
		text, err := Why(t.Context(), b.core, "web")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	s, again := b.declare(t, 6, 1)
	if len(s.Hosts) != maxBatch || s.Phase != Pending || s.Message != "4 of 6 have a host so far" || again != batchPause {
		t.Errorf("after a turn: %+v, again after %s", s, again)
	}
	if s, again = b.declare(t, 6, 1); len(s.Hosts) != 6 || again != 0 {
		t.Errorf("after two: %+v, again after %s", s, again)
	}
	if text := why(); strings.Count(text, ": chosen: CPUs ") != 6 {
		t.Errorf("expected six hosts in\n%s", text)
	}
	b.declare(t, 2, 1) // it ends four
	s, _ = b.declare(t, 2, 1)
	if text := why(); len(s.Hosts) != 2 || strings.Count(text, ": chosen: CPUs ") != 2 {
		t.Errorf("on %v; expected as many in\n%s", s.Hosts, text)
	}
	b.declare(t, 2, 2)
	if text := why(); strings.Contains(text, "chosen") || strings.Count(text, ": its lane was declared anew at ") != 2 {
		t.Errorf("after another lane:\n%s", text)
	}
	b.declare(t, 2, -1)
	if text := why(); !strings.Contains(text, "default.web: refused: ") {
		t.Errorf("of a lane that cannot be:\n%s", text)
	}
}

// An App with fewer hosts than it asks for says how many it has.
func TestFewerHosts(t *testing.T) {
	b := newBench(t, "east", "h0")
	b.declare(t, 2, 1)
	if s, _ := b.declare(t, 2, 1); s.Message != "1 of 2 have a host; no other host takes it: with an Instance of it" {
		t.Errorf("found %+v", s)
	}
}

// A host that puts changes off has answered.
func TestHeld(t *testing.T) {
	b := newBench(t, "held", "h0")
	if s, _ := b.declare(t, 1, 1); s.Phase != Pending || s.Message != "no host takes it: refused" {
		t.Errorf("found %+v", s)
	}
	if why, err := Why(t.Context(), b.core, "web"); err != nil || !strings.Contains(why, "h0 (held): refused: changes are put off\n") {
		t.Errorf("found %s, %v", why, err)
	}
}

// With many hosts only the own lines of reasons are kept, and it is said for how many hosts there are none.
func TestManyReasons(t *testing.T) {
	b := newBench(t, "east")
	var live []api.Instance
	decided := map[string]string{}
	for n := range 4000 {
		name := fmt.Sprintf("h%04d", n)
		live = append(live, api.Instance{ObjectMeta: metav1.ObjectMeta{Namespace: api.Namespace(name)}})
		decided[name] = fmt.Sprintf("default.web: on host %s\n  %[1]s: chosen: %s\n  others: %s\n", name, strings.Repeat("c", 150),
			strings.Repeat("o", 2000))
	}
	if err := b.keepWhy(t.Context(), "default.web", decided); err != nil {
		t.Fatal(err)
	}
	if err := b.settleWhy(t.Context(), "default.web", live, new("default.web: pending\n")); err != nil {
		t.Fatal(err)
	}
	text, err := Why(t.Context(), b.core, "web")
	if err != nil || len(text) > maxAllTexts+maxText || strings.Count(text, "others: ") != keptWhole || !strings.Contains(text, "web: pending") {
		t.Errorf("%v, %d bytes, %d of them whole", err, len(text), strings.Count(text, "others: "))
	}
	if missing := fmt.Sprintf("of %d of its hosts no reasons are kept", 4000-strings.Count(text, "chosen")); !strings.Contains(text, missing) {
		t.Errorf("expected %q", missing)
	}
}

// A host that does not answer is waited for once, and not for each App. At a site where nobody answers, not
// each host is waited for, until one sends a sign of life.
func TestMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b := newBench(t, "dead", "h0", "h1", "h2", "h3")
		l, err := api.Lane("default.web", []byte(`{"cpus":{"count":1}}`))
		if err != nil {
			t.Fatal(err)
		}
		place := func(app string, took time.Duration, asked ...string) {
			t.Helper()
			l.Metadata.Name = "default." + app
			from := time.Now()
			b.asked = nil
			d, perr := b.placeOne(t.Context(), &reserver{Controller: b.Controller}, l, nil)
			if perr != nil || d.Host != "" || !slices.Equal(b.asked, asked) || time.Since(from) != took {
				t.Errorf("%s: asked %v in %s, expected %v in %s; %v\n%s", app, b.asked, time.Since(from), asked, took, perr, d.Why())
			}
		}
		place("one", 3*answerTimeout, "h0", "h1", "h2")
		place("two", 0)
		<-time.After(muteSite)
		place("three", answerTimeout, "h3")
		b.Core = fake.NewClientset(leaseOf("h0", began), leaseOf("h1", time.Now()), leaseOf("h2", began))
		<-time.After(leasePause)
		place("four", answerTimeout, "h1")
		<-time.After(muteHost)
		place("five", 3*answerTimeout, "h0", "h1", "h2")
		<-time.After(muteHost)
		b.Answer = 5 * answerTimeout
		place("six", 15*answerTimeout, "h0", "h1", "h2")
	})
}

// Programs that wait for an App get the condition Ready, which keeps the time of its last change.
func TestReady(t *testing.T) {
	pending := withReady(api.AppStatus{Phase: Pending, Message: "no host takes it", Generation: 1}, nil)
	pending[0].LastTransitionTime = metav1.NewTime(time.Unix(1, 0))
	again := withReady(api.AppStatus{Phase: Pending, Message: "another reason", Generation: 2}, pending)
	running := withReady(api.AppStatus{Phase: Running, Generation: 2}, again)
	for _, row := range []struct {
		found        metav1.Condition
		status       metav1.ConditionStatus
		reason, says string
		since        bool // of before
	}{
		{pending[0], metav1.ConditionFalse, Pending, "no host takes it", true},
		{again[0], metav1.ConditionFalse, Pending, "another reason", true},
		{running[0], metav1.ConditionTrue, Running, "", false},
	} {
		c := row.found
		if c.Type != "Ready" || c.Status != row.status || c.Reason != row.reason || c.Message != row.says ||
			c.LastTransitionTime.Equal(&pending[0].LastTransitionTime) != row.since {
			t.Errorf("found %+v, expected %+v", c, row)
		}
	}
}
