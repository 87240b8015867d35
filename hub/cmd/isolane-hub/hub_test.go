package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath/drivers"
)

// bench is a hub and a host, both on this machine.
type bench struct {
	dir, binary, programs string
	address               string // of the hub
	port                  int
	more                  []string // flags of up
	netns                 string   // where the agent runs, if not beside the hub
	away                  string   // folder of the hub that runs there too; "": none
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := withoutHost(t)
	t.Setenv("ISOLANE_HISTORY", b.file("history"))
	hosttest.Need(t, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	t.Cleanup(func() {
		if t.Failed() {
			left(t)
		}
	})
	return b
}

// withoutHost returns a bench for hubs alone, which changes nothing on this machine.
func withoutHost(t *testing.T) *bench {
	t.Helper()
	programs := os.Getenv("ISOLANE_HUB_PROGRAMS")
	if programs == "" {
		t.Skip("skipped: needs etcd and kube-apiserver: make test-hub")
	}
	b := &bench{dir: t.TempDir(), programs: programs, address: "127.0.0.1", port: 20000 + 3*rand.IntN(4000)}
	b.binary = b.file("isolane-hub")
	if out, err := exec.Command("go", "build", "-o", b.binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	return b
}

// long skips a test if there is little time.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("skipped: takes a minute or more: make test-hub")
	}
}

// left takes back what a failed test has left on this machine.
func left(t *testing.T) {
	t.Helper()
	l, _, err := lanes.OpenPatiently(context.Background(), lanes.Options{Paths: drivers.Paths(), Ops: drivers.Ops()})
	if err != nil {
		t.Error(err)
		return
	}
	defer l.Close()
	groups, err := l.Groups()
	if err != nil {
		t.Error(err)
	}
	for _, g := range groups {
		if !strings.HasPrefix(g.Lane.Name, "default.") && g.Lane.Name != "hub-test" && g.Lane.Name != "asked" {
			continue
		}
		pids, err := cgroup.Processes(host.Live(), g.Dir)
		for _, pid := range pids {
			err = errors.Join(err, syscall.Kill(pid, syscall.SIGKILL))
		}
		until(t, "they have ended", func() error {
			now, perr := cgroup.Processes(host.Live(), g.Dir)
			if perr == nil && len(now) > 0 {
				perr = fmt.Errorf("processes %v", now)
			}
			return perr
		})
		if _, rerr := l.Release(context.Background(), g.Lane.Name); errors.Join(err, rerr) != nil {
			t.Error(g.Lane.Name, err, rerr)
		}
	}
}

func (b *bench) file(name string) string { return filepath.Join(b.dir, name) }

// command returns a command of isolane-hub, at the host's site if it is one of a host.
func (b *bench) command(args ...string) *exec.Cmd {
	if b.netns == "" || args[0] != "agent" && args[0] != "join" && !slices.Contains(args, b.file(b.away)) {
		return exec.Command(b.binary, args...)
	}
	return exec.Command("nsenter", append([]string{"--net=/run/netns/" + b.netns, b.binary}, args...)...)
}

// start starts a command of isolane-hub, whose output goes to a file.
func (b *bench) start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	out, err := os.OpenFile(b.file(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := b.command(args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), "ISOLANE_SOCKET="+b.file("agent.sock"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.end(t, cmd, syscall.SIGTERM)
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	})
	return cmd
}

// end ends a command by a signal, and waits for it. It leaves a command alone that has ended.
func (b *bench) end(t *testing.T, cmd *exec.Cmd, with syscall.Signal) {
	t.Helper()
	if cmd.ProcessState == nil {
		if err := cmd.Process.Signal(with); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	}
}

// hub starts the hub, and returns the command with which hosts join.
func (b *bench) hub(t *testing.T, name string) (*exec.Cmd, []string) {
	t.Helper()
	cmd := b.start(t, name, append([]string{"up", "--dir", b.file("hub"), "--programs", b.programs, "--address", b.address,
		"--port", fmt.Sprint(b.port)}, b.more...)...)
	return cmd, b.joining(t, name)
}

// joining waits until a hub is ready, and returns the command with which hosts join.
func (b *bench) joining(t *testing.T, name string) (join []string) {
	t.Helper()
	until(t, "the hub is ready", func() error {
		log, err := os.Open(b.file(name + ".log"))
		if err != nil {
			return err
		}
		defer log.Close()
		last := ""
		for lines := bufio.NewScanner(log); lines.Scan(); {
			last = lines.Text()
			if by, how, is := strings.Cut(last, " join "); is && (by == "isolane agent" || by == "isolane-hub") { // this one of old programs
				join = append([]string{"join"}, strings.Fields(how)...)
				return nil
			}
		}
		return fmt.Errorf("it says %q", last)
	})
	return join
}

