package witness

import (
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/results"
)

func TestOwned(t *testing.T) {
	irq := func(n, cpu int) Source { return Source{CPU: cpu, Kind: results.Interrupt, IRQ: &n} }
	softirq := func(name string, cpu int) Source { return Source{CPU: cpu, Kind: results.Softirq, Name: name} }
	own := Owned{Interrupts: map[int]int{44: 1, 45: 2, 46: 3}}
	all := []Source{
		irq(44, 1), softirq("NET_RX", 1), {CPU: 1, Kind: results.KernelThread, Name: "irq/44-eth0-TxRx-0"},
		softirq("TIMER", 1), {CPU: 1, Kind: results.KernelThread, Name: "irq/45-eth0"}, // another CPU's
		irq(45, 2), irq(7, 2), softirq("NET_RX", 2), // somebody else's interrupt may have raised it
		irq(44, 3), softirq("NET_RX", 3), {CPU: 3, Kind: results.Task, Name: "irq/46-x"},
		softirq("NET_RX", 4),
	}
	own.mark(all)
	for i, want := range []bool{true, true, true, false, false, true, false, false, false, false, false, false} {
		if all[i].Own != want {
			t.Errorf("%d: own %v: %+v", i, all[i].Own, all[i])
		}
	}
}

// What to do about the scheduler's balancing depends on whom the CPU is balanced with.
func TestBalancing(t *testing.T) {
	const stat = `version 16
timestamp 4295
cpu0 0 0 0
domain0 00000000,00000003 1 2
domain1 00000000,0000000f 1 2
cpu1 0 0 0
domain0 MC 00000000,0000000f 1 2
cpu4 0 0 0
cpu5 0 0 0
domain0 00000000,00000060 1 2
`
	root := fstest.MapFS{"proc/schedstat": {Data: []byte(stat)},
		"proc/self/mounts": {Data: []byte("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")}, "sys/devices/system/cpu/online": {Data: []byte("0-6\n")}}
	watched, asks := cpuset.MustParse("1,4-6"), []Source{{Kind: results.Softirq, Name: sched}}
	remedy := func(cpu int) string {
		b := newBalance(root)
		b.look(root, asks)
		return b.remedy(cpu, watched)
	}
	tickless := map[bool]string{false: "(null)\n", true: "4-6\n"}
	for _, c := range []struct {
		cpu      int
		nohzFull bool
		want     string
	}{
		{1, false, "put the CPU into an isolated partition"},
		{4, false, "release the lane and apply it again"},
		{5, false, "boot with nohz_full for it, or spec.cpus.balance false"},
		{5, true, "balanced: spec.cpus.balance false"},
		{6, false, "put the CPU into an isolated partition"}, // not listed: nothing is known
	} {
		root["sys/devices/system/cpu/nohz_full"] = &fstest.MapFile{Data: []byte(tickless[c.nohzFull])}
		if got := remedy(c.cpu); !strings.Contains(got, c.want) {
			t.Errorf("CPU %d: %q", c.cpu, got)
		}
		trace, tick := Trace{balance: newBalance(root)}, []Source{{CPU: c.cpu, Kind: results.Tick, Name: localTimer}}
		if trace.finish(tick); strings.HasPrefix(tick[0].Remedy, "boot with nohz_full") == c.nohzFull {
			t.Errorf("tick on CPU %d, nohz_full %v: %q", c.cpu, c.nohzFull, tick[0].Remedy)
		}
	}
	root["proc/self/mounts"].Data = []byte("cgroup /c cgroup rw,cpuset 0 0\n")
	if got := remedy(4); !strings.HasSuffix(got, "isolated: boot with nohz_full for it") {
		t.Errorf("cgroup v1: %q", got)
	}
}

func FuzzParseDomains(f *testing.F) {
	f.Add("cpu0 1 2\ndomain0 03 1\ncpu12 1\ndomain0 MC ff,00000000 4\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseDomains(text)
		for cpu := range all {
			if err == nil && cpu < 0 {
				t.Errorf("CPU %d", cpu)
			}
		}
	})
}

// Tasks belong where their cgroup does, also where there are more cgroups than bits.
func TestOwnedPlaces(t *testing.T) {
	all := Owned{Cgroups: make([]string, 70), CPUs: make([]cpuset.Set, 70)}
	for i := range all.CPUs {
		all.CPUs[i] = cpuset.Of(i)
	}
	places := all.places()
	for group := range 63 {
		for cpu := range 70 {
			if own := places[group]&all.placesOf(cpu) != 0; own != (group == cpu) || own != all.belongs(group, cpu) {
				t.Errorf("group %d, CPU %d: %v", group, cpu, own)
			}
		}
	}
	if places[65]&all.placesOf(65) == 0 {
		t.Error("the 66th group does not belong on its own CPU")
	}
	if anywhere := (Owned{Cgroups: []string{"a", "b"}}); anywhere.placesOf(7) != 3 || !anywhere.belongs(1, 7) {
		t.Error("no CPUs are all")
	}
}
