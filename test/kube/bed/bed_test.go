package bed_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/test/kube/bed"
	"isolane.dev/isolane/test/kube/bed/bedtest"
	"isolane.dev/isolane/test/kube/fold"
	"isolane.dev/isolane/test/kube/topology"
)

// hostAsBefore compares the host after the test with the host before. dir will be the folder of its bed.
func hostAsBefore(t *testing.T, dir *string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "fingerprint")
	build := exec.Command("go", "build", "-o", program, "./test/fingerprint")
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build ./test/fingerprint: %v: %s", err, out)
	}
	before, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "before")
	if err = os.WriteFile(file, before, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if changes, err := exec.Command(program, file).CombinedOutput(); err != nil {
			t.Errorf("the host is not as before: %v\n%s", err, changes)
		}
		if mounts := read(t, "/proc/self/mounts"); strings.Contains(mounts, "kube") {
			t.Errorf("left on the host: mounts of a bed\n%s", mounts)
		}
		number := filepath.Base(*dir)
		for _, pattern := range []string{*dir, "/sys/fs/cgroup/*/kube-bed" + number,
			"/sys/fs/cgroup/kube-bed" + number, "/var/lib/kubelet", "/run/containerd"} {
			if left, err := filepath.Glob(pattern); err != nil || len(left) > 0 {
				t.Errorf("left on the host: %v %v", left, err)
			}
		}
	})
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

const pod = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 1
  nodeName: %[2]s
  containers: [{name: c, image: "` + bed.Image + `", imagePullPolicy: Never}]
