package enforce_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/guard"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/knob"
	"isolane.dev/isolane/plan"
)

// BenchmarkApply100 applies 100 lanes of two CPUs to a directory that stands in for a machine with 256 CPUs
// and 1,000 interrupts. Set TMPDIR to a tmpfs, because on a host the journal is on one.
func BenchmarkApply100(b *testing.B) {
	for _, mounts := range []string{"cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0"} {
		version, _, _ := strings.Cut(mounts, " ")
		b.Run(version, func(b *testing.B) {
			var p plan.Placement
			for i := range 100 {
				p.Lanes = append(p.Lanes, plan.Lane{Name: fmt.Sprintf("lane-%d", i), CPUs: cpuset.Of(56+2*i, 57+2*i), MemoryNodes: cpuset.Of(i / 50)})
			}
			p.Housekeeping = cpuset.MustParse("0-55")
			for b.Loop() {
				b.StopTimer()
				dir, state := large(b, mounts), filepath.Join(b.TempDir(), "run")
				root, err := host.Dir(dir)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				l, err := enforce.Open(state, root, enforce.Drivers{Ops: knob.Ops(dir)})
				if err != nil {
					b.Fatal(err)
				}
				if err = errors.Join(l.Apply(b.Context(), p), l.Close()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(l.Settings()), "settings")
			}
		})
	}
}

// BenchmarkCheck looks for drift of eight lanes on such a machine. watch does this once a second, and the part of a Kubernetes node every five.
func BenchmarkCheck(b *testing.B) {
	for _, mounts := range []string{"cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0"} {
		version, _, _ := strings.Cut(mounts, " ")
		b.Run(version, func(b *testing.B) { benchmarkCheck(b, mounts) })
	}
}

func benchmarkCheck(b *testing.B, mounts string) {
	b.Helper()
	dir, state := large(b, mounts), filepath.Join(b.TempDir(), "run")
	root, err := host.Dir(dir)
	if err != nil {
		b.Fatal(err)
	}
	p := plan.Placement{APIVersion: plan.APIVersion, Kind: plan.Kind, Housekeeping: cpuset.MustParse("0-239")}
	for i := range 8 {
		l := plan.Lane{Name: fmt.Sprintf("lane-%d", i), CPUs: cpuset.Of(240+2*i, 241+2*i), MemoryNodes: cpuset.Of(1)}
		l.Spec.CPUs.Count = 2
		p.Lanes = append(p.Lanes, l)
	}
	l, err := enforce.Open(state, root, enforce.Drivers{Ops: knob.Ops(dir)})
	if err != nil {
		b.Fatal(err)
	}
	if err = errors.Join(l.Apply(b.Context(), p), l.Close()); err != nil {
		b.Fatal(err)
	}
	g, err := guard.New(state, root, enforce.Drivers{Ops: knob.Ops(dir)})
	if err != nil {
		b.Fatal(err)
	}
	defer g.Close()
	var before, after unix.Rusage
	if err = unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if found, cerr := g.Check(b.Context(), false); cerr != nil || len(found) > 0 {
			b.Fatal(found, cerr)
		}
	}
	if err = unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		b.Fatal(err)
	}
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(used)/float64(b.N)/1e6, "cpu-ms/op")
	b.ReportMetric(float64(l.Settings()), "settings")
}

func large(b *testing.B, mounts string) string {
	b.Helper()
	tree := hosttest.Machine{Packages: 2, CoresPerPackage: 64, ThreadsPerCore: 2}.FS()
	put := map[string]string{"proc/mounts": mounts, "sys/fs/cgroup/cgroup.controllers": "cpuset", "sys/fs/cgroup/cgroup.subtree_control": "",
		"sys/fs/cgroup/cpuset/cpuset.sched_load_balance": "1", "proc/irq/default_smp_affinity": strings.Repeat("ffffffff,", 7) + "ffffffff",
		"sys/devices/virtual/workqueue/cpumask": strings.Repeat("ffffffff,", 7) + "ffffffff"}
	interrupts := "     CPU0\n"
	for irq := 24; irq < 1024; irq++ {
		interrupts += fmt.Sprintf(" %d: 0 IO-APIC 1-edge x%[1]d\n", irq)
		put[fmt.Sprintf("proc/irq/%d/smp_affinity_list", irq)] = "0-255"
	}
	put["proc/interrupts"] = interrupts
	for cpu := range 256 {
		put[fmt.Sprintf("sys/devices/system/cpu/cpu%d/power/pm_qos_resume_latency_us", cpu)] = "0"
	}
	dir := b.TempDir()
	write := func(name, content string) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			b.Fatal(err)
		}
	}
	for name, f := range tree {
		if f.Mode&fs.ModeSymlink == 0 {
			write(name, string(f.Data))
		}
	}
	for name, content := range put {
		write(name, content+"\n")
	}
	return dir
}

// BenchmarkApply puts one lane in force on this machine and releases it; apply-ns is the time of the first.
func BenchmarkApply(b *testing.B) {
	hosttest.Need(b, hosttest.Root, hosttest.CgroupCpuset, hosttest.CPUs(2))
	h, err := host.Read(host.Live())
	if err != nil {
		b.Fatal(err)
	}
	lane := cpuset.Of(h.Usable().Last())
	p := plan.Placement{Housekeeping: h.Usable().Difference(lane), Lanes: []plan.Lane{{Name: "bench", CPUs: lane, MemoryNodes: h.MemoryNodes()}}}
	state := filepath.Join(b.TempDir(), "run")
	for b.Loop() {
		l, err := enforce.Open(state, host.Live(), enforce.Drivers{Ops: knob.Ops("/")})
		if err != nil {
			b.Fatal(err)
		}
		err = l.Apply(b.Context(), p)
		b.StopTimer()
		if err = errors.Join(err, l.Apply(b.Context(), plan.Placement{}), l.Close()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
