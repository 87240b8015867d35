package rules

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/tools/txtar"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/settings"
	"isolane.dev/isolane/terminal"
)

// machine returns the machine in a file of testdata, with changes: content by path; "" removes the file.
func machine(tb testing.TB, file string, changes map[string]string) fstest.MapFS {
	tb.Helper()
	files := hosttest.Machine{Packages: 2, CoresPerPackage: 4, ThreadsPerCore: 2, MemoryOnlyNodes: 1}.FS()
	a, err := txtar.ParseFile("testdata/" + file)
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range a.Files {
		files[f.Name] = &fstest.MapFile{Data: f.Data}
	}
	for name, text := range changes {
		if files[name] = (&fstest.MapFile{Data: []byte(text)}); text == "" {
			delete(files, name)
		}
	}
	return files
}

func run(t *testing.T, files fstest.MapFS, lane string) audit.Report {
	t.Helper()
	h, err := host.Read(files)
	if err != nil || len(h.Warnings) > 0 {
		t.Fatal(err, h.Warnings)
	}
	return Run(h, settings.Read(files), cpuset.MustParse(lane), "test")
}

func found(r audit.Report) map[string]audit.Finding {
	by := map[string]audit.Finding{}
	for _, f := range r.Findings {
		by[f.Rule] = f
	}
	return by
}

// On a machine where everything is right no rule may find anything worse than a note, and each must say that
// it passed, and so had the files that it needs.
func TestQuiet(t *testing.T) {
	r := run(t, machine(t, "quiet.txtar", nil), "2-3,10-11")
	by := found(r)
	delete(by, "smt")            // the lane has both threads of its cores
	delete(by, "rt-unthrottled") // its fix wants -1, and nothing watches
	for _, f := range by {
		t.Errorf("%s: %s: %v", f.Rule, f.InForce, f.Evidence)
	}
	want := []audit.Unknown{{Rule: "smi", Missing: "file with MSR 0x34 (turbostat and rtla hwnoise read it)"}, {Rule: "nic-coalescing", Missing: "file with what ethtool -c, -g and -n say"}}
	if !slices.Equal(r.Unknown, want) {
		t.Errorf("could not be checked: %v", r.Unknown)
	}
	if want := "no fault found: 0 faults, 0 warnings, 2 notes"; !strings.HasPrefix(r.Verdict(), want) {
		t.Errorf("verdict %q, want %s", r.Verdict(), want)
	}
}

// What a source lacks is unknown, even if a machine may lack it: nothing there has passed.
func TestNothingIsPassedUnseen(t *testing.T) {
	files := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.FS()
	delete(files, "sys/devices/system/cpu/isolated")
	for name, text := range map[string]string{"proc/cmdline": "quiet", "proc/cpuinfo": "flags : fpu mce", "proc/self/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0",
		"sys/bus/pci/devices/0000:00:01.0/class": "0x020000", "sys/bus/pci/devices/0000:00:01.0/net/eth0/x": ""} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	want := strings.Fields("lane-online boot-cpu whole-cores smt core-kinds resctrl isolcpus-list isolcpus-in-force isolcpus-managed nohz-boot-cpu repeated mce-off audit-parameter " +
		"mitigations idle-poll pstate-disable tsc nic-node nic-node-unknown guest-idle")
	if got := run(t, files, "2").Passed; !slices.Equal(got, want) {
		t.Errorf("passed %v", got)
	}
}

// Each rule finds its fault. One machine has as many of the faults as can exist together.
func TestEachRuleFires(t *testing.T) {
	const lane = "0,2-3,14"
	seen := map[string]bool{"smi": true, "nic-coalescing": true} // these say only that they cannot know
	for _, changes := range []map[string]string{
		nil,
		{"proc/cmdline": "isolcpus=N-3", "proc/sys/kernel/timer_migration": "0", "proc/sys/kernel/sched_rt_runtime_us": "-1"},
		{"sys/kernel/realtime": "1", "sys/module/rcutree/parameters/kthread_prio": "1"},
		{"proc/sys/kernel/osrelease": "6.12.1", "sys/kernel/debug/sched/fair_server/cpu2/runtime": "50000000"},
		{"sys/devices/system/cpu/cpu2/online": "0", "sys/devices/system/cpu/online": "0-1,3-15"},
		{"sys/devices/cpu_core/cpus": "0-7", "sys/devices/cpu_atom/cpus": "8-15"},
		{"proc/cmdline": "quiet", "sys/devices/system/cpu/cpu2/cpuidle/state1/latency": "133"},
		{"proc/cmdline": "skew_tick=1 quiet skew_tick=0 quiet", "proc/irq/25/smp_affinity_list": "1"},
	} {
		for rule := range found(run(t, machine(t, "noisy.txtar", changes), lane)) {
			seen[rule] = true
		}
	}
	for rule := range found(run(t, machine(t, "noisy.txtar", nil), "2,10")) { // both threads of a core
		seen[rule] = true
	}
	var all []string
	for _, r := range rules() {
		all = append(all, r.id)
		if r.title == "" || r.impact == "" || r.source == "" {
			t.Errorf("rule %s lacks a title, impact or source", r.id)
		}
	}
	slices.Sort(all)
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, all) {
		t.Errorf("fired: %s\nrules: %s", got, all)
	}
}

