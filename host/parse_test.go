package host

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestParseInterrupt(t *testing.T) {
	for line, want := range map[string]Interrupt{
		" 36:  0  189834  PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0": {
			IRQ: 36, Name: new("virtio1-req.0"), Device: new("0000:00:02.0")},
		"124:  0  0  IR-PCI-MSI-10000:e1:02.0  0-edge  PCIe PME, pciehp": {
			IRQ: 124, Name: new("PCIe PME, pciehp"), Device: new("10000:e1:02.0")},
		" 11:  5  7  GICv3  27 Level  arch_timer":     {IRQ: 11, Name: new("arch_timer")},
		"  9:  5  IO-APIC  9-fasteoi  acpi":           {IRQ: 9, Name: new("acpi")}, // one count, though there are two CPUs
		"  2:  0  0  XT-PIC  cascade":                 {IRQ: 2, Name: new("cascade")},
		" 53:  1  2  PCI-MSI-edge  3w-9xxx":           {IRQ: 53, Name: new("3w-9xxx")}, // before Linux 3
		" 16:  1  2  xen-percpu  -virq  timer0":       {IRQ: 16, Name: new("timer0")},
		" 17:  1  2  dummy  44":                       {IRQ: 17},
		" 18:  1  2  None":                            {IRQ: 18},
		" 19:":                                        {IRQ: 19},
		"4000000000:  1  2  IO-APIC  9-fasteoi  acpi": {IRQ: -1},
		"NMI:  0  0  Non-maskable interrupts":         {IRQ: -1},
		"-1:  0  0  x":                                {IRQ: -1},
		"no colon":                                    {IRQ: -1},
	} {
		got, ok := parseInterrupt(line, &CountTable{CPUs: []int{0, 2}})
		if !ok {
			got.IRQ = -1
		}
		fired := map[int]string{36: "2", 11: "0,2", 9: "0", 53: "0,2", 16: "0,2", 17: "0,2", 18: "0,2"}[got.IRQ]
		if ok && got.Fired.String() != fired {
			t.Errorf("%q has fired on CPUs %s, want %q", line, got.Fired, fired)
		}
		got.Fired = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", line, diff)
		}
	}
}

