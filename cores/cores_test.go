package cores

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
	"isolane.dev/isolane/test/golden"
)

// request places a lane on a machine.
func request(t *testing.T, h host.Host, name, spec string) Request {
	t.Helper()
	lanes, err := lane.Parse("test", strings.NewReader("apiVersion: isolane.dev/v1alpha1\nkind: Lane\nmetadata: {name: "+name+"}\nspec: "+spec))
	if err != nil {
		t.Fatal(err)
	}
	p, err := solver.Solve(h, plan.Placement{}, lanes)
	if err != nil {
		t.Fatal(err)
	}
	h = inForce(h, p)
	return Request{Lane: p.Lanes[0], Lanes: p.Lanes, Housekeeping: p.Housekeeping, Cores: h.CoresOf(h.Online()), MemoryNodes: h.MemoryNodes()}
}

// inForce returns the machine as other processes see it while the lanes are in force: without the lanes'
// CPUs.
func inForce(h host.Host, p plan.Placement) host.Host {
	h.CPUs = slices.Clone(h.CPUs)
	for i := range h.CPUs {
		allowed := p.Housekeeping.Contains(h.CPUs[i].ID)
		h.CPUs[i].Allowed = &allowed
	}
	return h
}

// All applications, for lanes in force on a real machine and on one with CPUs beyond DPDK's 128.
func TestWrite(t *testing.T) {
	vector, err := host.Read(hosttest.Snapshot(t, "hwloc/32intel64-2p8co2t+8ve.tar.bz2"))
	if err != nil {
		t.Fatal(err)
	}
	large := hosttest.Machine{Packages: 2, CoresPerPackage: 64, ThreadsPerCore: 2}.Host(t)
	var b strings.Builder
	for _, r := range []Request{
		request(t, vector, "router", "{cpus: {count: 4, smt: pack}, memory: {size: 1Gi, hugepages: {2Mi: 512Mi}}, roles: {main: 1, worker: 3}, "+
			"network: {path: express, device: enp96s0f0, queues: 4}, scheduling: {policy: fifo, priority: 50}}"),
		request(t, vector, "single", "{cpus: {count: 2, smt: isolate}, network: {device: enp96s0f0, queues: 2}}"),
		request(t, large, "high", "{cpus: {count: 4, smt: pack}, near: {numaNode: 1}}"),
	} {
		if r.Lane.Name == "router" {
			r.VhostUser = &VhostUser{"/run/isolane-vhost/router/vhost.sock", "02:15:00:00:00:01", 1500}
		}
		for _, a := range Apps() {
			fmt.Fprintf(&b, "-- %s for %s --\n%s", r.Lane.Name, a.Name, write(t, a.Name, r))
		}
	}
	golden.Check(t, "testdata/all.txt", []byte(b.String()))
}

// Functions that the workload drives itself are passed to the applications that can use them.
func TestOwnFunctions(t *testing.T) {
	l := plan.Lane{Name: "a", CPUs: cpuset.Of(1), Devices: []plan.Device{{Address: "0000:31:00.0", VFs: []int{2, 3}, Virtual: []string{"0000:31:11.2", "0000:31:11.4"}}}}
	for app, want := range map[string]string{"dpdk": " -a 0000:31:11.2 -a 0000:31:11.4\n", "qemu": ".2 -device vfio-pci,host=0000:31:11.4\n",
		"libvirt": "<address domain='0x0000' bus='0x31' slot='0x11' function='0x4'/>"} {
		r := Request{Lane: l, Housekeeping: cpuset.Of(0), Cores: []cpuset.Set{cpuset.MustParse("0-1")}}
		if text, err := textFor(app, r); err != nil || strings.Contains(text, want) {
			t.Errorf("a lane with a network device: %s: %s, %v", app, text, err)
		}
		r.Lane.Spec.Network.Driver = "vfio-pci"
		if text, err := textFor(app, r); err != nil || !strings.Contains(text, want) {
			t.Errorf("%s: %s, %v", app, text, err)
		}
	}
}

// A tap is in the lane's namespace: QEMU gets it. A machine of libvirt has its own one, which attach moves.
func TestTap(t *testing.T) {
	r := Request{Lane: plan.Lane{Name: "vm", CPUs: cpuset.Of(1)}, Housekeeping: cpuset.Of(0), Cores: []cpuset.Set{cpuset.MustParse("0-1")},
		Tap: &Tap{"tap0", "02:15:00:00:00:01", 1400, true}}
	const want = " -netdev tap,id=tap,ifname=tap0,script=no,downscript=no,vhost=on -device virtio-net-pci,netdev=tap,mac=02:15:00:00:00:01,host_mtu=1400\n"
	if text, err := textFor("qemu", r); err != nil || !strings.Contains(text, want) {
		t.Errorf("%s, %v", text, err)
	}
	const device = "<interface type='ethernet'>\n    <mac address='02:15:00:00:00:01'/>\n    <model type='virtio'/>\n    <mtu size='1400'/>\n  </interface>"
	for _, r.InForce = range []bool{false, true} { // then its threads are pinned when it comes to its lane
		if text, err := textFor("libvirt", r); err != nil || !strings.Contains(text, device) || strings.Contains(text, "cputune") == r.InForce {
			t.Errorf("in force %v: %s, %v", r.InForce, text, err)
		}
	}
}