// Without its settings no rule passes that needs them: unknown does not mean right.
func TestUnknownIsNotPassed(t *testing.T) {
	r := run(t, hosttest.Machine{Packages: 1, CoresPerPackage: 2, ThreadsPerCore: 2}.FS(), "1,3")
	want := []string{"lane-online", "boot-cpu", "whole-cores", "core-kinds", "partition", "resctrl"}
	want = append(want, "nohz-housekeeping", "rps-default", "hugepages-node", "hugepages-surplus", "turbo", "uncore", "mce-poll",
		"xps", "nic-vectors", "nic-node", "nic-node-unknown", "aspm", "iommu", "nic-coalescing", "net-daemon",
		"guest-idle") // the machine has no such thing at all
	for _, rule := range r.Passed {
		if !slices.Contains(want, rule) {
			t.Errorf("%s passed without anything to look at", rule)
		}
	}
}

// Traps of the field, where what is requested is not what it seems.
func TestTraps(t *testing.T) {
	const cmdline, policy, queues = "proc/cmdline", "sys/devices/system/cpu/cpufreq/policy14/", "sys/devices/virtual/workqueue/"
	for _, c := range []struct {
		name    string
		changes map[string]string
		lane    string
		rule    string // "" or one that must find something; with ! one that must not
		want    string // part of what it says is in force, or of the lane's source
	}{
		{"tuned.non_isolcpus is not isolcpus", map[string]string{cmdline: "tuned.non_isolcpus=000007e0"}, "14", "!isolcpus-list", ""},
		{"nor does it isolate", map[string]string{cmdline: "tuned.non_isolcpus=000007e0", "sys/devices/system/cpu/nohz_full": "(null)"},
			"", "", "no lanes known"},
		{"a stride", map[string]string{cmdline: "isolcpus=0-15:2/4"}, "", "", "0-1,4-5,8-9,12-13 isolcpus= on"},
		{"N after a number", map[string]string{cmdline: "isolcpus=domain,12-N"}, "", "", "12-15 isolcpus= on"},
		{"all is no cpulist of isolcpus", map[string]string{cmdline: "isolcpus=all"}, "14", "isolcpus-list", "takes all for an unknown flag"},
		{"N first is a flag that is wrong", map[string]string{cmdline: "isolcpus=N-3"}, "14", "isolcpus-list", "ignores the whole parameter"},
		{"all of nohz_full", map[string]string{cmdline: "nohz_full=all"}, "14", "nohz-boot-cpu", "nohz_full is 4-5"},
		{"N of nohz_full", map[string]string{cmdline: "nohz_full=8-N"}, "14", "!nohz-boot-cpu", ""},
		{"a flag of no kernel", map[string]string{cmdline: "isolcpus=io_queue,14"}, "14", "isolcpus-list", "skips io_queue and takes domain"},
		{"managed_irq alone", map[string]string{cmdline: "isolcpus=managed_irq,14"}, "14", "load-balancing", "without the flag domain"},
		{"the first isolcpus counts", map[string]string{cmdline: "isolcpus=managed_irq,domain,14 isolcpus=3"}, "14", "!isolcpus-managed", ""},
		{"two that differ", map[string]string{cmdline: "skew_tick=1 isolcpus=14 isolcpus=3 skew_tick=1"}, "14", "repeated", "2 parameters, with values that differ"},
		{"two that do not", map[string]string{cmdline: "skew_tick=1 tsc=reliable skew_tick=1"}, "14", "repeated", "1 parameter, each with the same value"},
		{"two that may", map[string]string{cmdline: "console=tty0 console=ttyS0 rd.lvm.lv=a rd.lvm.lv=b"}, "14", "!repeated", ""},
		{"what init gets is not the kernel's", map[string]string{cmdline: "quiet -- isolcpus=14 mce=off"}, "14", "!mce-off", ""},
		{"boot CPU dropped from nohz_full", nil, "14", "nohz-boot-cpu", "nohz_full is 4-5"},
		{"a split core", nil, "2", "whole-cores", "CPUs 10 beside lane CPUs 2"},
		{"an empty list of irqbalance", nil, "14", "irqbalance", "bans nothing"},
		{"a list of irqbalance", map[string]string{"etc/default/irqbalance": "IRQBALANCE_BANNED_CPULIST=14"}, "14", "!irqbalance", ""},
		{"a list of the lanes in force", map[string]string{"etc/default/irqbalance": "#",
			"run/systemd/system/irqbalance.service.d/50-isolane.conf": "Environment=ISOLANE_CPUS=14\n"}, "14", "!irqbalance", ""},
		{"tuned isolates another CPU", nil, "14", "tuned", "profile cpu-partitioning isolates CPUs 1"},
		{"tuned isolates the lanes'", map[string]string{"etc/tuned/cpu-partitioning-variables.conf": "isolated_cores=14\n"},
			"14", "!tuned", ""},
		{"no list of irqbalance", map[string]string{"etc/default/irqbalance": "#", "sys/devices/system/cpu/isolated": "14"}, "14", "!irqbalance", ""},
		{"a list that a drop-in has taken away", map[string]string{"etc/default/irqbalance": "#", "sys/devices/system/cpu/isolated": "14",
			"etc/systemd/system/irqbalance.service.d/a.conf": "[Service]\n#Environment=IRQBALANCE_BANNED_CPULIST=14\nEnvironment=\"A=1\" \"IRQBALANCE_BANNED_CPULIST=1\"\n"},
			"14", "irqbalance", "it bans CPUs 1 and"},
		{"a list of a drop-in", map[string]string{"etc/default/irqbalance": "#", "run/systemd/system/irqbalance.service.d/a.conf": "Environment='IRQBALANCE_BANNED_CPULIST=14'\n"},
			"14", "!irqbalance", ""},
		{"a file of the service counts more", map[string]string{"etc/default/irqbalance": "IRQBALANCE_BANNED_CPULIST=14",
			"etc/systemd/system/irqbalance.service.d/a.conf": "Environment=IRQBALANCE_BANNED_CPULIST=1\n"}, "14", "!irqbalance", ""},
		{"powersave of hardware", map[string]string{policy + "affected_cpus": "14", policy + "scaling_governor": "powersave",
			policy + "scaling_driver": "intel_pstate", policy + "energy_performance_preference": "performance"}, "14", "!governor", ""},
		{"powersave of a governor", map[string]string{policy + "affected_cpus": "14", policy + "scaling_governor": "powersave",
			policy + "scaling_driver": "intel_cpufreq", policy + "energy_performance_preference": "performance"}, "14", "governor", "governor powersave"},
		{"a governor that follows no load", map[string]string{policy + "affected_cpus": "14", policy + "scaling_governor": "userspace"}, "14", "!governor", ""},
		{"a frequency that cannot change", map[string]string{policy + "affected_cpus": "14", policy + "scaling_governor": "schedutil",
			policy + "scaling_min_freq": "2000000", policy + "scaling_max_freq": "2000000"}, "14", "!governor", ""},
		{"nor by the hardware", map[string]string{policy + "affected_cpus": "14", policy + "energy_performance_preference": "balance_power",
			policy + "scaling_min_freq": "2000000", policy + "scaling_max_freq": "2000000"}, "14", "!epp", ""},
		{"a kernel that knows no managed_irq", map[string]string{cmdline: "isolcpus=14", "proc/sys/kernel/osrelease": "5.4.0"}, "14", "!isolcpus-managed", ""},
		{"one that has it from a later one", map[string]string{cmdline: "isolcpus=14", "proc/sys/kernel/osrelease": "4.18.0-305.el8.x86_64"}, "14",
			"isolcpus-managed", "flags in force: domain"},
		{"what DMA means", map[string]string{"sys/kernel/iommu_groups/1/type": "DMA", "proc/sys/kernel/osrelease": "5.10.0"}, "14", "iommu", "groups translate"},
		{"a mitigation of 2025", map[string]string{cmdline: "tsa=off"}, "14", "mitigations", "vulnerabilities"},
		{"each mce= counts", map[string]string{cmdline: "mce=off mce=bootlog"}, "14", "mce-off", ""},
		{"so they do not contradict", map[string]string{cmdline: "mce=off mce=bootlog"}, "14", "!repeated", ""},
		{"the mask of all queues counts", map[string]string{queues + "cpumask": "3", queues + "writeback/cpumask": "ffff"}, "14", "!workqueues", ""},
		{"also where a queue's has none of it", map[string]string{queues + "cpumask": "4000", queues + "writeback/cpumask": "1"}, "14", "workqueues", "2 files"},
		{"a guest that polls does not halt", map[string]string{cmdline: "idle=poll"}, "14", "!guest-idle", ""},
		{"networkd has the uplink", map[string]string{"run/NetworkManager/devices/11": ""}, "14", "net-daemon", "manages eth9, a port of islbr-eth9"},
		{"and leaves it in its bridge", map[string]string{"run/NetworkManager/devices/11": "",
			"etc/systemd/network/10-wired.network.d/a.conf": "[Network]\nKeepMaster=yes\n"}, "14", "!net-daemon", ""},
		{"networkd has all devices", map[string]string{"run/NetworkManager/devices/11": "", "run/systemd/netif/links/9": "",
			"run/systemd/netif/links/11": "ADMIN_STATE=configuring\nNETWORK_FILE=/etc/systemd/network/10-wired.network"}, "14",
			"net-daemon", "systemd-networkd manages isl-web"},
		{"NetworkManager has them", map[string]string{"run/systemd/netif/links/9": ""}, "14", "net-daemon", "NetworkManager manages isl-web"},
		{"and the uplink", map[string]string{"run/systemd/netif/links/9": "", "run/NetworkManager/devices/11": "",
			"run/NetworkManager/devices/9": "[device]\nmanaged=true\n"}, "14", "net-daemon", "NetworkManager manages eth9, a port"},
		{"set, and not fired since", map[string]string{"proc/irq/25/smp_affinity_list": "1"}, "3", "irq-pending", "1 of 4"},
		{"so it is as good as gone", map[string]string{"proc/irq/25/smp_affinity_list": "1"}, "3", "!irq-directed", ""},
		{"nor does its thread", map[string]string{"proc/irq/24/smp_affinity_list": "1"}, "2", "!irq-threads", ""},
		{"a thread of one that is not", nil, "2", "irq-threads", "1 of"},
		{"also from its card", map[string]string{"proc/irq/25/smp_affinity_list": "1"}, "2-3", "nic-vectors", "1 of 2 vectors"},
		{"vectors by card", nil, "2-3", "nic-vectors", "2 of 2 vectors of network cards go to lane CPUs"},
		{"an L3 of the lane's own", nil, "0-3,8-11", "!resctrl", ""},
		{"an L3 that others have too", nil, "2-3", "resctrl", "the CPU can divide its L3"},
		{"managed interrupts have their own fix", nil, "2", "irq-managed", "1 of 4"},
		{"a partition isolates", map[string]string{"sys/fs/cgroup/cpuset.cpus.isolated": "14"}, "14", "!load-balancing", ""},
		{"a partition that balances over the lane's CPUs alone", map[string]string{"sys/fs/cgroup/isolane-a/cpuset.cpus.partition": "root",
			"sys/fs/cgroup/isolane-a/cpuset.cpus.effective": "2-3"}, "2-3", "!load-balancing", ""},
		{"over others too", map[string]string{"sys/fs/cgroup/a/cpuset.cpus.partition": "root", "sys/fs/cgroup/a/cpuset.cpus.effective": "2-5"},
			"2-3", "load-balancing", "CPUs 2-3"},
		{"one that is not valid", map[string]string{"sys/fs/cgroup/a/cpuset.cpus.partition": "root invalid (x)",
			"sys/fs/cgroup/a/cpuset.cpus.effective": "2-3"}, "2-3", "load-balancing", "CPUs 2-3"},
		{"v1: a lane balances over its own CPUs", map[string]string{"sys/fs/cgroup/cpuset/cpuset.sched_load_balance": "0",
			"sys/fs/cgroup/cpuset/a/cpuset.sched_load_balance": "1", "sys/fs/cgroup/cpuset/a/cpuset.effective_cpus": "2-3",
			"sys/fs/cgroup/cpuset/rest/cpuset.sched_load_balance": "1", "sys/fs/cgroup/cpuset/rest/cpuset.effective_cpus": "0-1,4-15"},
			"2-3", "!load-balancing", ""},
		{"v1: balancing off", map[string]string{"sys/fs/cgroup/cpuset/cpuset.sched_load_balance": "0",
			"sys/fs/cgroup/cpuset/rest/cpuset.sched_load_balance": "1", "sys/fs/cgroup/cpuset/rest/cpuset.effective_cpus": "0-13"},
			"14", "!load-balancing", ""},
		{"v1: balancing off at the root only", map[string]string{"sys/fs/cgroup/cpuset/cpuset.sched_load_balance": "0",
			"sys/fs/cgroup/cpuset/rest/cpuset.sched_load_balance": "1", "sys/fs/cgroup/cpuset/rest/cpuset.effective_cpus": "0-15"},
			"14", "load-balancing", "CPUs 14"},
		{"v1: a quota", map[string]string{"sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpuset/pod/cpuset.effective_cpus": "14"},
			"14", "quota", "1 cgroups"},
		{"a quota above", map[string]string{"sys/fs/cgroup/a/cpu.max": "50000 100000", "sys/fs/cgroup/a/cpuset.cpus.effective": "12-15",
			"sys/fs/cgroup/a/b/c/cpuset.cpus.effective": "14"}, "14", "quota", "1 cgroups"},
		{"a quota below, without a cpuset", map[string]string{"sys/fs/cgroup/a/cpuset.cpus.effective": "14",
			"sys/fs/cgroup/a/b/cpu.max": "50000 100000"}, "14", "quota", "1 cgroups"},
		{"a quota of others", map[string]string{"sys/fs/cgroup/a/cpuset.cpus.effective": "12-15", "sys/fs/cgroup/a/b/cpu.max": "50000 100000",
			"sys/fs/cgroup/ab/cpuset.cpus.effective": "14"}, "14", "!quota", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, machine(t, "noisy.txtar", c.changes), c.lane)
			rule, unwanted := strings.CutPrefix(c.rule, "!")
			f, ok := found(r)[rule]
			switch {
			case c.rule == "":
				if got := r.CPUs.String() + " " + r.LaneSource; !strings.Contains(got, c.want) {
					t.Errorf("lane CPUs %s, want %s", got, c.want)
				}
			case ok == unwanted:
				t.Errorf("%s found: %v; want %v: %+v", rule, ok, !unwanted, f)
			case !strings.Contains(f.InForce, c.want):
				t.Errorf("%s: in force %q, want %q", rule, f.InForce, c.want)
			}
		})
	}
}

