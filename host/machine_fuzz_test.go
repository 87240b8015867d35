package host_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/settings"
)

// FuzzMachine replaces or removes two files of a machine. Reading must not panic, must give one JSON
// document, and groups may contain only CPUs of the machine.
func FuzzMachine(f *testing.F) {
	files := hosttest.Machine{Packages: 2, CoresPerPackage: 3, ThreadsPerCore: 2, NodesPerPackage: 2, MemoryOnlyNodes: 1,
		Offline: cpuset.Of(5), Isolated: cpuset.Of(3)}.FS()
	for name, text := range map[string]string{
		"proc/interrupts": "  CPU0 CPU1\n 24: 1 2 PCI-MSI-0000:3b:00.0 0-edge eth0\n", "proc/cpuinfo": "model name : x\nflags : fpu\n",
		"proc/cmdline": "isolcpus=3 rcu_nocbs=3", "proc/stat": "cpu 1 2 3 4 5 6 7 8", "proc/self/mounts": "c /sys/fs/cgroup cgroup2 rw 0 0\n",
		"sys/devices/system/cpu/cpu0/topology/die_id": "-1", "sys/devices/system/cpu/cpu0/topology/die_cpus": "1",
		"sys/bus/pci/devices/0000:3b:00.0/class": "0x020000", "sys/bus/pci/devices/0000:3b:00.0/sriov_totalvfs": "4",
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	names := slices.Sorted(maps.Keys(files))
	for i := 0; i < len(names); i += 16 { // the fuzzer finds the names in between
		f.Add(uint16(i), string(files[names[i]].Data), uint16(2*i), "-1")
	}
	f.Fuzz(func(t *testing.T, one uint16, text string, two uint16, gone string) {
		changed := maps.Clone(files)
		changed[names[int(one)%len(names)]] = &fstest.MapFile{Data: []byte(text)}
		if other := names[int(two)%len(names)]; gone == "" {
			delete(changed, other)
		} else {
			changed[other] = &fstest.MapFile{Data: []byte(gone)}
		}
		h, err := host.Read(changed)
		if err != nil {
			return // an error is right: there are no CPUs
		}
		settings.Read(changed)
		if _, err = json.Marshal(h); err != nil {
			t.Error(err)
		}
		var all cpuset.Set
		for _, core := range h.CoresOf(h.Online()) {
			all = all.Union(core)
		}
		if all != h.Online() || !h.Usable().IsSubsetOf(h.Online()) {
			t.Errorf("cores have %s, online are %s, usable %s", all, h.Online(), h.Usable())
		}
	})
}