// Without KVM a vhost-user device has no MSI-X, because QEMU 7.2 then crashes; a tap's device has it.
func TestEmulated(t *testing.T) {
	r := Request{Lane: plan.Lane{Name: "vm", CPUs: cpuset.Of(1)}, Housekeeping: cpuset.Of(0), Cores: []cpuset.Set{cpuset.MustParse("0-1")},
		VhostUser: &VhostUser{"/vhost.sock", "02:15:00:00:00:01", 1500}}
	const device, without = ",host_mtu=1500", ",host_mtu=1500,vectors=0\n"
	if text, err := textFor("qemu", r); err != nil || !strings.Contains(text, device+"\n") || strings.Contains(text, "vectors") {
		t.Errorf("%s, %v", text, err)
	}
	r.Emulated = true
	if text, err := textFor("qemu", r); err != nil || !strings.Contains(text, without) || !strings.Contains(text, "# vectors=0: no /dev/kvm") {
		t.Errorf("%s, %v", text, err)
	}
	r.VhostUser, r.Tap = nil, &Tap{"tap0", "02:15:00:00:00:01", 1400, true}
	if text, err := textFor("qemu", r); err != nil || strings.Contains(text, "vectors") {
		t.Errorf("%s, %v", text, err)
	}
}

// A CPU that the application would lack is an error. Numbers that count from zero are positions in the
// application's cpuset.
func TestGranted(t *testing.T) {
	r := Request{Lane: plan.Lane{Name: "a", CPUs: cpuset.MustParse("4-5")}, Granted: cpuset.MustParse("3,5-9"), Cores: []cpuset.Set{cpuset.MustParse("0-9")}}
	if _, err := textFor("vpp", r); err == nil || !strings.Contains(err.Error(), "may not use 4: its cpuset is 3,5-9") {
		t.Errorf("got %v", err)
	}
	r.Granted = cpuset.MustParse("3-9")
	if text, err := textFor("vpp", r); err != nil || !strings.Contains(text, "cpu { main-core 1 relative corelist-workers 2 }") {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := textFor("word", r); err == nil || !strings.Contains(err.Error(), "expected one of dpdk, kubelet") {
		t.Errorf("got %v", err)
	}
	r.Lane.CPUs = cpuset.Of(4)
	if _, err := textFor("ovs-dpdk", r); err == nil {
		t.Error("one CPU is not enough for OVS-DPDK")
	}
	if text, _ := textFor("lxd", r); !strings.Contains(text, `limits.cpu: "4-4"`) { // "4" would be four CPUs
		t.Errorf("got %s", text)
	}
}

// What cannot be written is an error with the reason.
func TestRefused(t *testing.T) {
	all := cpuset.MustParse("0-127")
	r := func(cpus string) Request {
		a := plan.Lane{Name: "a", CPUs: cpuset.MustParse(cpus), MemoryNodes: cpuset.Of(0)}
		return Request{Lane: a, Lanes: []plan.Lane{a}, Housekeeping: all.Difference(a.CPUs), Cores: []cpuset.Set{all}, MemoryNodes: cpuset.Of(0)}
	}
	elsewhere, full, nodes := r("1"), r("1"), r("1")
	elsewhere.Cores = []cpuset.Set{cpuset.Of(0)}
	full.Housekeeping = cpuset.Set{}
	nodes.MemoryNodes = cpuset.Of(0, 73)
	for _, c := range []struct {
		r         Request
		app, want string // "": can be written
	}{
		{r(""), "openmp", "lane a has no CPUs"},
		{elsewhere, "qemu", "of these 1 are not online on this machine, which has 0: plan it again"},
		{full, "qemu", "no CPU is left for housekeeping"},
		{full, "libvirt", "no CPU is left for housekeeping"},
		{r("1-127"), "kubelet", "beside the boot core no CPU is left for pods"},
		{r("1-63"), "vpp", ""},
		{r("1-64"), "vpp", "lane a has 64 CPUs, VPP takes 63: main and 62 workers"},
		{nodes, "vpp", "memory on node 73: VPP starts only where the highest is 31 or less"},
	} {
		text, err := textFor(c.app, c.r)
		if c.want == "" && err != nil || c.want != "" && (err == nil || text != "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s for %s: %q, %v, want %q", c.app, c.r.Lane.CPUs, text, err, c.want)
		}
	}
}