// A fix must not have a flag for which the kernel would ignore the whole parameter.
func TestFixOfOldKernels(t *testing.T) {
	for release, want := range map[string]string{"6.1.0": "isolcpus=domain,managed_irq,2 ", "5.4.0": "isolcpus=domain,2 ", "4.14.0": "isolcpus=2 "} {
		by := found(run(t, machine(t, "noisy.txtar", map[string]string{"proc/sys/kernel/osrelease": release, "proc/cmdline": "quiet"}), "2"))
		if fix := by["load-balancing"].FixAtBoot; !strings.HasPrefix(fix, want) {
			t.Errorf("%s: %q", release, fix)
		}
		if fix := by["irq-managed"].FixAtBoot; strings.HasPrefix(fix, "from Linux 5.6 on") != (release != "6.1.0") {
			t.Errorf("%s: %q", release, fix)
		}
	}
}

// Without lanes nothing can be broken yet.
func TestReadiness(t *testing.T) {
	r := run(t, machine(t, "noisy.txtar", map[string]string{"proc/cmdline": "quiet", "sys/devices/system/cpu/nohz_full": "(null)"}), "")
	if !r.Readiness || r.CPUs.String() != "1-7,9-15" || r.Worst() != audit.Warn || len(r.NeedLanes) == 0 ||
		!strings.HasPrefix(r.Verdict(), "not prepared for lanes: 0 faults") {
		t.Errorf("readiness %v, lane CPUs %s, worst %s, %s", r.Readiness, r.CPUs, r.Worst(), r.Verdict())
	}
}

