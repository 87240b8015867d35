package witness

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// collecting is a kernel that takes the programs of a trace.
func collecting() string {
	c, err := newCollector(os.DirFS("/"), scope{measured: cpuset.Of(0)})
	if err == nil {
		err = c.close()
	}
	if err != nil {
		return "needs eBPF at the kernel's tracepoints: " + err.Error()
	}
	return ""
}

// trace watches a CPU until the test ends.
func trace(tb testing.TB, cpu int, own ...string) *Trace {
	tb.Helper()
	return traceOwned(tb, cpu, Owned{Cgroups: own})
}

func traceOwned(tb testing.TB, cpu int, own Owned) *Trace {
	tb.Helper()
	t, err := NewTrace(os.DirFS("/"), cpuset.Of(cpu), own)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := t.Close(); err != nil {
			tb.Error(err)
		}
	})
	if t.Evidence() != "bpf" {
		tb.Fatalf("evidence %s: %q", t.Evidence(), t.Warnings())
	}
	return t
}

func read(tb testing.TB, t *Trace) []Source {
	tb.Helper()
	r, err := t.Read()
	if err != nil {
		tb.Fatal(err)
	}
	return r.Since
}

// ofProcess returns what the tasks of a process took.
func ofProcess(all []Source, pid int) (found []Source, total time.Duration) {
	for _, s := range all {
		if s.PID == pid {
			found = append(found, s)
			total += time.Duration(*s.Total)
		}
	}
	return found, total
}

func TestTraceFindsTask(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	b := start(t, "burn", 0)
	other := trace(t, 1)
	tr := trace(t, 0)
	before := b.burn(1)
	spent := b.burn(100) - before
	all := read(t, tr)
	found, total := ofProcess(all, b.pid())
	if len(found) == 0 || total < spent/2 {
		t.Fatalf("process %d: %s of %s: %+v", b.pid(), total, spent, all)
	}
	for _, s := range found {
		if s.Kind != results.Task || s.CPU != 0 || s.Name != comm() || s.Cgroup != cgroup.PathOf(os.DirFS("/"), task.Dir(b.pid())) ||
			s.Remedy != "keep it off with the housekeeping cpuset" {
			t.Errorf("%+v", s)
		}
	}
	if found, _ = ofProcess(read(t, other), b.pid()); len(found) > 0 {
		t.Errorf("on CPU 1: %+v", found)
	}
	if later, again := ofProcess(read(t, tr), b.pid()); again < total {
		t.Errorf("%s, then less: %+v", total, later)
	}
	more := b.burn(150) - spent - before
	r, err := tr.Read()
	if err != nil {
		t.Fatal(err)
	}
	_, sum := ofProcess(r.Since, b.pid())
	if last, took := ofProcess(r.Last, b.pid()); took < more/2 || took > sum-total/2 {
		t.Errorf("%s since the reading before, %s in all, it spent %s: %+v", took, sum, more, last)
	}
}

// The rows of a CPU do not overlap, so that their sum is no longer than the window.
func TestTraceKinds(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	b := start(t, "burn", 0)
	began := time.Now()
	tr := trace(t, 0)
	kinds := map[string]bool{}
	var all []Source
	for deadline := began.Add(20 * time.Second); time.Now().Before(deadline); { // until each was there
		b.burn(50)
		all = read(t, tr)
		for _, s := range all {
			kinds[s.Kind] = true
		}
		if kinds[results.Task] && kinds[results.KernelThread] && kinds[results.Softirq] && (kinds[results.Tick] || kinds[results.Interrupt]) {
			break
		}
	}
	window := results.Nanoseconds(time.Since(began))
	if !kinds[results.Task] || !kinds[results.KernelThread] || !kinds[results.Softirq] || !kinds[results.Tick] && !kinds[results.Interrupt] {
		t.Errorf("kinds: %v", kinds)
	}
	var sum results.Nanoseconds
	for _, s := range all {
		if s.Kind == results.Steal {
			continue // it is a part of the others
		}
		sum += *s.Total
		if *s.Longest > *s.Total || s.P99 != nil && *s.P99 > *s.Longest || s.Name == "" || s.Remedy == "" {
			t.Errorf("%+v", s)
		}
	}
	if sum > window {
		t.Errorf("%s of %s", time.Duration(sum), time.Duration(window))
	}
}

// A run that has not ended is seen, here that of the thread that reads, once an interrupt has told
// who is on the CPU.
func TestTraceOfRunThatGoesOn(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	pid := 0
	err := onFirstCPU(func() error {
		tr := trace(t, 0)
		for deadline := time.Now().Add(20 * time.Second); pid == 0 && time.Now().Before(deadline); {
			all := read(t, tr)
			if at := slices.IndexFunc(all, func(s Source) bool { return s.TID == unix.Gettid() }); at >= 0 {
				pid = all[at].PID
			}
		}
		return nil
	})
	if err != nil || pid != os.Getpid() {
		t.Errorf("process %d: %v", pid, err)
	}
}

