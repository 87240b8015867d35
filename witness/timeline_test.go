package witness

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/witness/tail"
)

// recording is a trace that can note single intrusions.
func recording(t *testing.T, cpus cpuset.Set, room int, own ...string) *collector {
	t.Helper()
	tr, err := newTrace(os.DirFS("/"), scope{measured: cpus, own: Owned{Cgroups: own}, keepOwn: true, room: room}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err = tr.begin(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	if tr.kernel == nil || tr.kernel.notes == nil {
		t.Skipf("skipped: needs a ring buffer: %q", tr.Warnings())
	}
	return tr.kernel
}

func now(t *testing.T) results.Nanoseconds {
	t.Helper()
	ns, err := monotonic()
	if err != nil {
		t.Fatal(err)
	}
	return results.Nanoseconds(ns)
}

func TestRecorded(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	c := recording(t, cpuset.Of(0), timelineBytes)
	b := start(t, "burn", 0)
	b.burn(5) // before the recording
	began := now(t)
	if err := c.record(); err != nil {
		t.Fatal(err)
	}
	spent := -b.burn(0)
	spent += b.burn(20)
	all, lost, err := c.recorded(of(func(taskSource) string { return "" }))
	ended := now(t)
	if err != nil || lost > 0 {
		t.Fatalf("%d lost, %v", lost, err)
	}
	var ran results.Nanoseconds
	for _, in := range all {
		if in.CPU != 0 || in.End-in.Begin < 2000 || in.End < began || in.End > ended || in.Kind == tail.Own || in.Name == "" {
			t.Errorf("from %d to %d: %+v", began, ended, in)
		}
		if in.Kind == results.Task && in.Name == comm() {
			ran += in.End - in.Begin
		}
	}
	if int64(ran) < int64(spent)/2 { // with what interrupted it; runs below 2 µs are missing
		t.Errorf("%d ns of %d: %+v", ran, spent, all)
	}
	b.burn(5)
	if err = c.record(); err != nil {
		t.Fatal(err)
	}
	if all, _, err = c.recorded(of(func(taskSource) string { return "" })); err != nil || len(all) > 0 && all[0].End < ended {
		t.Errorf("an intrusion from between the recordings: %+v, %v", all, err)
	}
}

// A window's evidence has what took time on the measured CPUs, and nothing is left of the trace.
func TestSourcesOfWindow(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	b := start(t, "burn", 0)
	s := begin(t, Watch{Measured: cpuset.Of(0)})
	s.Record()
	b.burn(50)
	all, _, ok := s.Recorded()
	w := end(t, s)
	if found, _ := ofProcess(w.Sources, b.pid()); len(found) == 0 || len(w.Sources) > maxSources+len(kinds())+1 {
		t.Errorf("process %d is missing: %+v", b.pid(), w.Sources)
	}
	if !ok || len(all) == 0 {
		t.Errorf("%v, %d intrusions", ok, len(all))
	}
	s = begin(t, Watch{Measured: cpuset.Of(0), NoBPF: true})
	s.Record()
	if all, _, ok = s.Recorded(); ok || len(all) > 0 {
		t.Errorf("%d intrusions without eBPF", len(all))
	}
	for _, o := range end(t, s).Sources { // from /proc
		if o.CPU != 0 || o.Longest != nil {
			t.Errorf("without eBPF: %+v", o)
		}
	}
}

// What finds no room is counted, and only in the recording in which it was lost.
func TestRecordedLost(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	c := recording(t, cpuset.Of(0), os.Getpagesize())
	b := start(t, "burn", 0)
	if err := c.record(); err != nil {
		t.Fatal(err)
	}
	for range 500 { // two switches each at least, and 85 notes have room
		b.burn(0)
	}
	if all, lost, err := c.recorded(of(func(taskSource) string { return "" })); err != nil || len(all) == 0 || lost == 0 {
		t.Errorf("%d noted, %d lost, %v", len(all), lost, err)
	}
	if _, lost, err := c.recorded(of(func(taskSource) string { return "" })); err != nil || lost > 0 {
		t.Errorf("%d lost again, %v", lost, err)
	}
}

// Where there is no room for when own tasks are woken, that is told: it is no note that was lost.
func TestRecordedWakeUpsLost(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	mount, _, err := hierarchy(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	c := recording(t, cpuset.Of(0), timelineBytes, mount)
	for tid := uint32(1 << 30); err == nil; tid++ { // until it is full
		err = c.coll.Maps["woken"].Put(tid, uint64(0))
	}
	b := start(t, "burn", 0)
	if err = c.record(); err != nil {
		t.Fatal(err)
	}
	b.burn(0)
	_, lost, err := c.recorded(of(func(st taskSource) string { return st.Name }))
	if err != nil || lost > 0 {
		t.Errorf("%d lost, %v", lost, err)
	}
	tr := &Trace{kernel: c}
	if _, _, err = tr.collect(); err != nil || len(tr.Warnings()) != 1 || !strings.Contains(tr.Warnings()[0], "wake-up") {
		t.Errorf("%q, %v", tr.Warnings(), err)
	}
}

// A reason for which the tick could not stop ends when it has stopped, also where it did while the CPU idled.
func TestTickStopsInIdle(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	if set, err := cpuset.Read(os.DirFS("/"), "sys/devices/system/cpu/nohz_full"); err == nil && !set.IsEmpty() {
		t.Skip("skipped: with nohz_full CPU 0 never stops the tick, which keeps the time")
	}
	c := recording(t, cpuset.Of(0), timelineBytes)
	if c.coll.Programs["tick_stop"] == nil {
		t.Skip("skipped: this kernel lacks the tracepoint tick_stop")
	}
	b := start(t, "burn", 0)
	idle := func() uint64 {
		times, err := host.CPUTimes(os.DirFS("/"))
		if err != nil {
			t.Fatal(err)
		}
		return times[0].Idle
	}
	var states []cpuState
	cpus := c.coll.Maps["cpus"]
	if err := cpus.Lookup(uint32(0), &states); err != nil {
		t.Fatal(err)
	}
	states[0].Tick = 1 << 1 // perf events
	if err := cpus.Put(uint32(0), states); err != nil {
		t.Fatal(err)
	}
	for began, first := time.Now(), idle(); idle() < first+50; <-time.After(10 * time.Millisecond) {
		if b.burn(0); time.Since(began) > 10*time.Second {
			t.Skip("skipped: CPU 0 does not idle")
		}
	}
	if err := cpus.Lookup(uint32(0), &states); err != nil || states[0].Tick != 0 {
		t.Errorf("%v: it could not stop because of %s", err, tickDependency(states[0].Tick))
	}
}

// The runs of own tasks are noted, with when they were woken, and no task is an intruder where all are own.
func TestRecordedOwn(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.CPUs(2), collecting)
	mount, _, err := hierarchy(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	c := recording(t, cpuset.Of(0, 1), timelineBytes, mount)
	began := now(t)
	if err = c.record(); err != nil {
		t.Fatal(err)
	}
	b := start(t, "burn", 0)
	for range 50 {
		b.burn(0)
	}
	all, _, err := c.recorded(of(func(st taskSource) string { return st.Name }))
	if err != nil {
		t.Fatal(err)
	}
	own, woken := 0, 0
	for _, in := range all {
		if in.Kind == results.Task || in.Kind == results.KernelThread {
			t.Errorf("%+v", in)
		}
		if in.Kind != tail.Own || !slices.Contains(b.tids(), in.TID) {
			continue
		}
		own++
		if in.Name != comm() || in.CPU != 0 || in.Woken > in.Begin || in.Woken < 0 || in.Server != b.pid() || in.Stolen < 0 || in.Late < 0 {
			t.Errorf("%+v", in)
		}
		if in.Woken > began {
			woken++
		}
	}
	if own == 0 || woken == 0 {
		t.Errorf("%d runs of an own task, woken before %d of them", own, woken)
	}
}

func TestSleepingRing(t *testing.T) {
	for _, c := range []struct {
		realtime, release string
		refused           bool
	}{{"1\n", "6.1.0-rt\n", true}, {"1\n", "6.11.2\n", true}, {"1\n", "6.12.0\n", false}, {"1\n", "7.0-rc1\n", false},
		{"0\n", "5.4.0\n", false}, {"", "5.4.0\n", false}, {"1\n", "?\n", true}} {
		root := fstest.MapFS{"proc/sys/kernel/osrelease": {Data: []byte(c.release)}}
		if c.realtime != "" {
			root["sys/kernel/realtime"] = &fstest.MapFile{Data: []byte(c.realtime)}
		}
		if err := sleepingRing(root); (err != nil) != c.refused {
			t.Errorf("realtime %q, %q: %v", c.realtime, c.release, err)
		}
	}
}

// of is for roles that need no look at the others.
func of(role func(taskSource) string) func([]taskSource) func(taskSource) string {
	return func([]taskSource) func(taskSource) string { return role }
}