func (b *bench) agent(t *testing.T) *exec.Cmd {
	t.Helper()
	return b.start(t, "agent", "agent", "--dir", b.file("agent"))
}

// instances returns the client for the host's Instances, for an administrator or for the host itself.
func instances(t *testing.T, c *rest.Config, of string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(api.Resource("instances")).Namespace(api.Namespace(of))
}

// until waits until f returns no error, for at most two minutes.
func until(t *testing.T, what string, f func() error) {
	t.Helper()
	err := f()
	for end := time.Now().Add(2 * time.Minute); err != nil; err = f() {
		if time.Now().After(end) {
			t.Fatalf("%s: not within two minutes: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// running returns the processes in the lane, all of whose threads may use only the lane's CPUs.
func running(t *testing.T, name string) []int {
	t.Helper()
	l, err := lanes.Look(lanes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	groups, err := l.Groups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if g.Lane.Name != name {
			continue
		}
		pids, err := cgroup.Processes(host.Live(), g.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range pids {
			for _, tid := range task.Threads(host.Live(), pid) {
				onlyOn(t, task.ThreadDir(pid, tid), g.Lane.CPUs)
			}
		}
		return pids
	}
	return nil
}

// onlyOn expects a thread that is there to have these CPUs. The kernel lists it in a cpuset a moment before (25 ms at load).
func onlyOn(t *testing.T, thread string, cpus cpuset.Set) {
	t.Helper()
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		may, err := task.ReadAllowed(host.Live(), thread)
		if err != nil || may == cpus {
			return
		}
		if time.Now().After(end) {
			t.Errorf("thread %s may use CPUs %s, the lane has %s", thread, may, cpus)
			return
		}
	}
}

// startedAgain kills the three processes in a lane, and waits until there are three others.
func startedAgain(t *testing.T, name string) (now []int) {
	t.Helper()
	before := running(t, name)
	for _, pid := range before {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "it is started again", func() error {
		if now = running(t, name); len(now) != 3 || slices.Contains(before, now[0]) {
			return fmt.Errorf("processes %v", now)
		}
		return nil
	})
	return now
}

// showsAll expects the hub to show of this host what `isolane host -o json` prints here.
func showsAll(t *testing.T, admin *rest.Config) {
	t.Helper()
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	// What changes all the time is left out.
	steady := func(m lanes.Machine) string {
		m.Warnings, m.Kernel.Steal = nil, nil
		for n := range m.Interrupts {
			m.Interrupts[n].Affinity, m.Interrupts[n].Effective = nil, nil
		}
		for n := range m.NUMANodes {
			for i := range m.NUMANodes[n].Hugepages {
				m.NUMANodes[n].Hugepages[i].Free = nil
			}
		}
		text, merr := json.MarshalIndent(m, "", " ")
		if merr != nil {
			t.Fatal(merr)
		}
		return string(text)
	}
	until(t, "the hub shows what the host is like", func() error {
		u, gerr := client.Resource(api.Resource("hosts")).Namespace(api.Namespace("one")).Get(t.Context(), "one", metav1.GetOptions{})
		if gerr != nil {
			return gerr
		}
		h, gerr := api.From[api.Host](u)
		var shown, is lanes.Machine
		if gerr == nil {
			gerr = json.Unmarshal(h.Status.Machine, &shown)
		}
		l, lerr := lanes.Look(lanes.Options{})
		live, herr := host.Read(host.Live())
		if gerr = errors.Join(gerr, lerr, herr); gerr == nil {
			is, gerr = l.Machine(live)
		}
		if diff := cmp.Diff(steady(is), steady(shown)); gerr == nil && (diff != "" || len(shown.Lanes) != 1) {
			gerr = fmt.Errorf("it shows %d lanes, and (-host +hub):\n%s", len(shown.Lanes), diff)
		}
		return gerr
	})
}

// looksAfter expects an agent to stay off the CPUs of a lane, and to repair what somebody changes.
func looksAfter(t *testing.T, pid int, name string) {
	t.Helper()
	l, err := lanes.Look(lanes.Options{})
	if err != nil {
		t.Fatal(err)
	}
	placed, err := l.Lane(name)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the agent is off the lane's CPUs", func() error {
		for _, tid := range task.Threads(host.Live(), pid) {
			if may, aerr := task.ReadAllowed(host.Live(), task.ThreadDir(pid, tid)); aerr == nil && may.Intersects(placed.CPUs) {
				return fmt.Errorf("thread %d may use CPUs %s, the lane has %s", tid, may, placed.CPUs)
			}
		}
		return nil
	})
	const file = "/proc/irq/default_smp_affinity"
	was, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte("3"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "what somebody has changed is put back", func() error {
		now, rerr := os.ReadFile(file)
		if rerr == nil && string(now) != string(was) {
			rerr = fmt.Errorf("%s is %q and was %q", file, now, was)
		}
		return rerr
	})
}

// A host joins, runs what the hub says in a lane, and goes on while hub and agent are killed, and while an
// empty hub is in its place. It ends the Instance when that is deleted, and only then.
func TestHub(t *testing.T) {
	b := newBench(t)
	hub, join := b.hub(t, "hub")
	for i, want := range []string{"joined as one", "new"} {
		name, dir := []string{"one", "two"}[i], []string{"agent", "other"}[i]
		out, _ := exec.Command(b.binary, append(slices.Clone(join), "--dir", b.file(dir), "--name", name)...).CombinedOutput()
		if !strings.Contains(string(out), want) {
			t.Fatalf("join: %s; expected %s", out, want)
		}
	}
	word, err := exec.Command(b.binary, "token", "--dir", b.file("hub"), "elsewhere").Output()
	if again := strings.Fields(string(word)); err != nil || len(again) != 6 || again[3] != join[1] || again[5] == join[3] {
		t.Errorf("token: %q, %v; expected another token for %s", word, err, join[1])
	}
	agent := b.agent(t)
	admin, err := clientcmd.BuildConfigFromFlags("", filepath.Join(b.file("hub"), "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	const name = "hub-test"
	made, err := api.To(map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": "Instance",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"lane": map[string]any{"cpus": map[string]any{"count": 1}},
			"command": []any{"sh", "-c", "while :; do :; done & while :; do :; done & wait"}}})
	if err != nil {
		t.Fatal(err)
	}
	all := instances(t, admin, "one")
	if _, err = all.Create(t.Context(), made, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	phase := func(want string) func() error {
		return func() error {
			u, gerr := all.Get(t.Context(), name, metav1.GetOptions{})
			if gerr != nil {
				return gerr
			}
			if is, _, _ := unstructured.NestedString(u.Object, "status", "phase"); is != want || len(running(t, name)) != 3 {
				return fmt.Errorf("phase %q, processes %v: expected %s and three", is, running(t, name), want)
			}
			return nil
		}
	}
	until(t, "it runs", phase("Running"))
	looksAfter(t, agent.Process.Pid, name)
	showsAll(t, admin)

	first := running(t, name)
	b.end(t, hub, syscall.SIGKILL)
	b.end(t, agent, syscall.SIGKILL)
	b.agent(t)
	if now := running(t, name); !slices.Equal(now, first) {
		t.Errorf("processes %v after a kill of hub and agent, expected still %v", now, first)
	}
	second := startedAgain(t, name)
	store := filepath.Join(b.file("hub"), "store")
	if err = os.Rename(store, store+".kept"); err != nil {
		t.Fatal(err)
	}
	empty, _ := b.hub(t, "empty")
	until(t, "the agent has asked the empty hub", func() error {
		said, rerr := os.ReadFile(b.file("agent.log"))
		if rerr == nil && !strings.Contains(string(said), "forbidden") { // it knows no host
			rerr = fmt.Errorf("it says %s", said)
		}
		return rerr
	})
	if now := running(t, name); !slices.Equal(now, second) {
		t.Errorf("processes %v beside an empty hub, expected still %v", now, second)
	}
	b.end(t, empty, syscall.SIGTERM)
	if err = os.RemoveAll(store); err == nil {
		err = os.Rename(store+".kept", store)
	}
	if err != nil {
		t.Fatal(err)
	}

	b.hub(t, "back")
	until(t, "the hub is followed again", phase("Running"))
	if now := running(t, name); !slices.Equal(now, second) {
		t.Errorf("processes %v when the hub was back, expected still %v", now, second)
	}
	if err = all.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "it is deleted", func() error {
		if _, gerr := all.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(gerr) {
			return errors.Join(errors.New("it is there, or not to be read"), gerr)
		}
		return nil
	})
	if l, lerr := lanes.Look(lanes.Options{}); lerr != nil || len(l.Placement.Lanes) > 0 {
		t.Errorf("lanes are left, %v", lerr)
	}
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the hub knows what has happened to the lane", func() error {
		u, gerr := client.Resource(api.Resource("hosts")).Namespace(api.Namespace("one")).Get(t.Context(), "one", metav1.GetOptions{})
		if gerr != nil {
			return gerr
		}
		h, gerr := api.From[api.Host](u)
		var kinds []string
		for _, c := range h.Status.Changes {
			if c.Lane == name {
				kinds = append(kinds, c.Kind)
			}
		}
		if gerr == nil && !slices.Equal(kinds, []string{"applied", "released"}) {
			gerr = fmt.Errorf("changes %v", h.Status.Changes)
		}
		return gerr
	})
}

