package host_test

import (
	"bufio"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/snapshot"
)

func read(t *testing.T, root fs.FS) host.Host {
	t.Helper()
	h, err := host.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	check(t, h)
	return h
}

// Facts about real machines from the listings beside the snapshots, from their names or data sheets.
func TestSnapshots(t *testing.T) {
	for _, c := range []struct{ name, want, warning string }{
		{"hwloc/16em64t-4s2c2t-offlines.tar.bz2",
			"online 12 of 16, 7 cores, 7 L2, 4 L3, 0 dies, 4 packages, 1 nodes, uniform, 0 interrupts", ""},
		{"hwloc/64amd64-4s2n4ca2co.tar.bz2",
			"online 64 of 64, 64 cores, 32 L2, 8 L3, 0 dies, 4 packages, 8 nodes, uniform, 0 interrupts",
			"shared_cpu_list: says 0, but"}, // the masks were corrected by hand, the lists were not
		{"hwloc/8em64t-2s2ca2c-buggynuma.tar.bz2",
			"online 8 of 8, 8 cores, 4 L2, 0 L3, 0 dies, 2 packages, 0 nodes, uniform, 0 interrupts",
			"CPUs 0-7 are in each of the nodes 0-7"},
		{"hwloc/nvidia-dgx-gb10.tar.bz2", // two kinds of cores, told apart by part numbers
			"online 20 of 20, 20 cores, 20 L2, 2 L3, 0 dies, 1 packages, 1 nodes, efficiency, 0 interrupts", ""},
		{"hwloc/128arm-2pa2n8cluster4co.tar.bz2", // die_id is -1, and each CPU is its own die
			"online 128 of 128, 128 cores, 128 L2, 4 L3, 0 dies, 2 packages, 4 nodes, uniform, 0 interrupts", ""},
		{"hwloc/48amd64-4pa2n6c-sparse.tar.bz2",
			"online 48 of 48, 48 cores, 48 L2, 8 L3, 0 dies, 4 packages, 8 nodes, uniform, 0 interrupts",
			"has_normal_memory: lists 0-7 as nodes with memory, and meminfo says otherwise of 33-34,45,72-73"},
		{"nto/master-2x-gold6330.tgz", //nolint:misspell // the folder's name
			"online 112 of 112, 56 cores, 56 L2, 2 L3, 2 dies, 2 packages, 2 nodes, uniform, 1874 interrupts", ""},
		{"ghw/linux-amd64-intel-xeon-L5640.tar.gz",
			"online 24 of 24, 12 cores, 12 L2, 2 L3, 2 dies, 2 packages, 2 nodes, uniform, 0 interrupts", ""},
		{"ghw/linux-amd64-intel-i7-1270P.tar.gz", // hybrid, but the snapshot does not say which cores are which
			"online 16 of 16, 12 cores, 6 L2, 1 L3, 1 dies, 1 packages, 1 nodes, , 0 interrupts", ""},
		{"ghw/linux-amd64-offlineCPUs.tar.gz",
			"online 2 of 4, 2 cores, 2 L2, 2 L3, 2 dies, 2 packages, 1 nodes, uniform, 0 interrupts", ""},
		{"nri-plugins/pkg_cpuallocator_testdata_sysfs.tar.bz2:sysfs/2-socket-4-node-40-core",
			"online 80 of 80, 40 cores, 40 L2, 2 L3, 2 dies, 2 packages, 4 nodes, performance, 0 interrupts", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := read(t, hosttest.Snapshot(t, c.name))
			n := func(of func(host.CPU) *int) int { return len(groups(h, of)) }
			got := fmt.Sprintf("online %d of %d, %d cores, %d L2, %d L3, %d dies, %d packages, %d nodes, %s, "+
				"%d interrupts",
				h.Online().Len(), len(h.CPUs), n(coreOf), n(l2Of), n(l3Of), n(dieOf), n(packageOf), n(nodeOf),
				h.CPUs[0].Kind, len(h.Interrupts))
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			warnings := strings.Join(h.Warnings, "\n")
			if (c.warning == "") != (warnings == "") || !strings.Contains(warnings, c.warning) {
				t.Errorf("warnings %q, want %q", warnings, c.warning)
			}
		})
	}
}