// An engineer reads the first lines: queues of network and storage devices come first, and interrupts without
// a handler last. Only a guest is told about guests, and no missing thing is quoted.
func TestText(t *testing.T) {
	changes := map[string]string{
		"proc/irq/1/effective_affinity_list": "2", "proc/cmdline": "isolcpus=2 nohz_full=0,2", "sys/devices/system/cpu/nohz_full": "(null)",
		"etc/default/irqbalance": "#", "proc/cpuinfo": "flags : fpu hypervisor", "proc/sys/vm/swappiness": "",
		"proc/interrupts":                    "           CPU0\n  0: 1 IO-APIC 2-edge timer\n  1: 0 IO-APIC 1-edge\n 24: 1 PCI-MSI-0000:bb:00.0 0-edge ens1f0-0\n 27: 0 PCI-MSI-0000:bc:00.0 0-edge x\n",
		"proc/irq/0/effective_affinity_list": "0", "proc/irq/27/effective_affinity_list": "0", "proc/irq/24/effective_affinity_list": "0",
	}
	r := run(t, machine(t, "noisy.txtar", changes), "0,2")
	shown := r.Text(terminal.Terminal{Columns: 100})
	fired, directed := found(r)["irq-fired"].Evidence, found(r)["irq-directed"].Evidence
	if len(fired) != 2 || !strings.HasPrefix(fired[0], "IRQ 24 ") || !strings.HasPrefix(fired[1], "IRQ 0 ") ||
		len(directed) == 0 || !strings.HasPrefix(directed[len(directed)-1], "IRQ 1:") {
		t.Errorf("fired %q, directed %q", fired, directed)
	}
	if strings.Contains(shown, `""`) || !strings.Contains(shown, "offloaded from no CPU") {
		t.Errorf("empty quotes: %s", shown)
	}
	bare := run(t, machine(t, "noisy.txtar", map[string]string{"proc/cpuinfo": "flags : fpu"}), "0,2")
	if text := found(bare)["boot-cpu"].Fix; strings.Contains(text, "guest") || !strings.Contains(found(r)["boot-cpu"].Fix, "in a guest too") {
		t.Errorf("on bare metal: %s", text)
	}
}

