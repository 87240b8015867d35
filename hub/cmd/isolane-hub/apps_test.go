package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"filippo.io/age"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lanes"
)

// fleet is a hub with two hosts: this machine, and one that pretends to be like it and refuses everything.
type fleet struct {
	*bench
	admin  *rest.Config
	core   kubernetes.Interface
	client dynamic.Interface
	join   []string
	up     *exec.Cmd
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{bench: newBench(t)}
	f.begin(t)
	return f
}

// begin starts the hub.
func (f *fleet) begin(t *testing.T) {
	t.Helper()
	f.up, f.join = f.hub(t, "hub")
	f.administer(t, filepath.Join(f.file("hub"), "admin.kubeconfig"))
}

// administer makes the clients of an administrator.
func (f *fleet) administer(t *testing.T, kubeconfig string) {
	t.Helper()
	var err error
	if f.admin, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		t.Fatal(err)
	}
	f.admin.QPS = -1
	if f.core, f.client, err = clients(f.admin); err != nil {
		t.Fatal(err)
	}
}

// run runs a command of isolane-hub to its end.
func (f *fleet) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := f.command(args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s%v", strings.Join(args, " "), out, err)
	}
	return string(out)
}

func (f *fleet) token(t *testing.T) []string {
	t.Helper()
	return strings.Fields(f.run(t, "token", "--dir", f.file("hub"), "default"))[2:]
}

func (f *fleet) resource(resource, space string) dynamic.ResourceInterface {
	return f.client.Resource(api.Resource(resource)).Namespace(space)
}