// object is one object in hwloc's listing.
type object struct {
	kind string // Package, L3Cache, L2Cache, Core, NUMANode, PU
	id   int    // the number of the operating system
	cpus cpuset.Set
}

// Each set of CPUs that hwloc finds is one of ours, and ours are all in hwloc's, among the CPUs that hwloc
// lists: it leaves out those that the cpuset in force does not allow.
func TestAgainstHwloc(t *testing.T) {
	for archive, suffix := range map[string]string{
		"128arm-2pa2n8cluster4co": ".console", "48amd64-4pa2n6c-sparse": ".console", "16amd64-8n2c-cpusets": ".console", "16em64t-4s2c2t-offlines": ".console", "32amd64-4s2n4c-cgroup2": ".xml",
		"32intel64-2p8co2t+8ve": ".console", "40intel64-2g2n4c+pcilocality": ".xml", "64amd64-4s2n4ca2co": ".console",
		"8em64t-2s2ca2c-buggynuma": ".console", "nvidia-dgx-gb10": ".xml",
	} {
		t.Run(archive, func(t *testing.T) {
			h := read(t, hosttest.Snapshot(t, "hwloc/"+archive+".tar.bz2"))
			text, err := os.ReadFile(filepath.Join(hosttest.Machines(t), "hwloc", archive+suffix))
			if err != nil {
				t.Fatal(err)
			}
			parse := parseConsole
			if suffix == ".xml" {
				parse = parseXML
			}
			compare(t, h, parse(t, text))
		})
	}
}

func compare(t *testing.T, h host.Host, objects []object) {
	t.Helper()
	var listed cpuset.Set
	want := map[string][]string{}
	for _, o := range objects {
		switch {
		case o.kind == "PU":
			listed = listed.Union(cpuset.Of(o.id))
		case o.cpus.IsEmpty():
		case o.kind == "NUMANode":
			want[o.kind] = append(want[o.kind], fmt.Sprintf("%d: %s", o.id, o.cpus))
		default:
			want[o.kind] = append(want[o.kind], o.cpus.String())
		}
	}
	if listed != h.Usable() {
		t.Errorf("usable are %s, want %s", h.Usable(), listed)
	}
	for kind, of := range map[string]func(host.CPU) *int{
		"Package": packageOf, "Die": dieOf, "L3Cache": l3Of, "L2Cache": l2Of, "Core": coreOf,
	} {
		if kind == "Die" && len(want[kind]) == 0 { // hwloc leaves out dies that are whole packages
			continue
		}
		var got []string
		for _, g := range groups(h, of) {
			if set := cpuset.MustParse(g).Intersection(listed); !set.IsEmpty() {
				got = append(got, set.String())
			}
		}
		slices.Sort(got)
		slices.Sort(want[kind])
		if !slices.Equal(got, want[kind]) {
			t.Errorf("%s: got %q, hwloc has %q", kind, got, want[kind])
		}
	}
	if slices.ContainsFunc(h.Warnings, func(w string) bool { return strings.Contains(w, "in each of the nodes") }) { // the nodes of buggynuma, which hwloc merges into one
		return
	}
	nodes := map[string]cpuset.Set{} // only of listed CPUs; hwloc has no node that a cpuset forbids
	for c := range listed.All() {
		if cpu, _ := h.CPU(c); cpu.NUMANode != nil {
			id := strconv.Itoa(*cpu.NUMANode)
			nodes[id] = nodes[id].Union(cpuset.Of(c))
		}
	}
	for _, node := range want["NUMANode"] {
		if id, cpus, _ := strings.Cut(node, ": "); nodes[id].String() != cpus {
			t.Errorf("node %s: got %s, hwloc has %s", id, nodes[id], cpus)
		}
	}
}

