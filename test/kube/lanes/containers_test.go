package lanes_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/bed/bedtest"
)

// needCPUs skips tests of lanes that need more CPUs than this machine has: housekeeping keeps one.
func needCPUs(t *testing.T, n int) {
	t.Helper()
	if has := runtime.NumCPU(); has < n {
		t.Skipf("skipped: needs %d CPUs, this machine has %d", n, has)
	}
}

// pod is a pod of containers, which are named by their arguments: "worker claim=lane threads=3".
type pod struct {
	name   string
	claims map[string]string // by their names in the pod: the devices of a ResourceClaimTemplate as JSON
	inits  []container
	all    []container
	likes  string // the node that the scheduler prefers for it; "" for none
}

type container struct {
	name, claim string
	cpus        string // that it asks for
	more        string // further resources, ", limits: {…}"
	args        string
}

// request returns the devices of a claim for one lane.
func request(capacity, spec string) string {
	return fmt.Sprintf(`{requests: [{name: lane, exactly: {deviceClassName: lane.isolane.dev, capacity: {requests: %s}}}],
      config: [{opaque: {driver: isolane.dev, parameters: {apiVersion: isolane.dev/v1alpha1, kind: Lane, spec: %s}}}]}`, capacity, spec)
}

func (p pod) manifest() string {
	var text, claims strings.Builder
	for name, devices := range p.claims {
		fmt.Fprintf(&text, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: %s-%s}\nspec: {spec: {devices: %s}}\n---\n",
			p.name, name, devices)
		fmt.Fprintf(&claims, "  - {name: %s, resourceClaimTemplateName: %s-%[1]s}\n", name, p.name)
	}
	fmt.Fprintf(&text, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  terminationGracePeriodSeconds: 1\n", p.name)
	if p.likes != "" {
		fmt.Fprintf(&text, `  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 100, preference:
    {matchFields: [{key: metadata.name, operator: In, values: [%s]}]}}]}}`+"\n", p.likes)
	}
	if claims.Len() > 0 {
		text.WriteString("  resourceClaims:\n" + claims.String())
	}
	for field, all := range map[string][]container{"initContainers": p.inits, "containers": p.all} {
		if len(all) > 0 {
			fmt.Fprintf(&text, "  %s:\n", field)
		}
		for _, c := range all {
			resources := fmt.Sprintf(`requests: {cpu: "%s"}%s`, c.cpus, c.more)
			if c.claim != "" {
				resources += ", claims: [{name: " + c.claim + "}]"
			}
			fmt.Fprintf(&text, `  - {name: %s, image: "kubebed.test/spin:1", imagePullPolicy: Never, args: [%s], resources: {%s}}`+"\n",
				c.name, c.args, resources)
		}
	}
	return text.String()
}

func (c *cluster) applyPod(t *testing.T, p pod) {
	t.Helper()
	c.kubectl(t, p.manifest(), "apply", "-f", "-")
}

func (c *cluster) deletePod(t *testing.T, p pod) {
	t.Helper()
	c.kubectl(t, p.manifest(), "delete", "--wait", "-f", "-")
}

// Two containers of a pod share a claim by roles: each has its own CPUs, and no thread of one runs on the
// other's.
func TestContainers(t *testing.T) {
	needCPUs(t, 4)
	c := share(t)
	c.run(t)
	c.spin(t, "noisy", "", "6")
	p := pod{name: "edge", claims: map[string]string{"lane": request(`{cpus: "3"}`, `{roles: {worker: 2}}`)},
		inits: []container{{name: "first", claim: "lane", cpus: "1", args: `"--end", "1"`}},
		all: []container{{name: "worker", claim: "lane", cpus: "2", args: `"4"`},
			{name: "app", claim: "lane", cpus: "1", args: `"3"`}, {name: "sidecar", cpus: "100m", args: `"2"`}}}
	c.applyPod(t, p)
	c.ready(t, "edge")
	lanes := map[string]string{"edge/worker": c.cpusOf(t, "edge/worker"), "edge/app": c.cpusOf(t, "edge/app")}
	for name, cpus := range lanes {
		if want := map[string]int{"edge/worker": 2, "edge/app": 1}[name]; len(list(t, cpus)) != want {
			t.Errorf("%s has CPUs %s, expected %d", name, cpus, want)
		}
	}
	ran := c.eachApart(t, lanes, "noisy", "edge/sidecar")
	if strings.Count(ran["edge/worker"], " ") != 1 {
		t.Errorf("four busy threads of edge/worker ran on CPUs %s, expected both", ran["edge/worker"])
	}
	if first := c.cpusOf(t, "edge/first"); first != lanes["edge/app"] {
		t.Errorf("the init container had CPUs %s, the rest are %s", first, lanes["edge/app"])
	}
	c.kill(t)
	c.eachApart(t, lanes, "noisy", "edge/sidecar")
	c.run(t)
	c.restart(t, "edge/worker")
	c.eachApart(t, lanes, "noisy", "edge/sidecar")
	c.deletePod(t, p)
	c.until(t, "the lanes are released", c.noLanes)

	p.name, p.all[1].name = "unnamed", "other"
	p.all[2] = container{name: "third", claim: "lane", cpus: "1", args: `"1"`} // no sidecar: there are four CPUs
	c.applyPod(t, p)
	c.says(t, "unnamed", "reason=Refused", "containers other, third: expected all but one to be named like a role")
	c.deletePod(t, p)
}