// Tasks of an own cgroup and of one below it are no sources; all others on the same CPU are, also those of a
// cgroup that is own on another CPU.
func TestTraceLeavesOwnOut(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	dir := makeCgroup(t, "isolane-test-"+strconv.Itoa(os.Getpid()))
	below := makeCgroup(t, filepath.Join(filepath.Base(dir), "below"))
	other := makeCgroup(t, filepath.Base(dir)+"-other")
	app, nested, intruder, stray := start(t, "burn", 0), start(t, "burn", 0), start(t, "burn", 0), start(t, "burn", 0)
	join(t, dir, app.pid())
	join(t, below, nested.pid())
	join(t, other, stray.pid())
	tr := traceOwned(t, 0, Owned{Cgroups: []string{dir, other}, CPUs: []cpuset.Set{cpuset.Of(0), cpuset.Of(1)}})
	for _, b := range []*burner{app, nested, intruder, stray} {
		b.burn(20)
	}
	all := read(t, tr)
	for _, b := range []*burner{app, nested} {
		if found, _ := ofProcess(all, b.pid()); len(found) > 0 {
			t.Errorf("own: %+v", found)
		}
		b.end() // so that its cgroup can go
	}
	for _, b := range []*burner{intruder, stray} {
		if found, _ := ofProcess(all, b.pid()); len(found) == 0 {
			t.Errorf("process %d is missing: %+v", b.pid(), all)
		}
	}
	stray.end()
	if _, err := NewTrace(os.DirFS("/"), cpuset.Of(0), Owned{Cgroups: []string{t.TempDir()}}); err == nil {
		t.Error("a directory that is no cgroup is taken")
	}
}

// makeCgroup makes a cgroup until the test ends.
func makeCgroup(tb testing.TB, name string) string {
	tb.Helper()
	mount, v1, err := hierarchy(os.DirFS("/"))
	if err != nil {
		tb.Fatal(err)
	}
	dir := filepath.Join(mount, name)
	if err = os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if wrong := os.Remove(dir); wrong != nil {
			tb.Error(wrong)
		}
	})
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		if v1 {
			copyUp(tb, filepath.Join(dir, file))
		}
	}
	return dir
}

// copyUp gives a v1 cpuset what the one above it has: it takes no tasks before.
func copyUp(tb testing.TB, file string) {
	tb.Helper()
	above := filepath.Join(filepath.Dir(filepath.Dir(file)), filepath.Base(file))
	value, err := os.ReadFile(above)
	if err == nil {
		err = os.WriteFile(file, value, 0)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func join(tb testing.TB, dir string, pid int) {
	tb.Helper()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
		tb.Fatal(err)
	}
}

// What finds no room of its own is added up.
func TestTraceOfTooMany(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	tr := trace(t, 0)
	for id := uint64(0); ; id++ {
		err := tr.kernel.coll.Maps["sources"].Put(sourceKey{Kind: 1, ID: id, Start: 1}, sourceValue{})
		if err != nil {
			break // full
		}
	}
	b := start(t, "burn", 0)
	b.burn(20)
	all := read(t, tr)
	others := slices.IndexFunc(all, func(s Source) bool { return s.Name == "others" && s.Kind == results.Task && s.TID == 0 })
	if others < 0 || *all[others].Count == 0 || time.Duration(*all[others].Longest) <= 0 {
		t.Errorf("%+v", all)
	}
}

// A kworker's row says which function it ran, and an interrupt's or softirq's is on the right CPU.
func TestTraceNamesWork(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	tr := trace(t, 0)
	b := start(t, "burn", 0)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		b.burn(50)
		for _, s := range read(t, tr) {
			if s.Work != "" {
				if !strings.HasPrefix(s.Name, "kworker/") || s.Kind != results.KernelThread {
					t.Errorf("%+v", s)
				}
				return
			}
		}
	}
	t.Error("no kworker with its function")
}

func TestHistogram(t *testing.T) {
	var v sourceValue
	if v.p99() != nil {
		t.Error("a percentile of nothing")
	}
	for range 99 {
		v.add(1000)
	}
	if v.p99() != nil {
		t.Error("a percentile of 99")
	}
	v.add(1_000_000)
	if p := *v.p99(); p != 1024 {
		t.Errorf("P99 %d, want the bound of 1000's bucket, 1024", p)
	}
	v.add(1_000_000)
	if p := *v.p99(); p != 1_000_000 {
		t.Errorf("P99 %d, want the longest", p)
	}
	for ns := uint64(1); ns < 1<<40; ns += ns/7 + 1 {
		one := sourceValue{}
		one.add(ns)
		at := slices.Index(one.Buckets[:], 1)
		if at < len(one.Buckets)-1 && (upper(at) <= ns || upper(at) > ns+max(64, ns/8)) {
			t.Fatalf("%d ns in a bucket that ends at %d", ns, upper(at))
		}
	}
}