// A host's certificate permits access to its own Instances, but no change of what they run or whose they are.
// It may add and remove only its own finalizer, and there is nothing else that it may do.
func TestHostMayOnly(t *testing.T) {
	b := withoutHost(t)
	_, join := b.hub(t, "hub")
	if out, err := exec.Command(b.binary, append(join, "--dir", b.file("agent"), "--name", "one")...).CombinedOutput(); err != nil {
		t.Fatalf("join: %s%v", out, err)
	}
	admin, err := clientcmd.BuildConfigFromFlags("", filepath.Join(b.file("hub"), "admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	const name = "default.web"
	made, err := api.To(map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": "Instance",
		"metadata": map[string]any{"name": name, "labels": map[string]any{api.AppOf: name}, "finalizers": []any{"example.test/other"}},
		"spec":     map[string]any{"lane": map[string]any{"cpus": map[string]any{"count": 1}}, "command": []any{"true"}}})
	if err == nil {
		_, err = instances(t, admin, "one").Create(t.Context(), made, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	own := rest.AnonymousClientConfig(admin)
	own.CertFile, own.KeyFile = filepath.Join(b.file("agent"), "hub", "host.crt"), filepath.Join(b.file("agent"), "host.key")
	if _, err = instances(t, own, "two").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("Instances of another host: %v; expected them to be forbidden", err)
	}
	patch := func(change string) error {
		_, perr := instances(t, own, "one").Patch(t.Context(), name, types.MergePatchType, []byte(change), metav1.PatchOptions{})
		return perr
	}
	until(t, "the rule holds", func() error {
		perr := patch(fmt.Sprintf(`{"spec": {"command": ["%d"]}}`, time.Now().UnixNano()))
		if perr == nil || !strings.Contains(perr.Error(), "a host does not change what it is to run") {
			return fmt.Errorf("a host changes what it is to run: %w", perr)
		}
		return nil
	})
	const metadata = "a host changes no more of an Instance's metadata"
	for _, row := range []struct{ patch, says string }{
		{`{"metadata": {"finalizers": ["example.test/other", "isolane.dev/host"]}}`, ""},
		{`{"metadata": {"labels": {"isolane.dev/app": "victim.web"}}}`, metadata},
		{`{"metadata": {"labels": null}}`, metadata},
		{`{"metadata": {"labels": {"isolane.dev/tenant": "victim"}}}`, metadata},
		{`{"metadata": {"annotations": {"a": "b"}}}`, metadata},
		{`{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "y"}]}}`, metadata},
		{`{"metadata": {"finalizers": ["isolane.dev/host"]}}`, metadata},
		{`{"metadata": {"finalizers": ["example.test/other"]}}`, ""},
	} {
		perr := patch(row.patch)
		if row.says == "" && perr != nil || row.says != "" && (perr == nil || !strings.Contains(perr.Error(), row.says)) {
			t.Errorf("%s: %v; expected %q", row.patch, perr, row.says)
		}
	}
	fast := rest.CopyConfig(admin)
	fast.QPS = -1 // thousands of questions
	core, _, err := clients(fast)
	if err != nil {
		t.Fatal(err)
	}
	var may []string
	for _, space := range []string{"host-one", "host-two", "default", "kube-system", "isolane-hub"} {
		may = append(may, "create selfsubjectaccessreviews.authorization.k8s.io in "+space, // asks about itself, as everybody may
			"create selfsubjectrulesreviews.authorization.k8s.io in "+space, "create selfsubjectreviews.authentication.k8s.io in "+space,
			"create certificatesigningrequests.certificates.k8s.io in "+space, // have no namespace
			"get certificatesigningrequests.certificates.k8s.io in "+space)
	}
	for _, what := range []string{"get hosts.isolane.dev", "update hosts/status.isolane.dev", "update instances/status.isolane.dev",
		"get instances.isolane.dev", "list instances.isolane.dev", "watch instances.isolane.dev", "patch instances.isolane.dev",
		"get leases.coordination.k8s.io", "create leases.coordination.k8s.io", "update leases.coordination.k8s.io"} {
		may = append(may, what+" in host-one")
	}
	slices.Sort(may)
	if diff := cmp.Diff(may, everythingOf(t, core, "one")); diff != "" {
		t.Errorf("what a host may do (-expected +is):\n%s", diff)
	}
}