func TestPreempt(t *testing.T) {
	for _, c := range []struct{ version, cmdline, debug, want string }{
		{"#1 SMP PREEMPT_DYNAMIC x", "", "none voluntary (full) lazy", "full"},
		{"#1 SMP PREEMPT_DYNAMIC x", "quiet preempt=voluntary", "", "voluntary"},
		{"#1 SMP PREEMPT_DYNAMIC x", "quiet", "", "dynamic"},
		{"#1 SMP PREEMPT_RT x", "", "", "rt"},
		{"#1 SMP PREEMPT x", "", "", "full"},
		{"#1 SMP x", "preempt=full", "", ""},
	} {
		k := Kernel{Version: c.version, Cmdline: c.cmdline}
		k.Realtime = new(c.want == "rt")
		if got := preempt(k, c.debug); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

// The kernel's words for PREEMPT_RT, which have changed over time.
func TestRealtime(t *testing.T) {
	for version, want := range map[string]bool{
		"Linux version 4.18.0-372.9.1.rt7.166.el8.x86_64 (mockbuild@x) #1 SMP PREEMPT RT Fri Apr 15": true,
		"Linux version 6.12.1 (a@b) #1 SMP PREEMPT_RT Fri":                                           true,
		"Linux version 6.12.1 (a@b) #1 SMP PREEMPT_DYNAMIC RTC Fri":                                  false,
	} {
		h, err := Read(fstest.MapFS{"proc/version": {Data: []byte(version)}, "sys/devices/system/cpu/cpu0/crash": {}})
		if err != nil || h.Kernel.Realtime == nil || *h.Kernel.Realtime != want {
			t.Errorf("%s: %v, %v", version, h.Kernel.Realtime, err)
		}
	}
}

func TestNoCallbacks(t *testing.T) {
	for cmdline, want := range map[string]string{
		"rcu_nocbs=1-2": "1-2,7", "rcu-nocbs=0-N:1/4": "0,4,7", "quiet": "7", "rcu_nocbs": "7",
		"x -- rcu_nocbs=1": "7", `"rcu_nocbs=3"`: "3,7", "tuned.rcu_nocbs=4": "7",
	} {
		files := fstest.MapFS{
			"proc/cmdline":                      {Data: []byte(cmdline)},
			"sys/devices/system/cpu/possible":   {Data: []byte("0-7")},
			"sys/devices/system/cpu/nohz_full":  {Data: []byte("7")},
			"sys/devices/system/cpu/cpu0/crash": {},
		}
		h, err := Read(files)
		if err != nil || h.Kernel.RCUNoCBs == nil || h.Kernel.RCUNoCBs.String() != want {
			t.Errorf("%q: got %v, %v; want %s", cmdline, h.Kernel.RCUNoCBs, err, want)
		}
	}
}

func FuzzInterrupt(f *testing.F) {
	f.Add(" 36:  0  189834  PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0", 2)
	f.Add("11: 5 7 GICv3 27 Level arch_timer", 1)
	f.Add("1: -", -1)
	f.Fuzz(func(t *testing.T, line string, columns int) {
		i, ok := parseInterrupt(line, &CountTable{CPUs: make([]int, min(max(0, columns), 100))})
		wrong := !ok && i != (Interrupt{}) || i.IRQ < 0 || i.Name != nil && *i.Name == ""
		if wrong || i.Device != nil && len(*i.Device) < 12 {
			t.Errorf("%q: %+v, %v", line, i, ok)
		}
	})
}

// No content of the lists causes a panic, and each group contains its own CPUs.
func FuzzLists(f *testing.F) {
	f.Add("0-3", "0,2", "1,3", "0-1", "0-3", "0 10 20")
	f.Add("", "0", "3-1", "0-8191", "\x00", "-1")
	f.Add("0-3", "0-3:1/2", "", "f", "1", "")
	f.Fuzz(func(t *testing.T, online, siblings0, siblings1, l3, node0, distance string) {
		files := fstest.MapFS{}
		for path, text := range map[string]string{
			"cpu/online": online, "cpu/cpu0/topology/thread_siblings_list": siblings0,
			"cpu/cpu1/topology/core_cpus_list": siblings1, "cpu/cpu1/topology/core_cpus": siblings0,
			"cpu/cpu2/topology/thread_siblings": siblings1, "cpu/cpu3/online": online,
			"cpu/cpu0/topology/core_id": siblings1, "cpu/cpu1/topology/core_id": distance,
			"cpu/cpu1/cache/index3/level": "3", "cpu/cpu1/cache/index3/shared_cpu_list": l3,
			"cpu/cpu2/cache/index3/level": "3", "cpu/cpu2/cache/index3/shared_cpu_map": l3,
			"cpu/cpu0/topology/physical_package_id": distance, "cpu/isolated": node0, "cpu/nohz_full": l3,
			"cpu/cpu0/topology/die_cpus": l3, "cpu/cpu0/topology/die_id": distance, "cpu/cpu1/topology/cluster_cpus": siblings1,
			"cpu/cpu1/topology/cluster_id": distance, "node/has_memory": node0, "node/node1/meminfo": "MemTotal: " + distance + " kB",
			"node/node0/cpulist": node0, "node/node0/distance": distance, "node/node1/cpumap": node0,
			"node/node0/hugepages/hugepages-2048kB/nr_hugepages": distance,
		} {
			files["sys/devices/system/"+path] = &fstest.MapFile{Data: []byte(text)}
		}
		h, err := Read(files)
		if err != nil {
			t.Fatal(err) // there are CPUs, so it must not fail
		}
		for _, n := range h.NUMANodes {
			if n.MemoryBytes > 0 && !*n.HasMemory {
				t.Errorf("node %d has %d bytes and no memory", n.ID, n.MemoryBytes)
			}
		}
		for _, c := range h.CPUs {
			wrong := c.Online != h.Siblings(c.ID).Contains(c.ID) || !c.Online && (c.L3 != nil || c.NUMANode != nil)
			if wrong || c.Core != nil && *c.Core > c.ID {
				t.Errorf("CPU %d: %+v, siblings %s", c.ID, c, h.Siblings(c.ID))
			}
		}
	})
}

// The head and the rows of /proc/interrupts and /proc/softirqs.
func TestCountTable(t *testing.T) {
	for _, head := range []string{"", "  ", "CPU", "CPU0 8", "CPU-1", "CPU8192", "CPU0CPU1"} {
		if table, err := ParseCountHead(head); err == nil {
			t.Errorf("%q: %+v", head, table)
		}
	}
	table, err := ParseCountHead("           CPU0       CPU3")
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]CountRow{
		"    NET_RX:          7         12":           {Label: "NET_RX", Counts: []uint64{7, 12}},
		"ERR:          5":                             {Label: "ERR", Counts: []uint64{5}},
		"NMI:   1   2   Non-maskable interrupts":      {Label: "NMI", Counts: []uint64{1, 2}, Text: "Non-maskable interrupts"},
		"9: 3 4-edge x":                               {Label: "9", Counts: []uint64{3}, Text: "4-edge x"},
		"8: 9999999999999999999 18446744073709551615": {Label: "8", Counts: []uint64{9999999999999999999}, Text: "18446744073709551615"},
		"10:          0          0  GICv3":            {Label: "10", Counts: []uint64{0, 0}, Text: "GICv3"},
		"11:          0          04  x":               {Label: "11", Counts: []uint64{0, 4}, Text: "x"},
		"12:          0          0-edge":              {Label: "12", Counts: []uint64{0}, Text: "0-edge"},
		"13:          0          0":                   {Label: "13", Counts: []uint64{0, 0}},
		"7: 1 2 3":                                    {Label: "7", Counts: []uint64{1, 2}, Text: "3"},
		"6:":                                          {Label: "6"},
	} {
		got, ok := table.Row(line)
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || !ok {
			t.Errorf("%q: %v (-want +got):\n%s", line, ok, diff)
		}
	}
	if row, ok := table.Row("no colon"); ok {
		t.Errorf("%+v", row)
	}
}

// The names of PCI functions, also below a controller whose domains have five digits (VMD).
func TestPCIAddress(t *testing.T) {
	for name, want := range map[string]bool{"0000:3b:00.0": true, "10000:e1:1f.7": true, "ffff0000:00:00.0": true,
		"": false, "0000:3b:00": false, "000:3b:00.0": false, "00000:3b:00.0": false, "0000:3B:00.0": false, "0000:3b:00.00": false,
		"0000:3b:0.0": false, "0000:3b:00.0:1": false, "0000:3b:00.": false, "0000-3b:00.0": false, "+000:3b:00.0": false} {
		if got := isPCIAddress(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}