func TestTraceFromProc(t *testing.T) {
	const switched = "voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t3\n"
	root := func(interrupts, softirqs, stat, ran string) fstest.MapFS {
		files := fstest.MapFS{
			"sys/devices/system/cpu/online": {Data: []byte("0-1\n")},
			"proc/interrupts":               {Data: []byte(interrupts)},
			"proc/softirqs":                 {Data: []byte(softirqs)},
			"proc/stat":                     {Data: []byte(stat)},
			"c/lane/below/cgroup.threads":   {Data: []byte("12\n")},
			"c/lane/cgroup.threads":         {Data: []byte("13\n")},
		}
		for _, pid := range []string{"10", "11", "12", "13"} {
			line := statLine(pid, "p"+pid, "S", "1", "0", "0", "0", "100", "1")
			for _, dir := range []string{"proc/" + pid, "proc/" + pid + "/task/" + pid} {
				files[dir+"/stat"] = &fstest.MapFile{Data: []byte(line)}
				files[dir+"/schedstat"] = &fstest.MapFile{Data: []byte(ran)}
				files[dir+"/status"] = &fstest.MapFile{Data: []byte("Cpus_allowed_list:\t1\n" + switched)}
				files[dir+"/cgroup"] = &fstest.MapFile{Data: []byte("0::/system.slice\n")}
			}
		}
		files["proc/11/task/11/status"] = &fstest.MapFile{Data: []byte("Cpus_allowed_list:\t0-1\n" + switched)}
		return files
	}
	const cpus = "     CPU0   CPU1\n"
	tr := &Trace{root: root(cpus+" 24: 0 5 IO-APIC 5-edge eth0\nLOC: 0 7 Local timer\nNMI: 0 1 Non-maskable\n",
		cpus+"NET_RX: 0 1\n", "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 3\n", "100 0 1"),
		cpus: cpuset.Of(1), own: Owned{Cgroups: []string{"/c/lane"}}, tasks: map[taskID]taskSource{}}
	if err := tr.begin(); err != nil {
		t.Fatal(err)
	}
	tr.root = root(cpus+" 24: 9 8 IO-APIC 5-edge eth0\nLOC: 0 9 Local timer\nNMI: 0 1 Non-maskable\n",
		cpus+"NET_RX: 5 5\n", "cpu0 0 0 0 0 0 0 0 9\ncpu1 0 0 0 0 0 0 0 5\n", "400 0 3")
	irq := 24
	want := []Source{
		{CPU: 1, Kind: results.Steal, Name: "hypervisor", Total: new(2 * tick)},
		{CPU: 1, Kind: results.Task, Name: "p10", Cgroup: "/system.slice", PID: 10, TID: 10, Count: new(uint64(2)),
			Total: new(results.Nanoseconds(300))},
		{CPU: 1, Kind: results.Task, Name: "p11", Cgroup: "/system.slice", PID: 11, TID: 11, AtMost: new(results.Nanoseconds(300))},
		{CPU: 1, Kind: results.Softirq, Name: "NET_RX", Count: new(uint64(4))},
		{CPU: 1, Kind: results.Interrupt, Name: "eth0", IRQ: &irq, Count: new(uint64(3))},
		{CPU: 1, Kind: results.Tick, Name: "local timer", Count: new(uint64(2))},
	}
	for i := range want {
		want[i].Remedy = remedies().find(want[i].Kind, want[i].Name, want[i].PID)
		if want[i].Remedy == "" {
			t.Errorf("nothing to do about %+v", want[i])
		}
	}
	if diff := cmp.Diff(want, read(t, tr)); diff != "" {
		t.Error(diff)
	}
	for _, path := range []string{"proc/10/stat", "proc/10/task/10/stat"} { // it has ended: its row stays
		delete(tr.root.(fstest.MapFS), path)
	}
	if diff := cmp.Diff(want, read(t, tr)); diff != "" {
		t.Error(diff)
	}
	delete(tr.root.(fstest.MapFS), "proc/stat")
	if _, err := tr.Read(); err == nil || !strings.Contains(err.Error(), "proc/stat") {
		t.Errorf("without /proc/stat: %v", err)
	}
	text, err := json.Marshal(want[5])
	if err != nil || !strings.Contains(string(text), `"totalNanoseconds":null`) {
		t.Errorf("%s, %v", text, err)
	}
}

func TestTraceOfNoSuchCPU(t *testing.T) {
	root := fstest.MapFS{"sys/devices/system/cpu/online": {Data: []byte("0-1\n")}}
	for _, cpus := range []cpuset.Set{{}, cpuset.Of(1, 2)} {
		if _, err := NewTrace(fs.FS(root), cpus, Owned{}); err == nil {
			t.Errorf("%s: no error", cpus)
		}
	}
}