// The kubelet stays off everything that lanes own, whichever lane is asked for.
func TestKubelet(t *testing.T) {
	v := plan.Lane{Name: "v", CPUs: cpuset.MustParse("2-3"), Idle: cpuset.MustParse("10-11")}
	w := plan.Lane{Name: "w", CPUs: cpuset.MustParse("4,12")}
	r := Request{Lane: v, Lanes: []plan.Lane{v, w}}
	for id := range 8 {
		r.Cores = append(r.Cores, cpuset.Of(id, id+8))
	}
	text := write(t, "kubelet", r)
	r.Lane = w
	if !strings.Contains(text, `reservedSystemCPUs: "0,2-4,8,10-12"`) || !strings.Contains(text, "Pods get CPUs 1,5-7,9,13-15.") || text != write(t, "kubelet", r) {
		t.Error(text)
	}
}

// If the list of online CPUs is longer than VPP reads, numbers beyond its end are not CPUs for VPP.
func TestVPPLongList(t *testing.T) {
	var online []cpuset.Set
	for id := range 128 {
		online = append(online, cpuset.Of(8*id)) // POWER with SMT switched off
	}
	for cpus, want := range map[string]string{
		"8,16":    "cpu {\n  main-core 8\n  corelist-workers 16\n}\n",
		"800,808": ": 800,808\ncpu { main-core 0 relative corelist-workers 1 }\n",
	} {
		a := plan.Lane{Name: "a", CPUs: cpuset.MustParse(cpus)}
		text := write(t, "vpp", Request{Lane: a, Cores: online})
		if !strings.Contains(text, want) || cpus == "800,808" && strings.Contains(text, "main-core 800") {
			t.Errorf("%s: %s", cpus, text)
		}
	}
}

// real returns a lane on this machine, with two CPUs that real programs can use.
func real(t *testing.T, programs ...string) Request {
	t.Helper()
	unpacked, err := filepath.Abs("../bin/programs/usr")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", os.Getenv("PATH")+":"+unpacked+"/bin:"+unpacked+"/sbin:"+unpacked+"/lib/openvswitch-switch:/usr/sbin:/usr/lib/openvswitch-switch")
	for _, p := range programs {
		hosttest.Need(t, hosttest.Program(p), hosttest.CPUs(2))
	}
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	cpus := h.Usable().Slice()[:2]
	return Request{Lane: plan.Lane{Name: "real", CPUs: cpuset.Of(cpus...), MemoryNodes: cpuset.Of(0), Memory: []plan.Memory{{Node: 0, Bytes: 64 << 20}},
		Spec: lane.Spec{CPUs: lane.CPUs{Count: 2}, Network: lane.Network{Device: "dpdk0", Queues: 2}}},
		Housekeeping: cpuset.Of(cpus[0]), Cores: h.CoresOf(h.Online()), MemoryNodes: cpuset.Of(0)}
}

