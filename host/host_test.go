package host_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
)

// groups returns the sets of online CPUs that have the same number, sorted by their lowest CPU.
func groups(h host.Host, number func(host.CPU) *int) []string {
	by := map[int]cpuset.Set{}
	for _, c := range h.CPUs {
		if n := number(c); n != nil {
			by[*n] = by[*n].Union(cpuset.Of(c.ID))
		}
	}
	var sets []cpuset.Set
	for _, s := range by {
		sets = append(sets, s)
	}
	slices.SortFunc(sets, func(a, b cpuset.Set) int { return a.First() - b.First() })
	var texts []string
	for _, s := range sets {
		texts = append(texts, s.String())
	}
	return texts
}

func coreOf(c host.CPU) *int    { return c.Core }
func l2Of(c host.CPU) *int      { return c.L2 }
func l3Of(c host.CPU) *int      { return c.L3 }
func dieOf(c host.CPU) *int     { return c.Die }
func packageOf(c host.CPU) *int { return c.Package }
func nodeOf(c host.CPU) *int    { return c.NUMANode }

// check checks what must be true of any host.
func check(t *testing.T, h host.Host) {
	t.Helper()
	for i, c := range h.CPUs {
		if i > 0 && h.CPUs[i-1].ID >= c.ID {
			t.Errorf("CPU %d stands after CPU %d", c.ID, h.CPUs[i-1].ID)
		}
		if !c.Online {
			for _, of := range []func(host.CPU) *int{coreOf, l2Of, l3Of, dieOf, packageOf, nodeOf} {
				if of(c) != nil {
					t.Errorf("CPU %d is offline and has a place: %+v", c.ID, c)
				}
			}
			continue
		}
		siblings := h.Siblings(c.ID)
		if !siblings.Contains(c.ID) || !siblings.IsSubsetOf(h.Online()) {
			t.Errorf("siblings of CPU %d: %s, online %s", c.ID, siblings, h.Online())
		}
		if c.Core != nil && (*c.Core != siblings.First() || siblings.Slice()[*c.Thread] != c.ID) {
			t.Errorf("CPU %d: core %d, thread %d, siblings %s", c.ID, *c.Core, *c.Thread, siblings)
		}
	}
	var all cpuset.Set
	for _, core := range h.Cores() {
		if core.Intersects(all) {
			t.Errorf("core %s overlaps another", core)
		}
		all = all.Union(core)
	}
	if all != h.Usable() {
		t.Errorf("cores hold %s, usable are %s", all, h.Usable())
	}
	if _, err := json.Marshal(h); err != nil {
		t.Error(err)
	}
}