`

func kubectl(t *testing.T, b *bed.Bed, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := b.Kubectl(ctx, stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// run brings a pod to Ready.
func run(t *testing.T, b *bed.Bed, name, node string) {
	t.Helper()
	from := time.Now()
	kubectl(t, b, fmt.Sprintf(pod, name, node), "apply", "-f", "-")
	kubectl(t, b, "", "wait", "--for=condition=Ready", "pod/"+name, "--timeout=60s")
	t.Logf("pod %s: applied to Ready in %.1f s", name, time.Since(from).Seconds())
}

// says waits until a pod has written all these words to its log: it is ready before it has written anything.
func says(t *testing.T, b *bed.Bed, name string, want ...string) {
	t.Helper()
	log := ""
	missing := func(text string) bool { return !strings.Contains(log, text) }
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		log = kubectl(t, b, "", "logs", name)
		if at := slices.IndexFunc(want, missing); at < 0 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("log of %s: expected %q in\n%s", name, want[at], log)
		}
	}
}

func TestBed(t *testing.T) {
	bedtest.Need(t)
	var dir string
	hostAsBefore(t, &dir)
	b := bedtest.Start(t, bed.Options{Nodes: make([]bed.NodeOptions, 2)})
	dir = b.Dir
	for _, n := range b.Nodes {
		run(t, b, "on-"+n.Name, n.Name)
		says(t, b, "on-"+n.Name, "Cpus_allowed_list:", "HOSTNAME=on-"+n.Name, "server reached from 198.")
		ids := strings.Fields(kubectl(t, b, "", "get", "pod", "on-"+n.Name, "-o",
			"jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID}"))
		id := strings.TrimPrefix(ids[1], "containerd://")
		group, err := n.ContainerCgroup(ids[0], id)
		if err != nil {
			t.Fatal(err)
		}
		procs := filepath.Join(group, "cgroup.procs")
		if read(t, procs) == "" {
			t.Errorf("%s has no processes", procs)
		}
	}
	n := b.Nodes[0]
	for _, file := range []string{"/run/nri/nri.sock", "/var/lib/kubelet/plugins_registry", "/run/isolane"} {
		if _, err := os.Stat(n.Path(file)); err != nil {
			t.Error(err)
		}
	}
	kubectl(t, b, "", "get", "resourceslices,deviceclasses,resourceclaims") // resource.k8s.io is served
	// A command in a node has the node's name, and the host's processes.
	ask := fmt.Sprintf("hostname; cat /proc/%d/comm", os.Getpid())
	out, err := n.Command(t.Context(), "sh", "-c", ask).Output()
	if want := "n0\n" + read(t, "/proc/self/comm"); err != nil || string(out) != want {
		t.Errorf("in the node: %q %v, expected %q", out, err, want)
	}
	endure(t, b, n)
}

// endure kills the daemons of a node, and then the whole node: pods run on, or run again.
func endure(t *testing.T, b *bed.Bed, n *bed.Node) {
	t.Helper()
	for _, daemon := range []string{"kubelet", "containerd"} {
		if err := n.Signal(daemon, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	run(t, b, "after-kill", n.Name)
	volatile := n.Path("/run/volatile")
	if err := os.WriteFile(volatile, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	from := time.Now()
	if err := n.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("rebooted in %.1f s", time.Since(from).Seconds())
	if _, err := os.Stat(n.Path("/run/volatile")); err == nil {
		t.Error("/run of the node is what it was before the reboot")
	}
	run(t, b, "after-reboot", n.Name)
}

// A node may be an invented machine, on which its kubelet places pods.
func TestTopology(t *testing.T) {
	bedtest.Need(t)
	dir := t.TempDir()
	m := topology.Machine{NUMANodes: 2, CoresPerNode: 4, ThreadsPerCore: 2, MemoryPerNode: 8 << 30}
	if err := topology.Write(dir, m); err != nil {
		t.Fatal(err)
	}
	kubelet := map[string]any{"cpuManagerPolicy": "static", "reservedSystemCPUs": "0",
		"topologyManagerPolicy": "single-numa-node"}
	b := bedtest.Start(t, bed.Options{Nodes: []bed.NodeOptions{{Topology: dir, Kubelet: kubelet}}})
	const limits = `, resources: {limits: {cpu: "8", memory: 64Mi}}}]`
	guaranteed := fmt.Sprintf(strings.Replace(pod, "}]", limits, 1), "p", "n0")
	kubectl(t, b, guaranteed, "apply", "-f", "-")
	kubectl(t, b, "", "wait", "--for=condition=Ready", "pod/p", "--timeout=60s")
	asked, err := b.Nodes[0].Asked()
	if err != nil {
		t.Fatal(err)
	}
	// CPU 0 is reserved, so that only the second node has eight.
	if want := "4-7,12-15"; !slices.ContainsFunc(asked, func(r fold.Request) bool { return r.CPUs == want }) {
		t.Errorf("asked for %+v, expected a container with CPUs %s", asked, want)
	}
}

// A bed whose process was killed leaves cgroups and files, which the next bed or down clears.
func TestKilled(t *testing.T) {
	bedtest.Need(t)
	var dir string
	hostAsBefore(t, &dir)
	program := bedtest.Program(t)
	up, err := exec.Command(program, "up").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Dir(strings.TrimSpace(string(up)))
	record := read(t, filepath.Join(dir, "record.json"))
	_, rest, _ := strings.Cut(record, `"PID": `) // the first one is the owner's
	number, _, _ := strings.Cut(rest, ",")
	owner, err := strconv.Atoi(number)
	if err != nil {
		t.Fatal(record, err)
	}
	if err = unix.Kill(owner, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(program, "down").CombinedOutput()
	if want := "bed " + filepath.Base(dir) + ": is no more\n"; err != nil || string(said) != want {
		t.Errorf("down said %q, %v; expected %q", said, err, want)
	}
}

// besideBed says how the process of TestKilledTester that has a bed ends.
const besideBed = "KUBEBED_TEST_BESIDE"

// Programs of a node end with the process that has started them and the bed, also if that is killed: a test
// that takes too long, or somebody who ends it.
func TestKilledTester(t *testing.T) {
	if how := os.Getenv(besideBed); how != "" {
		startMany(t)
		if how == panics {
			go panic("as by -timeout")
		}
		select {}
	}
	bedtest.Need(t)
	var dir string
	hostAsBefore(t, &dir)
	for _, how := range []string{panics, "SIGKILL"} {
		tester := exec.Command(os.Args[0], "-test.run=^TestKilledTester$", "-test.timeout=0")
		tester.Env = append(os.Environ(), besideBed+"="+how, "TMPDIR="+t.TempDir())
		out, err := tester.StdoutPipe()
		if err == nil {
			err = tester.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines, started := bufio.NewScanner(out), 0
		for lines.Scan() {
			if where, is := strings.CutPrefix(lines.Text(), "bed in "); is {
				dir = where
			}
			if started += strings.Count(lines.Text(), "started"); started == many && how != panics {
				_ = tester.Process.Kill() // Wait says whether it did
			}
		}
		if err = tester.Wait(); err == nil || started != many {
			t.Fatalf("%s: %v, with %d of %d programs", how, err, started, many)
		}
		for end := time.Now().Add(10 * time.Second); len(stayed(t)) > 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().Before(end) {
				continue
			}
			for _, pid := range stayed(t) {
				t.Errorf("%s: process %d goes on: %v", how, pid, unix.Kill(pid, unix.SIGKILL))
			}
		}
		if said, err := exec.Command(bedtest.Program(t), "down").CombinedOutput(); err != nil {
			t.Fatalf("down: %v: %s", err, said)
		}
	}
}

// many is how many programs are started: which thread of kubebed becomes a program is chance.
const many = 20

// marked is a number that no other process has as its argument.
const marked = "987654.25"

// panics ends a test as its time limit does.
const panics = "panic"

func startMany(t *testing.T) {
	t.Helper()
	b := bedtest.Start(t, bed.Options{Nodes: []bed.NodeOptions{{}}})
	fmt.Println("bed in " + filepath.Dir(b.Kubeconfig))
	for range many {
		cmd := b.Nodes[0].Command(context.WithoutCancel(t.Context()), "sleep", marked)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("started")
	}
}

// stayed returns the processes of startMany.
func stayed(t *testing.T) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if args, err := os.ReadFile(file); err == nil && strings.Contains(string(args), marked) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}