func write(t *testing.T, app string, r Request) string {
	t.Helper()
	text, err := textFor(app, r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// output runs a program to its end, with typed as its input.
func output(t *testing.T, typed string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(typed)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestNginx(t *testing.T) {
	r := real(t, "nginx")
	dir := t.TempDir()
	conf := filepath.Join(dir, "nginx.conf")
	text := write(t, "nginx", r) + "pid " + dir + "/pid;\nevents {}\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := output(t, "", "nginx", "-t", "-c", conf, "-p", dir, "-e", "stderr"); !strings.Contains(out, "test is successful") {
		t.Error(out)
	}
}

func TestTaskset(t *testing.T) {
	r := real(t, "taskset", "numactl")
	args := append(strings.Fields(write(t, "taskset", r)), "sh", "-c", "grep Cpus_allowed_list /proc/self/status")
	if out := output(t, "", args[0], args[1:]...); strings.Fields(out)[1] != r.Lane.CPUs.String() {
		t.Errorf("%s runs on %s", args, out)
	}
}

func TestLibvirtSchema(t *testing.T) {
	const schema = "/usr/share/libvirt/schemas/domain.rng"
	r := real(t, "xmllint")
	r.Lane.Spec.Scheduling = lane.Scheduling{Policy: "fifo", Priority: 50}
	r.Lane.Hugepages = []plan.Hugepages{{Node: 0, PageBytes: 2 << 20, Pages: 32}}
	own := r
	own.Lane.Spec.Network.Driver, own.Lane.Devices = "vfio-pci", []plan.Device{{Virtual: []string{"0000:31:11.4"}}}
	r.VhostUser = &VhostUser{"/run/isolane-vhost/real/vhost.sock", "02:15:00:00:00:01", 1500}
	hosttest.Need(t, func() string {
		if _, err := os.Stat(schema); err != nil {
			return "needs libvirt's schema: " + err.Error()
		}
		return ""
	})
	file := filepath.Join(t.TempDir(), "domain.xml")
	for _, r := range []Request{r, own} {
		domain := "<domain type='kvm'><name>real</name><memory unit='MiB'>64</memory>" + write(t, "libvirt", r) +
			"<os><type arch='x86_64'>hvm</type></os></domain>"
		if err := os.WriteFile(file, []byte(domain), 0o600); err != nil {
			t.Fatal(err)
		}
		output(t, "", "xmllint", "--noout", "--relaxng", schema, file)
	}
}

// QEMU accepts the options, and has the right number of virtual CPUs, named as in the comments.
func TestQEMU(t *testing.T) {
	r := real(t, "qemu-system-x86_64")
	options, _, _ := strings.Cut(write(t, "qemu", r), "\n")
	args := append(strings.Fields(options), "-machine", "q35", "-accel", "tcg", "-nodefaults", "-display", "none", "-S", "-qmp", "stdio")
	out := output(t, `{"execute":"qmp_capabilities"}{"execute":"query-cpus-fast"}{"execute":"quit"}`, "qemu-system-x86_64", args...)
	if n := strings.Count(out, `"cpu-index"`); n != 2 || !strings.Contains(out, `"node-id": 0`) {
		t.Errorf("%d virtual CPUs: %s", n, out)
	}
}

// DPDK starts its threads where the options say.
func TestTestpmd(t *testing.T) {
	r := real(t, "dpdk-testpmd")
	args := append(strings.Fields(write(t, "dpdk", r)), "--no-huge", "-m", "64", "--no-pci", "--no-telemetry", "--no-shconf",
		"--vdev=net_null0", "--", "-i", "--total-num-mbufs=2048")
	out := output(t, "show config fwd\nquit\n", "dpdk-testpmd", args...)
	if want := fmt.Sprintf("Logical Core %d", r.Lane.CPUs.Last()); !strings.Contains(out, want) {
		t.Errorf("no %q in %s", want, out)
	}
}

// Open vSwitch puts a thread and the queues of a port where the commands say. Its datapath is the one for
// tests, which has only the two CPUs.
func TestOpenVSwitch(t *testing.T) {
	r := real(t, "ovs-vsctl", "ovs-appctl", "ovsdb-server", "ovsdb-tool", "ovs-vswitchd")
	dir := t.TempDir()
	schema := "../bin/programs/usr/share/openvswitch/vswitch.ovsschema"
	if _, err := os.Stat(schema); err != nil {
		schema = "/usr/share/openvswitch/vswitch.ovsschema"
	}
	output(t, "", "ovsdb-tool", "create", dir+"/db", schema)
	start(t, dir, "ovsdb-server", dir+"/db", "--remote=punix:"+dir+"/sock", "--unixctl="+dir+"/ctl")
	db := "--db=unix:" + dir + "/sock"
	output(t, "", "ovs-vsctl", db, "--retry", "--timeout=20", "--no-wait", "init")
	start(t, dir, "ovs-vswitchd", "unix:"+dir+"/sock", "--enable-dummy=override", "--disable-system", "--dummy-numa=0,0", "--unixctl="+dir+"/vctl")
	output(t, "", "ovs-vsctl", db, "--timeout=20", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy",
		"--", "add-port", "br0", "dpdk0", "--", "set", "Interface", "dpdk0", "type=dummy-pmd")
	r.Lane.CPUs = cpuset.MustParse("0-1") // of the dummy datapath
	r.Lane.Roles = map[string]cpuset.Set{"pmd": r.Lane.CPUs}
	output(t, strings.ReplaceAll(strings.ReplaceAll(write(t, "ovs-dpdk", r), "--no-wait", ""), "ovs-vsctl", "ovs-vsctl --timeout=20 "+db), "sh", "-e")
	got := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) && !strings.Contains(got, "queue-id:  1"); {
		got = output(t, "", "ovs-appctl", "-t", dir+"/vctl", "--timeout=20", "dpif-netdev/pmd-rxq-show")
	}
	if !strings.Contains(got, "core_id 0:\n  isolated : true\n") ||
		!strings.Contains(got, "core_id 1:\n  isolated : false\n") { // it serves the ports of workloads
		t.Error(got)
	}
}

// start runs a daemon until the test ends.
func start(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...) // ended below
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+dir, "OVS_LOGDIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}