// parseConsole parses the indented listing of lstopo -.
func parseConsole(t *testing.T, text []byte) []object {
	t.Helper()
	line := regexp.MustCompile(`^( *)([A-Z]\w*)(?:\(\w+\))?(?: L#\d+)?(?: \(P#(\d+))?`)
	var objects []object
	var depths, parents []int // of the path to the current line
	inNode := map[int]int{}   // by node: what it is in
	for in := bufio.NewScanner(strings.NewReader(string(text))); in.Scan(); {
		m := line.FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		for len(depths) > 0 && depths[len(depths)-1] >= len(m[1]) {
			depths, parents = depths[:len(depths)-1], parents[:len(parents)-1]
		}
		id, _ := strconv.Atoi(m[3])
		if m[2] == "NUMANode" {
			inNode[len(objects)] = parents[len(parents)-1]
		}
		if m[2] == "PU" {
			for _, p := range parents {
				objects[p].cpus = objects[p].cpus.Union(cpuset.Of(id))
			}
		}
		depths, parents = append(depths, len(m[1])), append(parents, len(objects))
		objects = append(objects, object{kind: m[2], id: id})
	}
	for node, in := range inNode {
		objects[node].cpus = objects[in].cpus
	}
	return objects
}

func parseXML(t *testing.T, text []byte) []object {
	t.Helper()
	type element struct {
		Type     string    `xml:"type,attr"`
		ID       int       `xml:"os_index,attr"`
		CPUs     string    `xml:"cpuset,attr"`
		Children []element `xml:"object"`
	}
	var top element
	if err := xml.Unmarshal(text, &top); err != nil {
		t.Fatal(err)
	}
	var objects []object
	var walk func(element)
	walk = func(e element) {
		if e.CPUs != "" {
			cpus, err := cpuset.ParseMask(e.CPUs)
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, object{e.Type, e.ID, cpus})
		}
		for _, c := range e.Children {
			walk(c)
		}
	}
	walk(top)
	return objects
}

// machineInfo is what cAdvisor, another reader of the same files, says about the machine.
type machineInfo struct {
	Topology []struct {
		Node  int `json:"node_id"`
		Cores []struct {
			Threads []int `json:"thread_ids"`
		} `json:"cores"`
	} `json:"topology"`
}

func TestAgainstMachineInfo(t *testing.T) {
	for name, irq := range map[string]struct {
		number       int
		name, device string
	}{
		"nto/master-2x-gold6330.tgz": {149, "nvme0q2", "0000:b1:00.0"},         //nolint:misspell // the folder's name
		"nto/sno-vm-12cpu.tgz":       {70, "virtio1-output.0", "0000:01:00.0"}, //nolint:misspell // the folder's name
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Snapshot(t, name)
			h := read(t, root)
			data, err := fs.ReadFile(root, "machineinfo.json")
			if err != nil {
				t.Fatal(err)
			}
			var info machineInfo
			if err := json.Unmarshal(data, &info); err != nil || len(info.Topology) == 0 {
				t.Fatalf("%v, %d nodes", err, len(info.Topology))
			}
			for _, n := range info.Topology {
				var cpus cpuset.Set
				for _, core := range n.Cores {
					want := cpuset.Of(core.Threads...)
					cpus = cpus.Union(want)
					if got := h.Siblings(core.Threads[0]); got != want {
						t.Errorf("core of CPU %d: got %s, want %s", core.Threads[0], got, want)
					}
				}
				if got := h.NUMANodes[n.Node]; got.ID != n.Node || got.CPUs != cpus {
					t.Errorf("node %d: got CPUs %s, want %s", n.Node, got.CPUs, cpus)
				}
			}
			is := func(i host.Interrupt) bool { return i.IRQ == irq.number }
			i := h.Interrupts[slices.IndexFunc(h.Interrupts, is)]
			wrong := i.Affinity.IsEmpty() || !i.Effective.IsSubsetOf(*i.Affinity)
			if wrong || *i.Name != irq.name || *i.Device != irq.device {
				t.Errorf("got %s of %s, asked %s, effective %s", *i.Name, *i.Device, i.Affinity, i.Effective)
			}
		})
	}
}

