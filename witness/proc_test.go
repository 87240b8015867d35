package witness

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// statLine is a stat file of which only the fields that are read are told.
func statLine(id, name, state, parent, flags, utime, cutime, start, cpu string) string {
	f := strings.Fields("0 (x) S 0 1 1 0 -1 0 0 0 0 0 7 8 9 10 20 0 1 0 5 0 0" + strings.Repeat(" 0", 20))
	f[0], f[1], f[2], f[3], f[8] = id, "("+name+")", state, parent, flags
	f[13], f[15], f[21], f[38] = utime, cutime, start, cpu
	return strings.Join(f, " ") + "\n"
}

func TestSwitches(t *testing.T) {
	const some = "voluntary_ctxt_switches:\t12\n"
	got, err := switchesOf(some + "nonvoluntary_ctxt_switches:\t3\n")
	if want := (switches{12, 3}); err != nil || got != want {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, text := range []task.Status{"", some, "nonvoluntary_ctxt_switches:\t3\n", some + "nonvoluntary_ctxt_switches:\t-\n"} {
		if got, err := switchesOf(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

const interrupts = `            CPU0       CPU2       
   1:          4          0   IO-APIC    1-edge      i8042
  16:          1          2   IR-IO-APIC   16-fasteoi   uhci_hcd:usb1, ehci_hcd:usb2
  27:         10         20     GICv3  27 Level     arch_timer
  36:          0     251544 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
  40:          5          6   dummy
  41:          7
NMI:          1          2   Non-maskable interrupts
ERR:          9
MIS:          0
 XX: a b
`

func TestParseCounts(t *testing.T) {
	got, err := parseCounts(interrupts)
	want := counts{
		"1 i8042":                         {0: 4, 2: 0},
		"16 uhci_hcd:usb1, ehci_hcd:usb2": {0: 1, 2: 2},
		"27 arch_timer":                   {0: 10, 2: 20},
		"36 virtio1-req.0":                {0: 0, 2: 251544},
		"40 dummy":                        {0: 5, 2: 6},
		"NMI":                             {0: 1, 2: 2},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	one, err := parseCounts("           CPU0\n LOC:  5  Local timer interrupts\n ERR:  9\n 3: 8\n")
	if diff := cmp.Diff(counts{"LOC": {0: 5}, "3": {0: 8}}, one); err != nil || diff != "" {
		t.Errorf("one CPU: %v %s", err, diff)
	}
	for _, text := range []string{"", "\n", "NMI: 1\n", "CPUx\n", "CPU9999\n"} {
		if got, err := parseCounts(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
}

func TestCountsSince(t *testing.T) {
	before := counts{"a": {0: 5, 1: 5}, "gone": {0: 1}}
	after := counts{"a": {0: 7, 1: 5}, "new": {0: 3}, "less": {0: 0}}
	if diff := cmp.Diff(map[string]uint64{"a": 2, "new": 3}, after.since(before, 0)); diff != "" {
		t.Error(diff)
	}
	if got := after.since(before, 1); len(got) > 0 {
		t.Error(got)
	}
}

const stat = `cpu  39562 10569 108950 1027815 2370 0 43804 452 0 0
cpu0 18611 5154 54784 100 20 0 21900 7 0 0
cpu3 20950 5415 54166 200 30 0 21903 8 0 0
intr 1 2 3
`

func TestCountersSince(t *testing.T) {
	root := func(interrupts, stat string) fs.FS {
		return fstest.MapFS{
			"proc/interrupts": {Data: []byte(interrupts)},
			"proc/softirqs":   {Data: []byte("  CPU0 CPU2\n NET_RX: 1 2\n")},
			"proc/stat":       {Data: []byte(stat)},
		}
	}
	before, err := readCounters(root(interrupts, stat))
	if err != nil {
		t.Fatal(err)
	}
	after, err := readCounters(root(strings.ReplaceAll(interrupts, "  4  ", "  9  "),
		strings.ReplaceAll(stat, "100 20 0 21900 7", "90 25 0 21900 9")))
	if err != nil {
		t.Fatal(err)
	}
	want := []results.CPU{
		{ID: 0, Interrupts: 5, InterruptSource: map[string]uint64{"1 i8042": 5},
			Softirqs: map[string]uint64{}, ContextSwitches: 11, Steal: 2 * tick},
		{ID: 2, InterruptSource: map[string]uint64{}, Softirqs: map[string]uint64{}},
	}
	if diff := cmp.Diff(want, after.since(before, cpuset.Of(0, 2), map[int]uint64{0: 11})); diff != "" {
		t.Error(diff)
	}
	for _, missing := range []string{"proc/interrupts", "proc/softirqs", "proc/stat"} {
		files := root(interrupts, stat).(fstest.MapFS)
		files[missing] = &fstest.MapFile{Data: []byte("?")}
		if _, err := readCounters(files); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("%s: %v", missing, err)
		}
	}
}

// Of a CPU in a window there are how often and from how deep it woke, and how often it was slowed down; nothing of
// one of which the kernel does not say, and no less than 0 where a count ran backwards.
func TestPower(t *testing.T) {
	const cpu0 = "sys/devices/system/cpu/cpu0/"
	root := func(count, other string) fs.FS {
		return fstest.MapFS{
			cpu0 + "cpufreq/scaling_cur_freq": {Data: []byte("2400000\n")},
			cpu0 + "cpuidle/state0/latency":   {Data: []byte("1\n")}, cpu0 + "cpuidle/state0/usage": {Data: []byte("5\n")},
			cpu0 + "cpuidle/state1/latency": {Data: []byte("85\n")}, cpu0 + "cpuidle/state1/usage": {Data: []byte(count)},
			cpu0 + "thermal_throttle/core_throttle_count":    {Data: []byte(count)},
			cpu0 + "thermal_throttle/package_throttle_count": {Data: []byte(other)},
		}
	}
	cpus := cpuset.Of(0, 2)
	before, after := readPower(root("2\n", "1\n"), cpus), readPower(root("6\n", "1\n"), cpus)
	found := []results.CPU{{ID: 0}, {ID: 2}, {ID: 0}}
	after[0].addTo(&found[0], before[0])
	after[2].addTo(&found[1], before[2])
	before[0].addTo(&found[2], after[0])
	want := []results.CPU{{ID: 0, Frequency: 2_400_000, IdleExits: 4, IdleExit: 340_000, Throttled: 4}, {ID: 2}, {ID: 0, Frequency: 2_400_000}}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Error(diff)
	}
}

// The parsers take the files of the machine that the tests run on.
func TestThisMachine(t *testing.T) {
	root := os.DirFS("/")
	c, err := readCounters(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.interrupts) == 0 || len(c.softirqs) == 0 || len(c.times) == 0 {
		t.Errorf("%+v", c)
	}
	all := takeCensus(root)
	st, err := task.ReadStat(root, "proc/self")
	if _, ok := all[taskOf(st)]; err != nil || !ok {
		t.Errorf("this process is not among %d tasks: %v", len(all), err)
	}
}

func FuzzParseCounts(f *testing.F) {
	f.Add(interrupts)
	f.Add("CPU0 CPU0\n1: 2 3 -edge\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCounts(text)
		if err != nil {
			return
		}
		for name, row := range c {
			if name != strings.TrimSpace(name) || len(row) == 0 {
				t.Errorf("%q: %v", name, row)
			}
			for cpu := range row {
				if cpu < 0 || cpu > cpuset.Max {
					t.Errorf("%q on CPU %d", name, cpu)
				}
			}
		}
		if fired := c.since(c, 0); len(fired) > 0 {
			t.Errorf("a table minus itself is %v", fired)
		}
	})
}