func kill(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// restart ends a container, and waits until it is ready again.
func (c *cluster) restart(t *testing.T, name string) {
	t.Helper()
	first := c.processes(t, name)
	kill(t, first)
	c.until(t, name+" is started again", func() error {
		if now := c.processesNow(name); len(now) == 0 || now[0] == first[0] {
			return fmt.Errorf("processes %v", now)
		}
		return nil
	})
	pod, _, _ := strings.Cut(name, "/")
	c.ready(t, pod)
}

// Two claims of a pod are answered at once and are separate lanes; a container has one of them.
func TestClaims(t *testing.T) {
	needCPUs(t, 4)
	c := share(t)
	c.run(t)
	c.spin(t, "noisy", "", "6")
	p := pod{name: "edge", claims: map[string]string{"a": request(`{cpus: "2"}`, "{}"), "b": request(`{cpus: "1"}`, "{}")},
		all: []container{{name: "a", claim: "a", cpus: "2", args: `"3"`}, {name: "b", claim: "b", cpus: "1", args: `"2"`}}}
	c.applyPod(t, p)
	c.ready(t, "edge")
	lanes := map[string]string{"edge/a": c.cpusOf(t, "edge/a"), "edge/b": c.cpusOf(t, "edge/b")}
	c.eachApart(t, lanes, "noisy")
	if partitions() {
		for name, want := range map[string]string{"edge/a": "root", "edge/b": "isolated"} { // one CPU has nothing to balance
			group, err := c.cgroupOf(name)
			if err != nil {
				t.Fatal(err)
			}
			kind, err := os.ReadFile(filepath.Join(group, "cpuset.cpus.partition"))
			if strings.TrimSpace(string(kind)) != want {
				t.Errorf("%s: partition %q, %v; expected %s", name, kind, err, want)
			}
		}
	}
	c.deletePod(t, p)
	c.until(t, "the lanes are released", c.noLanes)
	both := pod{name: "both", claims: p.claims, all: []container{{name: "main", claim: "a}, {name: b", cpus: "3", args: `"1"`}}}
	c.applyPod(t, both)
	c.says(t, "both", "container main: 2 lanes: expected one: name one claim in its resources.claims")
	c.deletePod(t, both)
	if err := c.noLanes(); err != nil {
		t.Error(err)
	}

	// Two requests of a claim are two lanes as well.
	const one = `{name: %s, exactly: {deviceClassName: lane.isolane.dev, capacity: {requests: {cpus: "%d"}}}}`
	two := pod{name: "two", claims: map[string]string{"lane": "{requests: [" + fmt.Sprintf(one, "fast", 2) + ", " + fmt.Sprintf(one, "slow", 1) + "]}"},
		all: []container{{name: "a", claim: "lane, request: fast", cpus: "2", args: `"3"`}, {name: "b", claim: "lane, request: slow", cpus: "1", args: `"2"`}}}
	c.applyPod(t, two)
	c.ready(t, "two")
	lanes = map[string]string{"two/a": c.cpusOf(t, "two/a"), "two/b": c.cpusOf(t, "two/b")}
	if len(list(t, lanes["two/a"])) != 2 || len(list(t, lanes["two/b"])) != 1 {
		t.Errorf("%v: expected two CPUs and one", lanes)
	}
	c.eachApart(t, lanes, "noisy")
	c.restart(t, "two/b")
	c.eachApart(t, lanes, "noisy")
	c.deletePod(t, two)
	c.until(t, "the lanes are released", c.noLanes)
}

// A lane that somebody puts in force on the node itself and pods' lanes are in one account: its CPUs are
// offered to nobody, a pod gets others, and they are offered again when it has gone.
func TestHostLane(t *testing.T) {
	needCPUs(t, 4)
	c := share(t)
	c.run(t)
	isolane := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(c.programs+"/isolane", args...).CombinedOutput(); err != nil {
			t.Fatalf("isolane %v: %v: %s", args, err, out)
		}
	}
	offered := func(want int) {
		t.Helper()
		c.until(t, fmt.Sprintf("%d CPUs are offered", want), func() error {
			cpus, err := c.tryKubectl(t, "", "get", "resourceslices", "-o", "jsonpath={.items[*].spec.devices[*].capacity.cpus.value}")
			if err == nil && cpus != fmt.Sprint(want) {
				err = fmt.Errorf("CPUs %s", cpus)
			}
			return err
		})
	}
	own := filepath.Join(t.TempDir(), "own.yaml")
	err := os.WriteFile(own, []byte("apiVersion: isolane.dev/v1alpha1\nkind: Lane\nmetadata: {name: own}\nspec: {cpus: {count: 1}}\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	all := runtime.NumCPU() - 1 // the boot CPU is housekeeping's
	offered(all)
	isolane("apply", "-f", own)
	offered(all - 1)
	c.lane(t, "edge", "", "2")
	c.ready(t, "edge")
	cpus := c.cpusOf(t, "edge")
	out, err := exec.Command(c.programs+"/isolane", "status", "-o", "json").Output()
	var status struct{ Lanes []struct{ Name, CPUs string } }
	if err == nil {
		err = json.Unmarshal(out, &status)
	}
	host := ""
	for _, l := range status.Lanes {
		if l.Name == "own" {
			host = l.CPUs
		}
	}
	if err != nil || host == "" || host == cpus {
		t.Errorf("the pod has CPUs %s, the node's own lane %q: %v", cpus, host, err)
	}
	c.spin(t, "noisy", "", "4")
	c.apart(t, cpus, "edge", "noisy")
	for _, pid := range c.processes(t, "noisy") {
		for _, th := range threadsOf(pid) {
			if wrong(nil, list(t, host), list(t, th.allowed)) {
				t.Errorf("a pod's thread %d may use CPUs %s, the node's own lane has %s", th.tid, th.allowed, host)
			}
		}
	}
	c.delete(t, "edge")
	isolane("release", "own")
	offered(all)
}

// With cgroup v2 and Linux 6.7 or later a container's own cgroup is the lane: the kernel keeps all others
// off, even while the node part is away, and nothing is left when the pod has gone.
func TestPartition(t *testing.T) {
	if !partitions() {
		t.Skip("skipped: needs cgroup v2 with partitions below others")
	}
	needCPUs(t, 3)
	c := share(t)
	c.run(t)
	c.spin(t, "noisy", "", "6")
	c.spin(t, "early", "requests: {cpu: 10m}", "1") // with it the kubelet makes the cgroup of the lane's class of service
	before := c.cgroups(t)
	p := pod{name: "edge", claims: map[string]string{"lane": request(`{cpus: "2"}`, "{}")},
		all: []container{{name: "main", claim: "lane", cpus: "2", args: `"4"`}}}
	c.applyPod(t, p)
	c.ready(t, "edge")
	cpus := c.cpusOf(t, "edge")
	look := func(when string) {
		group, err := c.cgroupOf("edge")
		if err != nil {
			t.Fatal(when, err)
		}
		kind, err := os.ReadFile(filepath.Join(group, "cpuset.cpus.partition"))
		effective, eerr := os.ReadFile(filepath.Join(group, "cpuset.cpus.effective"))
		t.Logf("%s: %s: cpuset.cpus.partition %s, cpuset.cpus.effective %s", when, group, strings.TrimSpace(string(kind)),
			strings.TrimSpace(string(effective)))
		if err != nil || eerr != nil || strings.TrimSpace(string(kind)) != "root" || strings.TrimSpace(string(effective)) != cpus {
			t.Errorf("%s: partition %q of CPUs %q, %v %v; expected root of %s", when, kind, effective, err, eerr, cpus)
		}
		if ran := c.eachApart(t, map[string]string{"edge": cpus}, "noisy"); strings.Count(ran["edge"], " ") != 1 {
			t.Errorf("%s: four busy threads ran on CPUs %s, expected both", when, ran["edge"])
		}
	}
	look("in force")
	c.nobodyElse(t)
	if bedtest.Systemd() {
		c.disturb(t, "edge", look)
	}
	c.kill(t)
	look("without the node part")
	c.spin(t, "late", "", "3") // began while nobody of ours was there
	c.eachApart(t, map[string]string{"edge": cpus}, "noisy", "late")
	c.run(t)
	look("with the node part again")
	c.restart(t, "edge")
	look("after a restart of the container")
	c.endedFor(t, "edge", cpus)
	look("after a longer time without its container")
	c.deletePod(t, p)
	c.until(t, "the lane is released", c.noLanes)
	c.kubectl(t, "", "delete", "pod", "late", "--wait")
	c.until(t, "cgroups are as before", func() error {
		if now := c.cgroups(t); now != before {
			return fmt.Errorf("before:\n%s\nnow:\n%s", before, now)
		}
		return nil
	})
}

// endedFor ends a container while the kubelet cannot begin it again, until the lane is a partition of its own, whose
// CPUs nobody else has.
func (c *cluster) endedFor(t *testing.T, name, cpus string) {
	t.Helper()
	first := c.processes(t, name)
	if err := c.node.Signal("kubelet", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := true
	goOn := func() {
		if stopped {
			stopped = false
			if err := c.node.Signal("kubelet", syscall.SIGCONT); err != nil {
				t.Error(err)
			}
		}
	}
	defer goOn() // also when the test ends here
	kill(t, first)
	c.until(t, "the lane is a cgroup of its own", func() error {
		groups, _ := filepath.Glob("/sys/fs/cgroup/isolane-kube-*")
		for _, group := range groups {
			kind, err := os.ReadFile(filepath.Join(group, "cpuset.cpus.partition"))
			has, cerr := os.ReadFile(filepath.Join(group, "cpuset.cpus.effective"))
			if err == nil && cerr == nil && strings.TrimSpace(string(kind)) == "root" && strings.TrimSpace(string(has)) == cpus {
				return nil
			}
		}
		return fmt.Errorf("%q", groups)
	})
	all := list(t, cpus)
	for _, other := range []string{"noisy", "late"} {
		for _, th := range threadsOf(c.processes(t, other)...) {
			if wrong(nil, all, list(t, th.allowed)) {
				t.Errorf("without the container of %s: a thread of %s may use CPUs %s", name, other, th.allowed)
			}
		}
	}
	goOn()
	c.until(t, name+" is started again", func() error {
		if now := c.processesNow(name); len(now) == 0 || now[0] == first[0] {
			return fmt.Errorf("processes %v", now)
		}
		return nil
	})
	c.ready(t, name)
}

// source is what isolane watch found on a CPU of a lane.
type source struct {
	CPU                int
	Kind, Name, Cgroup string
}

// watched has the kernel say for a while, by the tracepoints that isolane watch attaches to, what runs on the lanes'
// CPUs beside the lanes' own threads. There is an error if lanes come or go, or there is none. With drift the sources
// come with the *exec.ExitError of isolane watch.
func (c *cluster) watched(t *testing.T, length time.Duration) ([]source, error) {
	t.Helper()
	out, ended := exec.CommandContext(t.Context(), c.programs+"/isolane", "watch", "--for", length.String(), "-o", "json").Output()
	if ended != nil && !drifted(ended) {
		return nil, fmt.Errorf("isolane watch: %w: %s", ended, out)
	}
	var last struct {
		Evidence   string
		SinceStart struct{ Sources []source }
	}
	var err error
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil; {
		err = d.Decode(&last)
	}
	if !errors.Is(err, io.EOF) || last.Evidence != "bpf" {
		return nil, fmt.Errorf("isolane watch: evidence %q, %w: %s", last.Evidence, err, out)
	}
	return last.SinceStart.Sources, ended
}

// drifted reports whether isolane watch has found that a setting of the lanes is not as they want it.
func drifted(err error) bool {
	exit, is := errors.AsType[*exec.ExitError](err)
	return is && exit.ExitCode() == 3
}

// nobodyElse has the kernel say that no user thread but the lanes' own runs on the lanes' CPUs.
func (c *cluster) nobodyElse(t *testing.T) {
	t.Helper()
	const length = 10 * time.Second
	sources, err := c.watched(t, length)
	t.Logf("isolane watch for %v: %d sources", length, len(sources))
	if err != nil || len(sources) == 0 {
		t.Errorf("%v, %d sources", err, len(sources))
	}
	for _, s := range sources {
		if s.Kind == "task" {
			t.Errorf("a user thread on a lane's CPU: %+v", s)
		}
	}
}

// partitions reports whether a container's cgroup can be a partition: cgroup v2, Linux 6.7 and later.
func partitions() bool {
	_, err := os.Stat("/sys/fs/cgroup/cpuset.cpus.isolated")
	return err == nil
}

// disturb makes systemd read its units again, and write the settings of a container's scope.
func (c *cluster) disturb(t *testing.T, pod string, look func(string)) {
	t.Helper()
	group, err := c.cgroupOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	systemctl(t, "daemon-reload")
	look("after a daemon-reload")
	systemctl(t, "daemon-reexec")
	// The second has it write cpuset.cpus too.
	systemctl(t, "set-property", "--runtime", filepath.Base(group), "CPUWeight=150", "AllowedMemoryNodes=0")
	look("after a daemon-reexec and set-property")
}

// Older kernels with cgroup v2 make no partition of a container's cgroup. The lane nevertheless exists, with
// its own limits and statistics, and all other containers are kept off its CPUs by their cpusets: those that
// ran before, those that came since and, once the node part is back, those that began while it was away. The
// claim says so.
func TestOlderKernel(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil || partitions() {
		t.Skip("skipped: needs cgroup v2 without partitions below others (before Linux 6.7)")
	}
	needCPUs(t, 3)
	c := share(t)
	c.run(t)
	c.spin(t, "noisy", "", "6")
	c.spin(t, "early", "requests: {cpu: 10m}", "1")
	before := c.cgroups(t)
	p := pod{name: "edge", claims: map[string]string{"lane": request(`{cpus: "2"}`, "{}")},
		all: []container{{name: "main", claim: "lane", cpus: "2", more: ", limits: {memory: 64Mi}", args: `"4"`},
			{name: "sidecar", cpus: "10m", args: `"1"`}}}
	c.applyPod(t, p)
	c.ready(t, "edge")
	cpus := c.cpusOf(t, "edge/main")
	used := 0
	look := func(when string, others ...string) {
		t.Helper()
		group, err := c.cgroupOf("edge/main")
		if err != nil {
			t.Fatal(when, err)
		}
		text := func(name string) string {
			data, rerr := os.ReadFile(filepath.Join(group, name))
			if rerr != nil {
				t.Error(when, rerr)
			}
			return strings.TrimSpace(string(data))
		}
		var now int
		if _, err = fmt.Sscanf(text("cpu.stat"), "usage_usec %d", &now); err != nil {
			t.Error(when, err)
		}
		t.Logf("%s: cpuset.cpus.partition %s, cpuset.cpus.effective %s, memory.max %s, memory.current %s, usage_usec %d", when,
			text("cpuset.cpus.partition"), text("cpuset.cpus.effective"), text("memory.max"), text("memory.current"), now)
		if text("cpuset.cpus.partition") != "member" || text("cpuset.cpus.effective") != cpus || text("memory.max") != "67108864" ||
			text("memory.current") == "0" || now <= used {
			t.Errorf("%s: expected CPUs %s, the container's limit, and what it uses in its own cgroup, %s", when, cpus, group)
		}
		used = now
		if ran := c.eachApart(t, map[string]string{"edge/main": cpus}, append(others, "noisy", "early", "edge/sidecar")...); strings.Count(ran["edge/main"], " ") != 1 {
			t.Errorf("%s: four busy threads ran on CPUs %s, expected both", when, ran["edge/main"])
		}
	}
	look("in force")
	claim := c.kubectl(t, "", "describe", "resourceclaim")
	if !strings.Contains(claim, "CPUs "+cpus+", memory of NUMA node 0, cpuset (other containers are kept out by Isolane): ") {
		t.Errorf("kubectl describe resourceclaim:\n%s", claim)
	}
	c.spin(t, "beside", "requests: {cpu: 10m}", "2")
	look("with a pod that came since", "beside")
	c.kill(t)
	look("without the node part", "beside")
	c.spin(t, "late", "requests: {cpu: 10m}", "2")
	c.run(t)
	look("with the node part again", "beside", "late")
	used = 0
	c.restart(t, "edge/main")
	look("after a restart of the container", "beside", "late")
	c.deletePod(t, p)
	c.until(t, "the lane is released", c.noLanes)
	for _, pod := range []string{"beside", "late"} {
		c.until(t, pod+" has the lane's CPUs", func() error { return c.mayUse(t, pod, cpus) })
	}
	c.kubectl(t, "", "delete", "pod", "beside", "late", "--wait")
	c.until(t, "cgroups are as before", func() error {
		if now := c.cgroups(t); now != before {
			return fmt.Errorf("before:\n%s\nnow:\n%s", before, now)
		}
		return nil
	})
}

// cgroups are all of cgroup v2, with what their files say of cpusets. Those with processes whose CPUs were set may name all
// of them where they named none, for the kernel empties no such list: two units of systemd, and with an older kernel any.
// Two slices of systemd have an empty cgroup.
func (c *cluster) cgroups(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	possible, err := os.ReadFile("/sys/devices/system/cpu/possible")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir("/sys/fs/cgroup", func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || bedtest.Systemd() && slices.Contains([]string{"machine.slice", "user.slice"}, d.Name()) {
			return err
		}
		text.WriteString(dir)
		for _, name := range []string{"cpuset.cpus", "cpuset.cpus.exclusive", "cpuset.cpus.effective", "cpuset.cpus.partition", "cgroup.subtree_control"} {
			if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil { // the root has no cpuset.cpus
				value := strings.TrimSpace(string(data))
				unit := bedtest.Systemd() && slices.Contains([]string{"init.scope", "system.slice"}, d.Name())
				if (unit || !partitions()) && name == "cpuset.cpus" && value == strings.TrimSpace(string(possible)) {
					value = ""
				}
				text.WriteString(" " + name + "=" + value)
			}
		}
		text.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// A lane's container has its hugepages, from the node's pool.
func TestHugepages(t *testing.T) {
	pool := "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	before, err := os.ReadFile(pool)
	if err != nil {
		t.Skip("skipped: needs hugepages of 2 MiB: ", err)
	}
	if err = endShared(); err != nil { // first, as it compares the host, pool included
		t.Error(err)
	}
	if err = os.WriteFile(pool, []byte("8"), 0o644); err != nil { // before the kubelet counts them
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(pool, before, 0o644); err != nil {
			t.Error(err)
		}
	})
	c := start(t, bed.Options{})
	c.run(t)
	p := pod{name: "huge", claims: map[string]string{"lane": request(`{cpus: "1", hugepages2Mi: 4Mi}`, "{}")},
		all: []container{{name: "main", claim: "lane", cpus: "1", args: `"--hugepages", "2", "1"`,
			more: `, limits: {memory: 64Mi, hugepages-2Mi: 4Mi}`}}}
	c.applyPod(t, p)
	c.ready(t, "huge")
	c.apart(t, c.cpusOf(t, "huge"), "huge")
	if log := c.kubectl(t, "", "logs", "huge"); !strings.Contains(log, "2 hugepages\n") {
		t.Errorf("kubectl logs huge:\n%s", log)
	}
	claim := c.kubectl(t, "", "describe", "resourceclaim")
	if !strings.Contains(claim, "2 hugepages of 2Mi on node 0") {
		t.Errorf("kubectl describe resourceclaim:\n%s", claim)
	}
	c.deletePod(t, p)
	c.until(t, "the lane is released", c.noLanes)
	p.name, p.all[0].more = "none", "" // the kubelet would let it have none
	c.applyPod(t, p)
	c.says(t, "none", "reason=Refused", "container main: resources.limits.hugepages-2Mi: expected 4Mi or more")
	c.deletePod(t, p)
}