func (f *fleet) make(t *testing.T, resource, kind, space, name string, spec map[string]any) {
	t.Helper()
	u, err := api.To(map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": kind,
		"metadata": map[string]any{"name": name}, "spec": spec})
	if err == nil {
		_, err = f.resource(resource, space).Create(t.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// app waits until the status of an App has this phase and these texts, and returns it.
func (f *fleet) app(t *testing.T, space, name, phase string, says ...string) (s api.AppStatus) {
	t.Helper()
	until(t, name+" is "+phase, func() error {
		u, err := f.resource("apps", space).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		app, err := api.From[api.App](u)
		if s = app.Status; err != nil || s.Phase != phase || s.Generation != app.Generation {
			return errors.Join(fmt.Errorf("found %+v", s), err)
		}
		for _, text := range says {
			if !strings.Contains(s.Message, text) {
				return fmt.Errorf("expected %q, found %q", text, s.Message)
			}
		}
		return nil
	})
	return s
}

func (f *fleet) gone(t *testing.T, what string, get func() error) {
	t.Helper()
	until(t, what+" is gone", func() error {
		if err := get(); !apierrors.IsNotFound(err) {
			return errors.Join(errors.New("it is there, or not to be read"), err)
		}
		return nil
	})
}

func (f *fleet) deleteApp(t *testing.T, name string) {
	t.Helper()
	all := f.resource("apps", "default")
	if err := all.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.gone(t, name, func() error {
		_, err := all.Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
	noLanes(t)
}

func noLanes(t *testing.T) {
	t.Helper()
	if l, err := lanes.Look(lanes.Options{}); err != nil || len(l.Placement.Lanes) > 0 {
		t.Errorf("lanes are left, %v", err)
	}
}

// refuser is an invented host: it joins, reports to be like another host, and refuses whatever it is asked.
func (f *fleet) refuser(t *testing.T, name, like string) {
	t.Helper()
	f.run(t, append(f.token(t), "--dir", f.file(name), "--name", name)...)
	own := rest.AnonymousClientConfig(f.admin)
	own.CertFile, own.KeyFile = filepath.Join(f.file(name), "hub", "host.crt"), filepath.Join(f.file(name), "host.key")
	core, client, err := clients(own)
	if err != nil {
		t.Fatal(err)
	}
	var model api.Host
	until(t, "a host says what it is like", func() error {
		u, gerr := f.resource("hosts", api.Namespace(like)).Get(t.Context(), like, metav1.GetOptions{})
		if gerr == nil {
			model, gerr = api.From[api.Host](u)
		}
		if gerr == nil && len(model.Status.Machine) == 0 {
			gerr = errors.New("nothing yet")
		}
		return gerr
	})
	hosts := client.Resource(api.Resource("hosts")).Namespace(api.Namespace(name))
	u, err := hosts.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var status map[string]any
	data, err := json.Marshal(model.Status)
	if err == nil {
		err = json.Unmarshal(data, &status)
	}
	if err != nil {
		t.Fatal(err)
	}
	u.Object["status"] = status
	if u, err = api.To(u.Object); err == nil {
		_, err = hosts.UpdateStatus(t.Context(), u, metav1.UpdateOptions{})
	}
	now, seconds := metav1.NowMicro(), int32(600)
	if err == nil {
		_, err = core.CoordinationV1().Leases(api.Namespace(name)).Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &now, LeaseDurationSeconds: &seconds}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	instances := client.Resource(api.Resource("instances")).Namespace(api.Namespace(name))
	w, err := instances.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			i, err := api.To(event.Object)
			if err != nil || i.Object["status"] != nil {
				continue
			}
			i.Object["status"] = map[string]any{"phase": api.Refused, "message": "others came first",
				"placement": map[string]any{"apiVersion": "isolane.dev/v1alpha2", "kind": "Placement", "lanes": []any{}}}
			_, _ = instances.UpdateStatus(t.Context(), i, metav1.UpdateOptions{}) // it may be withdrawn already
		}
	}()
}

func spec(cpus int, more map[string]any) map[string]any {
	s := map[string]any{"lane": map[string]any{"cpus": map[string]any{"count": cpus}},
		"command": []any{"sh", "-c", "while :; do sleep 1000; done"}}
	for key, value := range more {
		s[key] = value
	}
	return s
}

// An App gets a host that has reserved its lane. A host that refuses is asked once, and another one after it.
// Quotas hold, what fits nowhere says what would help, and people at the site can put changes off.
func TestApps(t *testing.T) {
	f := newFleet(t)
	f.run(t, append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")...)
	agent := f.agent(t)
	f.refuser(t, "alpha", "one")
	f.workloads(t)

	f.make(t, "apps", "App", "default", "web", spec(1, nil))
	if s := f.app(t, "default", "web", "Running"); !slices.Equal(s.Hosts, []string{"one"}) || s.Running != 1 {
		t.Errorf("found %+v, expected it on host one", s)
	}
	if len(running(t, "default.web")) == 0 {
		t.Error("nothing runs in lane default.web")
	}
	for _, want := range []string{"one (default): chosen: CPUs", "alpha (default): refused: ", "others came first"} { // on a slow machine it was asked before
		if why := f.run(t, "why", "--dir", f.file("hub"), "default/web"); !strings.Contains(why, want) {
			t.Errorf("why: %s\nexpected %s", why, want)
		}
	}
	f.make(t, "apps", "App", "default", "large", spec(50, nil))
	if s := f.app(t, "default", "large", "Pending", "too full", "cheapest change: "); strings.Contains(s.Message, "default.web") {
		t.Errorf("it names a lane of another App: %s", s.Message)
	}
	f.make(t, "apps", "App", "default", "elsewhere", spec(1, map[string]any{"where": map[string]any{"zones": []any{"north"}}}))
	f.app(t, "default", "elsewhere", "Pending", "takes it: excluded")
	f.privileges(t)
	f.quota(t)
	f.deleteApp(t, "web")

	f.make(t, "tenants", "Tenant", "", "default", map[string]any{"cpus": 0})
	f.make(t, "apps", "App", "default", "over", spec(1, nil))
	f.app(t, "default", "over", "Refused", "tenant default may have 0 CPUs, and this App would make it 1")
	if err := f.resource("tenants", "").Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.app(t, "default", "over", "Running")
	if said := f.run(t, "status", "--dir", f.file("agent")); !strings.Contains(said, "follows the hub") ||
		!strings.Contains(said, "default.over: runs on CPUs ") {
		t.Errorf("status: %s", said)
	}
	first := running(t, "default.over")
	f.run(t, append(append([]string{"rehome"}, f.token(t)[1:]...), "--dir", f.file("agent"))...)
	f.holds(t)
	if err := f.resource("apps", "default").Delete(t.Context(), "over", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.app(t, "default", "over", "Ending", "one (changes are put off at the site)")
	f.lapses(t)
	if now := running(t, "default.over"); !slices.Equal(now, first) {
		t.Errorf("processes %v after rehome and while changes are put off, expected still %v", now, first)
	}
	if said := f.run(t, "status", "--dir", f.file("agent")); !strings.Contains(said, "a match") {
		t.Errorf("status: %s", said)
	}
	f.run(t, "hold", "0", "--dir", f.file("agent"))
	f.gone(t, "over", func() error {
		_, err := f.resource("apps", "default").Get(t.Context(), "over", metav1.GetOptions{})
		return err
	})
	f.reserves(t, agent)
	noLanes(t)
	if said := f.run(t, "findings", "--dir", f.file("hub")); !strings.Contains(said, "one") {
		t.Errorf("findings: %s", said)
	}
	f.namespaces(t)
}

// privileges: commands run as a user of their tenant, and as root only if the host itself allows that.
func (f *fleet) privileges(t *testing.T) {
	t.Helper()
	for _, pid := range running(t, "default.web") {
		s, err := task.ReadStatus(host.Live(), task.Dir(pid))
		if err != nil {
			t.Fatal(err)
		}
		user, _ := s.Value("Uid")
		caps, _ := s.Value("CapBnd")
		if !strings.HasPrefix(user, "18790481") || strings.Trim(caps, "0") != "" {
			t.Errorf("a command of App web is user %s with capabilities %s", user, caps)
		}
	}
	f.make(t, "apps", "App", "default", "rooted", spec(1, map[string]any{"root": true}))
	f.app(t, "default", "rooted", "Pending", "takes it: not letting it be root (spec.root)")
	const remedy = "expected no spec.root, or isolane-hub agent --root default on it"
	if why := f.run(t, "why", "--dir", f.file("hub"), "default/rooted"); !strings.Contains(why, remedy) {
		t.Errorf("why: %s", why)
	}
	f.make(t, "instances", "Instance", api.Namespace("one"), "asked", spec(1, map[string]any{"root": true, "reserve": true}))
	f.reservation(t, api.Refused, "spec.root: this host lets no commands of host-one be root")
	if err := f.resource("instances", api.Namespace("one")).Delete(t.Context(), "asked", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// workloads: an App has one of a command, a service and an image. A host refuses an image that it does not
// have.
func (f *fleet) workloads(t *testing.T) {
	t.Helper()
	one := map[string]any{"cpus": map[string]any{"count": 1}}
	for says, spec := range map[string]map[string]any{
		"expected one of command, service and image":     {"lane": one, "service": "a.service", "root": true, "command": []any{"true"}},
		"expected one of command, service and image; an": {"lane": one},
		"a service is root's to start and to end":        {"lane": one, "service": "a.service"},
		"spec.service in body should match":              {"lane": one, "service": "--now", "root": true},
		"spec.image in body should match":                {"lane": one, "image": "--privileged"},
	} {
		u, err := api.To(map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": "App",
			"metadata": map[string]any{"name": "wrong"}, "spec": spec})
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.resource("apps", "default").Create(t.Context(), u, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v; expected %s", spec, err, says)
		}
	}
	f.make(t, "apps", "App", "default", "contained", map[string]any{"lane": one, "image": "localhost/isolane-none:1"})
	f.app(t, "default", "contained", "Pending", "refused")
	if why := f.run(t, "why", "--dir", f.file("hub"), "default/contained"); !strings.Contains(why, "spec.image: ") {
		t.Errorf("why: %s", why)
	}
	if err := f.resource("apps", "default").Delete(t.Context(), "contained", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// quota: a tenant reads in its own namespace its limits and what it uses.
func (f *fleet) quota(t *testing.T) {
	t.Helper()
	f.make(t, "tenants", "Tenant", "", "default", map[string]any{"cpus": 5})
	own := f.resource("quotas", "default")
	until(t, "the tenant's quota is there", func() error {
		u, err := own.Get(t.Context(), "tenant", metav1.GetOptions{})
		if err != nil {
			return err
		}
		q, err := api.From[api.Quota](u)
		if err == nil && (q.Spec.CPUs == nil || *q.Spec.CPUs != 5 || q.Status.Used.CPUs != 1 || q.Status.Used.Instances != 1) {
			err = fmt.Errorf("found %+v", q)
		}
		return err
	})
	if err := f.resource("tenants", "").Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.gone(t, "the quota", func() error {
		_, err := own.Get(t.Context(), "tenant", metav1.GetOptions{})
		return err
	})
}

// lapses: while changes are put off, nothing is reserved.
// holds: people at the site put changes off, and the hub says so of the host and of an App that was changed.
func (f *fleet) holds(t *testing.T) {
	t.Helper()
	f.run(t, "hold", "1h", "--reason", "a match", "--dir", f.file("agent"))
	until(t, "the hub says of the host that changes are put off", func() error {
		u, err := f.resource("hosts", api.Namespace("one")).Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			return err
		}
		h, err := api.From[api.Host](u)
		if err == nil && !strings.HasSuffix(h.Status.Conditions[0].Message, "changes are put off at the site: a match") {
			err = fmt.Errorf("found %+v", h.Status.Conditions)
		}
		return err
	})
	if _, err := f.resource("apps", "default").Patch(t.Context(), "over", types.MergePatchType, []byte(`{"spec":{"command":["true"]}}`),
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	f.app(t, "default", "over", "Starting", "host one: Running: changes are put off at the site")
}

func (f *fleet) lapses(t *testing.T) {
	t.Helper()
	f.make(t, "instances", "Instance", api.Namespace("one"), "asked", spec(1, map[string]any{"reserve": true}))
	f.reservation(t, api.Refused, "changes are put off at the site: a match")
	if err := f.resource("instances", api.Namespace("one")).Delete(t.Context(), "asked", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) reservation(t *testing.T, phase, says string) {
	t.Helper()
	until(t, "the reservation is "+phase, func() error {
		u, err := f.resource("instances", api.Namespace("one")).Get(t.Context(), "asked", metav1.GetOptions{})
		if err != nil {
			return err
		}
		i, err := api.From[api.Instance](u)
		if err == nil && (i.Status.Phase != phase || !strings.Contains(i.Status.Message, says)) {
			err = fmt.Errorf("found %s, %s", i.Status.Phase, i.Status.Message)
		}
		return err
	})
}

// reserves: a reservation is a lane in force without processes. It ends by itself, even if the agent was
// killed.
func (f *fleet) reserves(t *testing.T, agent *exec.Cmd) {
	t.Helper()
	all := f.resource("instances", api.Namespace("one"))
	f.make(t, "instances", "Instance", api.Namespace("one"), "asked", spec(1, map[string]any{"reserve": true}))
	f.reservation(t, api.Reserved, "")
	if l, err := lanes.Look(lanes.Options{}); err != nil || len(l.Placement.Lanes) != 1 || len(running(t, "asked")) > 0 {
		t.Errorf("lanes %v, processes %v, %v: expected a lane in which nothing runs", l.Placement.Lanes, running(t, "asked"), err)
	}
	f.end(t, agent, syscall.SIGKILL)
	f.agent(t)
	f.reservation(t, api.Lapsed, "")
	until(t, "its lane is taken back", func() error {
		l, err := lanes.Look(lanes.Options{})
		if err == nil && len(l.Placement.Lanes) > 0 {
			err = errors.New("it is there")
		}
		return err
	})
	if err := all.Delete(t.Context(), "asked", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// namespaces: deleting a namespace deletes what is in it.
func (f *fleet) namespaces(t *testing.T) {
	t.Helper()
	spaces := f.core.CoreV1().Namespaces()
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "leaving"}}
	if _, err := spaces.Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f.make(t, "apps", "App", "leaving", "large", spec(50, nil))
	f.app(t, "leaving", "large", "Pending")
	if err := spaces.Delete(t.Context(), "leaving", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f.gone(t, "the namespace", func() error {
		_, err := spaces.Get(t.Context(), "leaving", metav1.GetOptions{})
		return err
	})
}

// A hub restored from an old backup is recognized as such: what runs goes on, and follows the hub after a
// rehome.
func TestRestore(t *testing.T) {
	f := newFleet(t)
	key, err := age.GenerateX25519Identity()
	if err == nil {
		err = os.WriteFile(f.file("key"), []byte(key.String()+"\n"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.run(t, append(slices.Clone(f.join), "--dir", f.file("agent"), "--name", "one")...)
	f.agent(t)
	f.make(t, "apps", "App", "default", "web", spec(1, nil))
	f.app(t, "default", "web", "Running")
	f.run(t, "backup", f.file("backup.age"), "--recipient", key.Recipient().String(), "--dir", f.file("hub"))

	u, err := f.resource("apps", "default").Get(t.Context(), "web", metav1.GetOptions{})
	if err == nil {
		u.Object["spec"].(map[string]any)["command"] = []any{"sleep", "100000"}
		_, err = f.resource("apps", "default").Update(t.Context(), u, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	var later []int
	until(t, "the host has taken over the change", func() error {
		if later = running(t, "default.web"); len(later) != 1 {
			return fmt.Errorf("processes %v", later)
		}
		line, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", later[0])) // not the last process of before, which is to end
		if rerr == nil && !strings.Contains(string(line), "100000") {
			rerr = fmt.Errorf("process %d is %q", later[0], line)
		}
		return rerr
	})
	f.app(t, "default", "web", "Running")
	f.end(t, f.up, syscall.SIGTERM)
	if err = os.Rename(f.file("hub"), f.file("lost")); err != nil {
		t.Fatal(err)
	}
	f.run(t, "restore", f.file("backup.age"), "--identity", f.file("key"), "--dir", f.file("hub"))
	f.up, _ = f.hub(t, "restored")
	f.says(t, "HubRegressed: ")
	if now := running(t, "default.web"); !slices.Equal(now, later) {
		t.Errorf("processes %v beside an old hub, expected still %v", now, later)
	}
	f.run(t, append(append([]string{"rehome"}, f.token(t)[1:]...), "--dir", f.file("agent"))...)
	f.says(t, "follows the hub")
	if now := running(t, "default.web"); !slices.Equal(now, later) {
		t.Errorf("processes %v after a rehome, expected still %v", now, later)
	}
	f.app(t, "default", "web", "Running", "host one: it runs as it was declared before, and not as here")
	f.deleteApp(t, "web")
}