// machines returns all archives in hosttest, with the folder if an archive holds several machines.
func machines(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(hosttest.Machines(t), "*", "*.t*z*"))
	if err != nil || len(files) < 18 {
		t.Fatalf("%d archives, %v", len(files), err)
	}
	var names []string
	for _, f := range files {
		name, err := filepath.Rel(hosttest.Machines(t), f)
		if err != nil {
			t.Fatal(err)
		}
		_, err = snapshot.Open(f, "")
		if err == nil {
			names = append(names, name)
			continue
		}
		_, folders, ok := strings.Cut(err.Error(), "--root: ")
		if !ok {
			t.Fatal(err)
		}
		for folder := range strings.SplitSeq(folders, ", ") {
			names = append(names, name+":"+folder)
		}
	}
	return names
}

// A saved snapshot suffices to read the same machine again.
func TestSnapshotOfSnapshot(t *testing.T) {
	for i, name := range machines(t) {
		t.Run(name, func(t *testing.T) {
			rec := snapshot.Record(hosttest.Snapshot(t, name))
			want, err := json.Marshal(read(t, rec))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), []string{"s.tar", "s.tar.gz", "s.tar.zst"}[i%3])
			if err = rec.Save(file); err != nil {
				t.Fatal(err)
			}
			root, err := snapshot.Open(file, "")
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(read(t, root))
			if err != nil || string(got) != string(want) {
				t.Errorf("%v: got %.2000s\nwant %.2000s", err, got, want)
			}
		})
	}
}

// A snapshot says which device has an interrupt that nobody has requested, as for a card that is down.
func TestSnapshotOfUnnamedInterrupt(t *testing.T) {
	const address = "0000:19:00.0"
	root := hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 1}.FS()
	for name, text := range map[string]string{"sys/bus/pci/devices/" + address + "/class": "0x020000",
		"sys/bus/pci/devices/" + address + "/msi_irqs/30": "msix", "proc/irq/30/smp_affinity_list": "0-1"} {
		root[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	file := filepath.Join(t.TempDir(), "s.tar")
	if err := snapshot.Save(root, file); err != nil {
		t.Fatal(err)
	}
	saved, err := snapshot.Open(file, "")
	if err != nil {
		t.Fatal(err)
	}
	all := read(t, saved).Interrupts
	if i := slices.IndexFunc(all, func(i host.Interrupt) bool { return i.IRQ == 30 }); i < 0 || all[i].Device == nil || *all[i].Device != address {
		t.Errorf("interrupts: %+v", all)
	}
}

// The firmware of the board and of cards, of recorded machines.
func TestFirmware(t *testing.T) {
	for name, want := range map[string]string{
		"hwloc/128arm-2pa2n8cluster4co.tar.bz2": "Huawei Corp. 0.86 07/19/2019, cards: map[]",
		"hwloc/nvidia-dgx-gb10.tar.bz2":         "American Megatrends International, LLC. 5.36_0ACUM018 08/06/2025, cards: map[]",
		"hwloc/32intel64-2p8co2t+8ve.tar.bz2":   "none, cards: map[accelerator 5141:8]",
	} {
		h := read(t, hosttest.Snapshot(t, name))
		got, cards := "none", map[string]int{}
		if f := h.Firmware; f != nil {
			got = *f.Vendor + " " + *f.Version + " " + *f.Date
		}
		for _, d := range h.PCIDevices {
			if d.Firmware != nil {
				cards[d.Kind+" "+*d.Firmware]++
			}
		}
		if got = fmt.Sprintf("%s, cards: %v", got, cards); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