func TestThisMachine(t *testing.T) {
	h, err := host.Read(host.Live())
	if err != nil {
		t.Fatal(err)
	}
	check(t, h)
	var affinity unix.CPUSet
	var uts unix.Utsname
	if err := errorsOf(unix.SchedGetaffinity(os.Getpid(), &affinity), unix.Uname(&uts)); err != nil {
		t.Fatal(err)
	}
	if got := h.Usable(); got.Len() != affinity.Count() || got.Len() != runtime.NumCPU() {
		t.Errorf("usable are %s; the scheduler says %d, the runtime %d", got, affinity.Count(), runtime.NumCPU())
	}
	if got, want := h.Kernel.Release, unix.ByteSliceToString(uts.Release[:]); got != want {
		t.Errorf("release %q, want %q", got, want)
	}
	if h.MemoryBytes == 0 || len(h.Interrupts) == 0 || h.Kernel.Cgroup.Version == "" || h.Kernel.Cmdline == "" {
		t.Errorf("memory %d, %d interrupts, cgroup %+v, command line %q", h.MemoryBytes, len(h.Interrupts),
			h.Kernel.Cgroup, h.Kernel.Cmdline)
	}
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestGeneratedMachines(t *testing.T) {
	for name, c := range map[string]struct {
		machine hosttest.Machine
		of      func(host.CPU) *int
		want    []string
	}{
		"two nodes with SMT: cores": {hosttest.Machine{Packages: 2, CoresPerPackage: 2, ThreadsPerCore: 2}, coreOf,
			[]string{"0,4", "1,5", "2,6", "3,7"}},
		"two nodes with SMT: nodes": {hosttest.Machine{Packages: 2, CoresPerPackage: 2, ThreadsPerCore: 2}, nodeOf,
			[]string{"0-1,4-5", "2-3,6-7"}},
		"two nodes a package: packages": {hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 1,
			NodesPerPackage: 2}, packageOf, []string{"0-3", "4-7"}},
		"two nodes a package: nodes": {hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 1,
			NodesPerPackage: 2}, nodeOf, []string{"0-1", "2-3", "4-5", "6-7"}},
		"several L3 a package": {hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2,
			CoresPerL3: 2}, l3Of, []string{"0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"}},
		"hybrid: cores": {hosttest.Machine{Packages: 1, CoresPerPackage: 2, EfficiencyCores: 4, ThreadsPerCore: 2},
			coreOf, []string{"0,6", "1,7", "2", "3", "4", "5"}},
		"hybrid: L2": {hosttest.Machine{Packages: 1, CoresPerPackage: 2, EfficiencyCores: 4, ThreadsPerCore: 2},
			l2Of, []string{"0,6", "1,7", "2-5"}},
		"offline siblings: cores": {hosttest.Machine{Packages: 1, CoresPerPackage: 3, ThreadsPerCore: 2,
			Offline: cpuset.MustParse("1,3")}, coreOf, []string{"0", "2,5", "4"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.machine.Host(t)
			check(t, h)
			if got := groups(h, c.of); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	files := hosttest.Machine{Packages: 1, CoresPerPackage: 1, EfficiencyCores: 1, ThreadsPerCore: 2,
		Allowed: cpuset.Of(0, 2)}.FS()
	want := func(kinds string) {
		t.Helper()
		h, err := host.Read(files)
		got := ""
		for _, c := range h.CPUs {
			got += fmt.Sprintf("%d %s %v,", c.ID, c.Kind, *c.Allowed)
		}
		if err != nil || got != kinds {
			t.Errorf("got %q, %v; want %q", got, err, kinds)
		}
	}
	want("0 performance true,1 efficiency false,2 performance true,")
	delete(files, "sys/devices/cpu_core/cpus")
	delete(files, "sys/devices/cpu_atom/cpus") // cores with and without SMT are not alike, but which is which?
	want("0  true,1  false,2  true,")
}

// TestContradictions has a machine whose files contradict each other: nothing is made up, and each
// contradiction becomes a warning.
func TestContradictions(t *testing.T) {
	files := hosttest.Machine{Packages: 2, CoresPerPackage: 2, ThreadsPerCore: 2}.FS()
	put := func(path, text string) { files["sys/devices/system/"+path] = &fstest.MapFile{Data: []byte(text)} }
	put("cpu/cpu0/topology/thread_siblings_list", "0,1\n")       // CPU 4 says 0,4
	put("cpu/cpu2/topology/thread_siblings_list", "6\n")         // not even CPU 2 itself
	put("cpu/cpu3/cache/index3/shared_cpu_list", "7-3\n")        // descending; CPU 7 and others have a valid list
	put("cpu/cpu3/topology/physical_package_id", "0\n")          // the number of the other package
	put("node/node1/cpulist", "1,2-3,6-7\n")                     // CPU 1 is in node 0 too
	put("cpu/cpu5/cache/index2/level", "-1\n")                   // the kernel's word for unknown
	put("cpu/cpu9999/topology/thread_siblings_list", "9999\n")   // more than any kernel has
	put("cpu/isolated", strings.Repeat("0,", 1<<20))             // too long
	put("cpu/cpu7/cache/index3/type", "Instruction\n")           // no unified cache at all
	put("cpu/cpu6/topology/core_siblings_list", "2,3,6,7,900\n") // there is no CPU 900
	h, err := host.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	check(t, h)
	for _, c := range []struct {
		what string
		got  []string
		want string
	}{
		{"cores", groups(h, coreOf), "1,5 2,6 3,7"},
		{"L3", groups(h, l3Of), "0-1,4-5 2-3,6-7"},
		{"nodes", groups(h, nodeOf), "0,4-5 2-3,6-7"},
		{"packages", groups(h, packageOf), "0-1,4-5 2-3,6-7"},
	} {
		if got := strings.Join(c.got, " "); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
	warnings := strings.Join(h.Warnings, "\n")
	for _, want := range []string{"CPU 4 says that CPUs 0,4 share their core", "not in its own list", "runs backwards",
		"are in each of the nodes 0-1", "cpu9999", "isolated: left out: longer than"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("no warning says %q:\n%s", want, warnings)
		}
	}
	if h.Kernel.Isolated != nil {
		t.Errorf("isolated is %s", h.Kernel.Isolated)
	}
}

// A directory that poses as a root cannot hang the reader.
func TestHostileTree(t *testing.T) {
	root := t.TempDir()
	cpu := filepath.Join(root, "sys/devices/system/cpu/cpu0")
	err := errorsOf(os.MkdirAll(cpu, 0o755), os.MkdirAll(filepath.Join(root, "proc"), 0o755),
		syscall.Mkfifo(filepath.Join(root, "proc/interrupts"), 0o600),
		os.Symlink("loop", filepath.Join(cpu, "loop")), os.Symlink("loop", filepath.Join(cpu, "topology")),
		os.Symlink("/dev/zero", filepath.Join(root, "proc/cpuinfo")))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Read(os.DirFS(root))
	if err != nil || len(h.Interrupts) > 0 || len(h.Warnings) < 2 {
		t.Errorf("%v, %+v", err, h)
	}
	_, err = host.Read(os.DirFS(t.TempDir()))
	if err == nil || !strings.Contains(err.Error(), "/sys/devices/system/cpu") {
		t.Errorf("an empty directory: %v", err)
	}
}

func TestJSONSaysNull(t *testing.T) {
	h, err := host.Read(fstest.MapFS{"sys/devices/system/cpu/cpu3/uevent": {}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"cpus":[{"id":3,"online":true,"allowed":null,"package":null,"die":null,"numaNode":null,"l3":null,` +
			`"cluster":null,"l2":null,"l1":null,"core":null,"thread":null,"kind":"uniform","capacity":null,"maxHertz":null}]`,
		`"interrupts":null`, `"warnings":[]`, `"memoryBytes":null`, `"release":null`, `"realtime":null`,
		`"cgroup":null`, `"isolated":null`, `"hypervisor":null`,
		`"apiVersion":"isolane.dev/v1alpha1","kind":"Host"`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in %s", want, data)
		}
	}
}

// On a running kernel only the list is read; list and mask say the same.
func TestReadsLiveOnce(t *testing.T) {
	both := struct{ fs.ReadFileFS }{host.Live().(fs.ReadFileFS)} // no longer known as live
	if host.IsLive(both) || !host.IsLive(host.Live()) {
		t.Fatal("which one is live?")
	}
	once, twice := read(t, host.Live()), read(t, links{both, host.Live()})
	for _, d := range []string{cmp.Diff(twice.CPUs, once.CPUs), cmp.Diff(twice.Caches, once.Caches),
		cmp.Diff(twice.PCIDevices, once.PCIDevices)} {
		if d != "" {
			t.Errorf("(-both +once):\n%s", d)
		}
	}
}

// links is a file system with links.
type links struct {
	fs.ReadFileFS
	of fs.FS
}

func (l links) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(l.of, name) }
func (l links) ReadLink(name string) (string, error)       { return fs.ReadLink(l.of, name) }
func (l links) Lstat(name string) (fs.FileInfo, error)     { return fs.Lstat(l.of, name) }

// A host read for planning lacks only where interrupts fire.
func TestReadForPlan(t *testing.T) {
	root := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}.FS()
	for name, text := range map[string]string{"proc/interrupts": "  CPU0  CPU1\n 9:  1  0  IO-APIC  9-edge  acpi\n",
		"proc/irq/9/smp_affinity_list": "0-1\n", "proc/irq/9/effective_affinity_list": "1\n"} {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	want := read(t, root)
	got, err := host.ReadForPlan(root)
	if err != nil || want.Interrupts[0].Effective.String() != "1" || got.Interrupts[0].Effective != nil {
		t.Fatal(err, want.Interrupts, got.Interrupts)
	}
	want.Interrupts[0].Effective = nil
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// Files are read to their end, even if they exceed the first read.
func TestReadsWhole(t *testing.T) {
	dir := t.TempDir()
	root, err := host.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, parent := range []string{"sys", "proc/irq/1", "proc/1", "etc"} {
		if err = os.MkdirAll(filepath.Join(dir, parent), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{0, 1, 511, 512, 513, 1023, 1024, 5000} {
			name, want := parent+"/stat", strings.Repeat("x", size)
			err = os.WriteFile(filepath.Join(dir, name), []byte(want), 0o600)
			got, rerr := fs.ReadFile(root, name)
			if err != nil || rerr != nil || string(got) != want {
				t.Errorf("%s: read %d bytes of %d: %v %v", name, len(got), size, err, rerr)
			}
		}
	}
}

// BenchmarkRead reads 256 CPUs, 2,000 interrupts and 200 PCI devices from a real directory.
func BenchmarkRead(b *testing.B) {
	root := hosttest.Large(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := host.Read(root); err != nil {
			b.Fatal(err)
		}
	}
}

// The memory nodes that the cpuset allows, from the status of the process or its cgroup; null without both.
func TestAllowedNodes(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"nothing says so", nil, "null null"},
		{"the status", map[string]string{"proc/self/status": "Mems_allowed_list:\t1"}, "false true"},
		{"a cpuset of cgroup v1", map[string]string{"proc/self/cpuset": "/box", "dev/cpuset/box/mems": "0"}, "true false"},
		{"cgroup v2", map[string]string{"proc/self/cpuset": "/box", "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0",
			"sys/fs/cgroup/box/cpuset.mems.effective": "0-1"}, "true true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := hosttest.Machine{Packages: 2, CoresPerPackage: 1, ThreadsPerCore: 1}.FS()
			for name, text := range c.files {
				root[name] = &fstest.MapFile{Data: []byte(text + "\n")}
			}
			var got []string
			for _, n := range read(t, root).NUMANodes {
				text, err := json.Marshal(n.Allowed)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(text))
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %v, want %s", got, c.want)
			}
		})
	}
}

// A single node gets all memory, and a different sum of several is a warning.
func TestMemoryOfNodesAddsUp(t *testing.T) {
	for packages, want := range map[int]uint64{1: 32 << 30, 2: 1 << 30} {
		root := hosttest.Machine{Packages: packages, CoresPerPackage: 2, ThreadsPerCore: 1}.FS()
		root["proc/meminfo"] = &fstest.MapFile{Data: []byte("MemTotal: 33554432 kB\n")}
		for node := range packages {
			root[fmt.Sprintf("sys/devices/system/node/node%d/meminfo", node)] = &fstest.MapFile{Data: fmt.Appendf(nil, "Node %d MemTotal: 1048576 kB\n", node)}
		}
		h, err := host.Read(root)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.NUMANodes[0].MemoryBytes; got != want || !strings.Contains(strings.Join(h.Warnings, "; "), "/proc/meminfo says 32768 MiB") {
			t.Errorf("%d nodes: node 0 has %d bytes, want %d; warnings %q", packages, got, want, h.Warnings)
		}
	}
}

// A virtual function is free for a lane if its device is down and no port of anything.
func TestFunctionInUse(t *testing.T) {
	const dir = "sys/bus/pci/devices/"
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink} }
	vf := func(address, name, flags string) fstest.MapFS {
		return fstest.MapFS{dir + address + "/net/" + name + "/flags": {Data: []byte(flags + "\n")}}
	}
	port := vf("0000:31:10.4", "eth4", "0x1002")
	port[dir+"0000:31:10.4/net/eth4/master"] = link("../br0")
	root := fstest.MapFS{dir + "0000:31:11.0/driver": link("../../drivers/vfio-pci"),
		dir + "0000:31:11.2/class": {Data: []byte("0x020000\n")}}
	for _, files := range []fstest.MapFS{vf("0000:31:10.0", "eth2", "0x1002"), vf("0000:31:10.2", "eth3", "0x1003"), port} {
		maps.Copy(root, files)
	}
	for address, want := range map[string]string{"0000:31:10.0": "", "0000:31:10.2": "eth3 is up",
		"0000:31:10.4": "eth4 is a port of br0", "0000:31:11.0": "no network device here, driver vfio-pci",
		"0000:31:11.2": "no driver"} {
		if got := host.FunctionInUse(root, address); got != want {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
	}
	used := host.PCIDevice{Address: "0000:31:10.0", InUse: "eth2 is up"}
	pf := host.PCIDevice{SRIOV: &host.SRIOV{TotalVFs: 63, NumVFs: 3}, VFs: []string{"0000:31:10.2", used.Address, "0000:31:10.4"}}
	if got := (host.Host{PCIDevices: []host.PCIDevice{used}}).FreeFunctions(pf); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("free are %v", got)
	}
	pf = host.PCIDevice{SRIOV: &host.SRIOV{TotalVFs: 63}}
	if got := (host.Host{}).FreeFunctions(pf); len(got) != 16 {
		t.Errorf("of a card without functions %v", got)
	}
}

// Isolane's ID of a machine is the one that systemd makes from /etc/machine-id for a program with this ID.
func TestMachineID(t *testing.T) {
	for text, want := range map[string]string{
		"11111111111111111111111111111111\n": "bb69de8d07394a49b1812075535e8c4e",
		"uninitialized\n":                    "",
		"1111":                               "",
	} {
		h, err := host.Read(fstest.MapFS{
			"sys/devices/system/cpu/possible": {Data: []byte("0\n")},
			"sys/devices/system/cpu/online":   {Data: []byte("0\n")},
			host.MachineIDFile:                {Data: []byte(text)},
		})
		if err != nil || h.Kernel.MachineID != want {
			t.Errorf("%q: %q, want %q: %v", text, h.Kernel.MachineID, want, err)
		}
	}
}
