package task

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/sched"
)

func TestParseStat(t *testing.T) {
	const head = "12 (a (b) c) S 1 0 0 0 -1 69206048 0 0 0 0 3 4 5 6 20 0 1 0 77" + " 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3 50 1"
	got, err := ParseStat(head)
	want := Stat{ID: 12, Comm: "a (b) c", State: 'S', Parent: 1, Kernel: true, Fixed: true, Worker: true, CPUTicks: 18, Start: 77,
		Processor: 3, Priority: 50, Policy: sched.FIFO}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{"", ")(", strings.TrimSuffix(head, " 1"), strings.Replace(head, "12", "-12", 1), strings.Replace(head, "77", "x", 1),
		strings.Replace(head, " 3 50 1", " 8192 50 1", 1)} {
		if _, err = ParseStat(text); err == nil {
			t.Errorf("%q passed", text)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("12 (a (b) c) S 1 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 77 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 0")
	f.Add(")(")
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseStat(text); err == nil && (s.ID < 0 || s.Parent < 0 || s.Processor < 0 || s.Processor > cpuset.Max) {
			t.Errorf("%q: %+v", text, s)
		}
	})
}

func TestStatus(t *testing.T) {
	s := Status("Name:\ta:b\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\nnonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t-\n")
	for key, want := range map[string]string{"Name": "a:b", "Cpus_allowed": "f", "Cpus": "", "voluntary_ctxt_switches": "-"} {
		if got, ok := s.Value(key); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", key, got, ok)
		}
	}
	if cpus, err := s.Allowed(); err != nil || cpus != cpuset.MustParse("0-3") {
		t.Errorf("CPUs %s, %v", cpus, err)
	}
	if n, err := s.Number("nonvoluntary_ctxt_switches"); n != 7 || err != nil {
		t.Error(n, err)
	}
	for _, key := range []string{"voluntary_ctxt_switches", "VmLck"} {
		if n, err := s.Number(key); err == nil {
			t.Errorf("%s: %d", key, n)
		}
	}
	for _, text := range []Status{"", "Cpus_allowed:\tf\n", "Cpus_allowed_list:\t3-\n"} {
		if cpus, err := text.Allowed(); err == nil {
			t.Errorf("%q: CPUs %s", text, cpus)
		}
	}
}

func FuzzStatus(f *testing.F) {
	f.Add("Cpus_allowed_list:\t0-1\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n", "Cpus_allowed_list")
	f.Fuzz(func(t *testing.T, text, key string) {
		if value, ok := Status(text).Value(key); ok && !strings.Contains(text, key+":") || !strings.Contains(text, value) {
			t.Errorf("%q: %q, %v", key, value, ok)
		}
		if cpus, err := Status(text).Allowed(); err == nil && !strings.Contains(text, "Cpus_allowed_list:") {
			t.Errorf("CPUs %s from nowhere", cpus)
		}
	})
}

// A task that ends while it is read is reported as not existing.
func TestEndedTask(t *testing.T) {
	root := os.DirFS("/")
	self := Dir(os.Getpid())
	stat, err := ReadStat(root, self)
	start, serr := StartTime(root, os.Getpid())
	cpus, aerr := ReadAllowed(root, self)
	all, perr := Processes(root)
	if errors.Join(err, serr, aerr, perr) != nil || stat.ID != os.Getpid() || stat.Start != start || cpus.IsEmpty() ||
		!slices.Contains(all, stat.ID) || !slices.Contains(Threads(root, stat.ID), stat.ID) {
		t.Errorf("%+v, %d, %s, %v", stat, start, cpus, errors.Join(err, serr, aerr, perr))
	}
	if _, err = ReadStat(root, "proc/0"); !errors.Is(err, fs.ErrNotExist) || !errors.Is(Ended(unix.ESRCH), fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestRunTime(t *testing.T) {
	for text, want := range map[string]bool{"159303 50778 2\n": true, "0 0\n": false, "": false, "1 2 x\n": false, "-1 2 3": false} {
		ran, runs, err := RunTime(fstest.MapFS{"proc/7/schedstat": {Data: []byte(text)}}, "proc/7")
		if want != (err == nil) || want && (ran != 159303 || runs != 2) {
			t.Errorf("%q: %d, %d, %v", text, ran, runs, err)
		}
	}
}

func FuzzRunTime(f *testing.F) {
	f.Add("159303 50778 2\n")
	f.Fuzz(func(t *testing.T, text string) {
		ran, _, err := RunTime(fstest.MapFS{"proc/7/schedstat": {Data: []byte(text)}}, "proc/7")
		if err == nil && ran < 0 {
			t.Errorf("%q: ran %d", text, ran)
		}
	})
}

// A thread's own file is read, not /proc/TID/stat, in which the kernel adds up all threads of the process. Of
// a recording without threads /proc/TID/stat is read.
func TestReadThread(t *testing.T) {
	const rest = " S 1 0 0 0 -1 0 0 0 0 0 7 0 0 0 20 0 1 0 77 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0 0"
	root := fstest.MapFS{"proc/5/stat": {Data: []byte("5 (whole)" + rest)}, "proc/6/stat": {Data: []byte("6 (alone)" + rest)},
		"proc/5/task/5/stat": {Data: []byte("5 (own)" + rest)}}
	for tid, want := range map[int]string{5: "own", 6: "alone"} {
		if s, err := ReadThread(root, tid); err != nil || s.Comm != want || s.Start != 77 {
			t.Errorf("%d: %+v, %v", tid, s, err)
		}
	}
	if _, err := StartTime(root, 7); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
