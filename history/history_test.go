package history

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/test/golden"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// at returns a moment of a boot that was an hour before noon.
func at(d time.Duration) moment { return moment{noon.Add(d), time.Hour + d, "one"} }

func open(tb testing.TB) store {
	tb.Helper()
	return store{filepath.Join(tb.TempDir(), "isolane"), 7 * 24 * time.Hour, 64 << 20}
}

func event(kind Kind, lane, what string) Event { return Event{Kind: kind, Lane: lane, What: what} }

func write(tb testing.TB, s store, m moment, all ...Event) {
	tb.Helper()
	if err := s.append(m, all); err != nil {
		tb.Fatal(err)
	}
}

// told returns what was read, in short.
func told(tb testing.TB, s store, q Query) []string {
	tb.Helper()
	all, err := s.read(q)
	if err != nil {
		tb.Fatal(err)
	}
	var texts []string
	for _, e := range all {
		texts = append(texts, fmt.Sprint(e.Kind, " ", e.Lane, " ", e.What))
	}
	return texts
}

// A lane's events are its own and those of the host, and a time range includes both of its ends.
func TestQuery(t *testing.T) {
	s := open(t)
	if all, err := s.read(Query{}); len(all) > 0 || err != nil {
		t.Fatalf("%v, %v where there is no store, expected nothing", all, err)
	}
	cpu := 3
	full := Event{At: noon, Boot: "one", Kind: Intrusion, Lane: "web", What: "task cron", By: "cron (7)", CPU: &cpu,
		Took: 1234, Who: &Who{UID: 1000, Login: "eve", Command: "isolane watch"}, Settings: 2, Verdict: "held"}
	write(t, s, at(0), full, event(Applied, "db", "CPUs 2"))
	write(t, s, at(time.Minute), event(Released, "web", "released"))
	write(t, s, at(time.Hour), event(Released, "db", "released"))
	for _, c := range []struct {
		name string
		q    Query
		want []string
	}{
		{"all", Query{}, []string{"boot  the host has started", "intrusion web task cron", "applied db CPUs 2",
			"released web released", "released db released"}},
		{"a lane", Query{Lane: "web"}, []string{"boot  the host has started", "intrusion web task cron",
			"released web released"}},
		{"since", Query{Since: noon.Add(time.Minute)}, []string{"released web released", "released db released"}},
		{"until", Query{Since: noon, Until: noon.Add(time.Minute)}, []string{"intrusion web task cron", "applied db CPUs 2",
			"released web released"}},
		{"none", Query{Since: noon.Add(2 * time.Hour)}, nil},
	} {
		if diff := cmp.Diff(c.want, told(t, s, c.q)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	all, err := s.read(Query{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(full, all[1]); diff != "" {
		t.Errorf("what was written (-want +got):\n%s", diff)
	}
	for _, file := range []string{s.dir, s.file()} {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v: expected it to be this user's alone", file, info.Mode(), err)
		}
	}
}

// Setting the clock loses no events, and is reported. The order is that of writing. A slewed clock is not
// reported.
func TestClock(t *testing.T) {
	s := open(t)
	write(t, s, at(0), event(Applied, "a", ""))
	back := at(time.Minute)
	back.At = noon.Add(-time.Hour)
	write(t, s, back, event(Applied, "b", ""))
	slewed := back
	slewed.At, slewed.Uptime = back.At.Add(time.Minute), back.Uptime+time.Minute+time.Second
	write(t, s, slewed, event(Applied, "c", ""))
	forward := slewed
	forward.At = noon.AddDate(30, 0, 0)
	write(t, s, forward, event(Applied, "d", ""))
	write(t, s, moment{noon.Add(-2 * time.Hour), 0, "two"}, event(Applied, "e", ""))
	all, err := s.read(Query{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range all {
		text := string(e.Kind) + e.Lane
		if e.Kind == Clock {
			text, _, _ = strings.Cut(e.What, " since")
		}
		got = append(got, text)
	}
	want := []string{"boot", "applieda", "the clock was set back by 1h1m0s", "appliedb", "appliedc",
		"the clock was set forward by 262992h59m0s", "appliedd", "boot", "the clock was set back by 262994h0m0s", "appliede"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, want := told(t, s, Query{Since: noon.Add(-30 * time.Minute), Until: noon}), []string{"applied a "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q: the time of an event is what counts", got, want)
	}
}

// What is older than the age is dropped, but not because a clock is wrong once.
func TestAge(t *testing.T) {
	s := open(t)
	write(t, s, at(0), event(Applied, "a", ""))
	wrong := at(time.Minute)
	wrong.At = noon.AddDate(30, 0, 0)
	write(t, s, wrong)
	if got := told(t, s, Query{Lane: "a"}); !slices.Contains(got, "applied a ") {
		t.Errorf("a wrong clock has taken events away: %q", got)
	}
	s = open(t)
	for day := range time.Duration(20) {
		write(t, s, at(day*24*time.Hour), event(Applied, "a", fmt.Sprint(int(day))))
	}
	got := told(t, s, Query{})
	if want := []string{"applied a 11", "applied a 12", "applied a 13", "applied a 14", "applied a 15", "applied a 16",
		"applied a 17", "applied a 18", "applied a 19"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The file stays within its bound, and keeps what was written last.
func TestSize(t *testing.T) {
	s := open(t)
	s.bytes = 4 << 20
	n := 0
	for range 200 {
		var all []Event
		for range 50 {
			n++
			all = append(all, event(Drifted, "web", fmt.Sprint(n, " ", strings.Repeat("x", 3*maxText))))
		}
		write(t, s, at(time.Duration(n)*time.Second), all...)
		if info, err := os.Stat(s.file()); err != nil || info.Size() > s.bytes {
			t.Fatalf("after %d events: %d bytes, %v: expected %d at most", n, info.Size(), err, s.bytes)
		}
	}
	all, err := s.read(Query{})
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range all {
		if number, _, _ := strings.Cut(e.What, " "); number != strconv.Itoa(n-len(all)+1+i) {
			t.Fatalf("event %d of %d is %.10s", i, len(all), e.What)
		}
	}
	if held := len(all) * maxText; held < int(s.bytes)/2 {
		t.Errorf("%d bytes of events are kept, expected half of %d at least", held, s.bytes)
	}
}

// A damaged store is put aside and reported, and events go to a new one. Reading it never ends the program.
func TestDamaged(t *testing.T) {
	page := os.Getpagesize()
	whole := open(t)
	for i := range 40 {
		write(t, whole, at(time.Duration(i)*time.Second), event(Applied, "web", strings.Repeat("x", maxText)))
	}
	text, err := os.ReadFile(whole.file())
	if err != nil {
		t.Fatal(err)
	}
	noise := bytes.Repeat([]byte("noise"), 2*page/5)
	for name, damage := range map[string]func([]byte) []byte{
		"another file":   func([]byte) []byte { return []byte("SQLite format 3") },
		"no first pages": func(b []byte) []byte { copy(b, noise); return b },
		"cut off":        func(b []byte) []byte { return b[:4*page] },
		"noise in it":    func(b []byte) []byte { copy(b[2*page:], bytes.Repeat(noise, len(b)/len(noise)+1)); return b },
		"zeros in it":    func(b []byte) []byte { clear(b[2*page:]); return b },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			if err := os.Mkdir(s.dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.file(), damage(bytes.Clone(text)), 0o600); err != nil {
				t.Fatal(err)
			}
			var damaged *DamagedError
			if _, err := s.read(Query{}); !errors.As(err, &damaged) || damaged.File != s.file() {
				t.Errorf("read: %v", err)
			}
			err := s.append(at(time.Hour), []Event{event(Released, "web", "")})
			if !errors.As(err, &damaged) || damaged.Aside != s.file()+".damaged" {
				t.Fatalf("append: %v", err)
			}
			got := told(t, s, Query{})
			if len(got) != 3 || !strings.HasPrefix(got[1], "damaged  "+s.file()) || got[2] != "released web " {
				t.Errorf("%q: expected what was written, and what became of the old store", got)
			}
			if _, err = os.Stat(damaged.Aside); err != nil {
				t.Error(err)
			}
			write(t, s, at(2*time.Hour), event(Applied, "web", ""))
		})
	}
}

// A full disk is an error of the call. Earlier events stay, and writing works again when there is room.
func TestFull(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, size := range []string{"4k", "8k", "16k", "64k"} {
		s := open(t)
		if err := os.Mkdir(s.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		disk := func(flags uintptr, size string) {
			if err := unix.Mount("isolane-test", s.dir, "tmpfs", flags, "mode=700,size="+size); err != nil {
				t.Fatal(err)
			}
		}
		disk(0, size)
		t.Cleanup(func() {
			if err := unix.Unmount(s.dir, 0); err != nil {
				t.Error(err)
			}
		})
		written := 0
		for {
			err := s.append(at(time.Duration(written)*time.Second), []Event{event(Applied, "web", strings.Repeat("x", maxText))})
			if err != nil && (!errors.Is(err, unix.ENOSPC) || errors.As(err, new(*DamagedError))) {
				t.Fatalf("%s, after %d events: %v", size, written, err)
			}
			if err != nil {
				break
			}
			written++
		}
		disk(unix.MS_REMOUNT, "1m")
		write(t, s, at(time.Hour), event(Released, "web", ""))
		if got := told(t, s, Query{Lane: "web"}); len(got) != 1+written+1 {
			t.Errorf("%s: after %d events and one more there are %.99q", size, written, got)
		}
	}
}

// A store locked by another process, and a directory of another user, are errors of the call.
func TestRefused(t *testing.T) {
	s := open(t)
	write(t, s, at(0), event(Applied, "web", ""))
	f, err := os.Open(s.file())
	if err != nil {
		t.Fatal(err)
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err = s.append(at(0), []Event{event(Applied, "web", "")}); err == nil || !strings.Contains(err.Error(), "has kept it for 1s") {
		t.Errorf("locked: %v", err)
	}
	if err = f.Close(); err != nil {
		t.Fatal(err)
	}
	if err = os.Chmod(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err = s.append(at(0), []Event{event(Applied, "web", "")}); err == nil || !strings.Contains(err.Error(), "this user's alone") {
		t.Errorf("a directory for everybody: %v", err)
	}
}

// What is stored can be read back. Other bytes give an error or an event, but no panic.
func FuzzDecode(f *testing.F) {
	cpu := 3
	whole := Event{At: noon, Lane: "web", Boot: "one", Kind: PutBack, What: "µ", CPU: &cpu, Took: -1, Who: &Who{UID: 7, Command: "x"}}
	k := key{at: stamp(noon), lane: []byte("web")}
	var t texts
	if got, err := t.decode(k, whole.encode()); err != nil || !cmp.Equal(got, whole) {
		f.Fatalf("%+v, %v, want %+v", got, err, whole)
	}
	f.Add(whole.encode())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2})
	f.Fuzz(func(t *testing.T, stored []byte) {
		var copied texts
		e, err := copied.decode(k, stored)
		if err != nil {
			return
		}
		if again, aerr := copied.decode(k, e.encode()); aerr != nil || !cmp.Equal(e, again) {
			t.Errorf("%+v, %v, want %+v", again, aerr, e)
		}
	})
}

// writer is the environment variable with which the test restarts itself as a process that writes until it is
// killed.
const writer = "ISOLANE_HISTORY_WRITER"

func writeOn(t *testing.T, dir string) {
	t.Helper()
	for n := 0; ; n++ {
		if err := Append(dir, event(Drifted, "web", fmt.Sprint(os.Getpid(), " ", n))); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(os.Stdout, n)
	}
}

// However often a writer is killed, everything that was acknowledged to it is in the store, once and in
// order.
func TestKilled(t *testing.T) {
	if dir := os.Getenv(writer); dir != "" {
		writeOn(t, dir)
	}
	dir := filepath.Join(t.TempDir(), "isolane")
	written := map[string]int{} // by process: the last acknowledged one
	// On a busy machine there may be none among the first that has begun in time.
	for n := 0; n < 20 || len(written) == 0 && n < 1000; n++ {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), writer+"="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err = cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		timer := time.AfterFunc(time.Duration(rand.IntN(60))*time.Millisecond, func() { _ = cmd.Process.Kill() })
		for lines.Scan() {
			if written[strconv.Itoa(cmd.Process.Pid)], err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(lines.Text())
			}
		}
		_ = cmd.Wait() // killed
		timer.Stop()
	}
	all, err := Read(dir, Query{Lane: "web"})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, e := range all {
		pid, number, of := strings.Cut(e.What, " ")
		if !of || e.Kind != Drifted {
			continue
		}
		if n, known := found[pid]; strconv.Itoa(n+1) != number && (known || number != "0") {
			t.Errorf("process %s: event %s after %d", pid, number, n)
		}
		found[pid], err = strconv.Atoi(number)
		if err != nil {
			t.Error(err)
		}
	}
	for pid, n := range written {
		if found[pid] < n {
			t.Errorf("process %s has written %d events, %d are there", pid, n+1, found[pid]+1)
		}
	}
	if len(found) == 0 {
		t.Error("nobody has written anything")
	}
}

func TestWrite(t *testing.T) {
	local := time.Local
	time.Local = time.FixedZone("CET", 3600)
	t.Cleanup(func() { time.Local = local })
	who := &Who{Login: "eve", UID: 1000, Command: "isolane apply -f web.yaml"}
	l := List{Lane: "web", Since: noon.Add(-time.Hour), Until: noon}
	for _, columns := range []string{"80", "140"} {
		t.Setenv("COLUMNS", columns)
		var b bytes.Buffer
		l.Events = nil
		l.Write(&b)
		l.Events = []Event{
			{At: noon.Add(-time.Hour), Kind: Boot, What: "the host has started"},
			{At: noon.Add(-time.Minute), Kind: Applied, Lane: "web", What: "CPUs 2-3, memory of NUMA node 0", Who: who},
			{At: noon, Kind: PutBack, What: "/proc/irq/9/smp_affinity_list: expected 0, found 3", By: "irqbalance (612)",
				Who: &Who{UID: 7, Command: "isolane watch --repair"}}}
		l.Write(&b)
		l.Lane = "wbe"
		l.Write(&b)
		l.Lane = "web"
		golden.Check(t, filepath.Join("testdata", "list-"+columns+".want.txt"), b.Bytes())
	}
}

// month makes a month with an event every 13 seconds, of eight lanes and the host, in a store with larger
// bounds.
func month(b *testing.B) (store, float64) {
	b.Helper()
	s := open(b)
	s.age, s.bytes = 40*24*time.Hour, 1<<30
	const events = 200_000
	random := rand.New(rand.NewPCG(1, 2))
	for n := 0; n < events; {
		var all []Event
		var now moment
		for range 1000 {
			now = at(time.Duration(n) * (30 * 24 * time.Hour / events))
			lane := fmt.Sprint("lane", random.IntN(9))
			if lane == "lane8" {
				lane = ""
			}
			all = append(all, Event{At: now.At, Kind: Drifted, Lane: lane, By: "irqbalance (612)",
				What: fmt.Sprintf("/proc/irq/%d/smp_affinity_list: expected 0-1, found 2", random.IntN(200))})
			n++
		}
		write(b, s, now, all...)
	}
	info, err := os.Stat(s.file())
	if err != nil {
		b.Fatal(err)
	}
	return s, float64(info.Size()) / (1 << 20)
}

// cpuTime returns the CPU time of this process, which does not depend on how busy the machine is.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkMonth(b *testing.B) {
	s, size := month(b)
	end := noon.AddDate(0, 0, 30)
	for _, c := range []struct {
		name string
		q    Query
	}{{"last hour", Query{Since: end.Add(-time.Hour)}},
		{"a minute in the middle", Query{Since: end.AddDate(0, 0, -15), Until: end.AddDate(0, 0, -15).Add(time.Minute)}},
		{"last day", Query{Since: end.AddDate(0, 0, -1)}},
		{"no such lane, whole month", Query{Lane: "none"}},
		{"a lane, whole month", Query{Lane: "lane1"}},
		{"whole month", Query{}}} {
		b.Run(c.name, func(b *testing.B) {
			n, before := 0, cpuTime(b)
			for b.Loop() {
				all, err := s.read(c.q)
				if err != nil {
					b.Fatal(err)
				}
				n = len(all)
			}
			b.ReportMetric(float64((cpuTime(b)-before).Milliseconds())/float64(b.N), "CPU-ms/op")
			b.ReportMetric(float64(n), "events")
			b.ReportMetric(size, "MiB-of-file")
		})
	}
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			if err := s.append(moment{end, 31 * 24 * time.Hour, "one"}, []Event{event(Applied, "web", "")}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