func TestWrite(t *testing.T) {
	r := run(t, machine(t, "noisy.txtar", map[string]string{"proc/sys/kernel/hostname": "evil\x1b[2J"}), "0,2-3,14")
	for i := range 500 {
		r.Findings[0].Evidence = append(r.Findings[0].Evidence, strings.Repeat("1,", i)+"2")
	}
	shown := r.Text(terminal.Terminal{Columns: 60})
	if strings.Contains(shown, "\x1b") || strings.Count(shown, "\n") > 1000 || !strings.Contains(shown, "more, which -o json lists") {
		t.Errorf("%d lines: %.300s", strings.Count(shown, "\n"), shown)
	}
	for line := range strings.Lines(shown) {
		if len([]rune(line)) > 61 {
			t.Errorf("longer than 60: %s", line)
		}
	}
}

// A machine with one file changed in any way can be audited: without a panic, without more than two pages of
// text or control characters that a terminal would obey, and with each rule found, passed, unknown or in need
// of lanes.
func FuzzRun(f *testing.F) {
	files := machine(f, "noisy.txtar", nil)
	names := slices.Sorted(maps.Keys(files))
	for i := 0; i < len(names); i += 16 { // the fuzzer finds the others
		f.Add(uint16(i), string(files[names[i]].Data), "0,2-3,14")
	}
	f.Add(uint16(0), "-1\n", "")
	f.Fuzz(func(t *testing.T, which uint16, text, lane string) {
		cpus, err := cpuset.Parse(lane)
		if err != nil {
			return
		}
		changed := maps.Clone(files)
		changed[names[int(which)%len(names)]] = &fstest.MapFile{Data: []byte(text)}
		h, err := host.Read(changed)
		if err != nil {
			return // no CPUs
		}
		r := Run(h, settings.Read(changed), cpus, "fuzz")
		said := map[string]bool{}
		for _, id := range slices.Concat(r.Passed, r.NeedLanes) {
			said[id] = true
		}
		for _, u := range r.Unknown {
			said[u.Rule] = true
		}
		for _, finding := range r.Findings {
			said[finding.Rule] = true
		}
		shown := r.Text(terminal.Terminal{Columns: 100})
		if len(said) != len(rules()) || strings.ContainsAny(shown, "\x1b\x07\x00") {
			t.Errorf("%s: %d of %d rules: %.500q", names[int(which)%len(names)], len(said), len(rules()), shown)
		}
	})
}
