package boot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/hosttest"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/plan"
)

func TestWant(t *testing.T) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 2, ThreadsPerCore: 2}.Host(t)
	h.Kernel.Release, h.Kernel.Cmdline = "6.12.1", "quiet nohz_full=1,5 isolcpus=3"
	h.Kernel.NohzFull = new(cpuset.MustParse("1,5"))
	p := plan.Placement{Housekeeping: cpuset.MustParse("0,2-4,6-7"), Lanes: []plan.Lane{
		{Name: "a", CPUs: cpuset.Of(1), Idle: cpuset.Of(5), Hugepages: []plan.Hugepages{{Node: 1, PageBytes: 1 << 30, Pages: 2}, {Node: 0, PageBytes: 2 << 20, Pages: 8}},
			Spec: lane.Spec{Scheduling: lane.Scheduling{Policy: "fifo", Priority: 50}}}}}
	var got []string
	for _, w := range Want(h, p).Words {
		state := " missing"
		if w.InForce {
			state = " in force"
		}
		if w.Now != "" {
			state = " now " + w.Now
		}
		got = append(got, w.Word+state)
		if w.Reason == "" || w.Source == "" {
			t.Errorf("%s has no reason or source", w.Word)
		}
	}
	want := `isolcpus=managed_irq,domain,1,5 now isolcpus=3
irqaffinity=0,2-4,6-7 missing
nohz_full=1,5 in force
rcu_nocbs=1,5 missing
hugepagesz=2M hugepages=0:8 missing
hugepagesz=1G hugepages=1:2 missing
skew_tick=1 missing
rcutree.kthread_prio=11 missing`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got:\n%s\nwant:\n%s", text, want)
	}
	h.Kernel.NohzFull = nil // no CONFIG_NO_HZ_FULL
	if l := Want(h, p); strings.Contains(l.Line, "nohz_full") || len(l.Notes) != 1 || len(l.Words) != len(got)-1 {
		t.Errorf("a kernel whose tick does not stop: %v", l)
	}
}

// Pages that a pool has stay, whoever uses them; a kernel before 5.16 reads no nodes.
func TestWantHugepages(t *testing.T) {
	h := hosttest.Machine{Packages: 2, CoresPerPackage: 2, ThreadsPerCore: 2}.Host(t)
	pool := uint64(1024)
	h.NUMANodes[1].Hugepages = []host.Hugepages{{PageBytes: 2 << 20, Total: &pool}, {PageBytes: 1 << 30, Total: &pool}}
	p := plan.Placement{Lanes: []plan.Lane{{Name: "a", CPUs: cpuset.Of(1), Hugepages: []plan.Hugepages{{Node: 0, PageBytes: 2 << 20, Pages: 8, Reserve: 8}, {Node: 1, PageBytes: 2 << 20, Pages: 8}}}}}
	for _, c := range []struct{ release, cmdline, want, now string }{
		{"6.12.1", "hugepagesz=1G hugepages=7", "hugepagesz=2M hugepages=0:8,1:1024", ""},
		{"6.12.1", "hugepages=5 hugepagesz=1G hugepages=7", "hugepagesz=2M hugepages=0:8,1:1024", "hugepagesz=2M hugepages=5"},
		{"6.12.1", "hugepagesz=2M hugepages=0:8,1:1024 hugepagesz=1G hugepages=7", "hugepagesz=2M hugepages=0:8,1:1024", "in force"},
		{"5.10.0", "hugepagesz=2M hugepages=0:8", "hugepagesz=2M hugepages=1032", "hugepagesz=2M hugepages=0:8"},
	} {
		h.Kernel.Release, h.Kernel.Cmdline = c.release, c.cmdline
		words := Want(h, p).Words
		w := words[len(words)-1]
		if w.Word != c.want || w.Now != strings.TrimPrefix(c.now, "in force") || w.InForce != (c.now == "in force") {
			t.Errorf("%s %q: %+v", c.release, c.cmdline, w)
		}
	}
}

func TestEditGRUB(t *testing.T) {
	words := []Word{{Word: "nohz_full=1"}, {Word: "hugepagesz=2M hugepages=0:8"}}
	for _, c := range []struct{ name, text, want, err string }{
		{"Debian's", "GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"\"\n# end\n",
			"GRUB_DEFAULT=0\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"nohz_full=1 hugepagesz=2M hugepages=0:8\"\n# end\n", ""},
		{"others stay, the same names go", "GRUB_CMDLINE_LINUX='console=ttyS0 nohz_full=3 hugepages=9'\n",
			"GRUB_CMDLINE_LINUX=\"console=ttyS0 nohz_full=1 hugepagesz=2M hugepages=0:8\"\n", ""},
		{"pages of other sizes stay", "GRUB_CMDLINE_LINUX=\"default_hugepagesz=1G hugepages=3 hugepagesz=2M hugepages=1024 hugepagesz=16M hugepages=0:2,3:8 quiet\"\n",
			"GRUB_CMDLINE_LINUX=\"default_hugepagesz=1G hugepages=3 hugepagesz=16M hugepages=0:2,3:8 quiet nohz_full=1 hugepagesz=2M hugepages=0:8\"\n", ""},
		{"no such line", "A=1", "A=1\nGRUB_CMDLINE_LINUX=\"nohz_full=1 hugepagesz=2M hugepages=0:8\"\n", ""},
		{"a program in it", "GRUB_CMDLINE_LINUX=\"$(cat /x)\"\n", "", "line 1: GRUB_CMDLINE_LINUX= holds more than plain words"},
		{"twice", "GRUB_CMDLINE_LINUX=a\nGRUB_CMDLINE_LINUX=b\n", "", "line 2: a second GRUB_CMDLINE_LINUX=: leave one"},
	} {
		got, err := editGRUB(c.text, words)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %q, %v; want %q, %s", c.name, got, err, c.want, c.err)
		}
		if err == nil {
			if again, err := editGRUB(got, words); again != got || err != nil {
				t.Errorf("%s: a second time %q, %v", c.name, again, err)
			}
		}
	}
}

// The file is kept as it was before the first change, and comes back.
func TestGRUB(t *testing.T) {
	const was = "GRUB_CMDLINE_LINUX=\"quiet\"\n"
	name := filepath.Join(t.TempDir(), "grub")
	if err := os.WriteFile(name, []byte(was), 0o644); err != nil {
		t.Fatal(err)
	}
	holds := func(file, want string) {
		t.Helper()
		if text, err := os.ReadFile(file); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %q", file, text, err, want)
		}
	}
	for i, c := range []struct{ word, want string }{
		{"nohz_full=1", "GRUB_CMDLINE_LINUX=\"quiet nohz_full=1\"\n"},
		{"nohz_full=1", "GRUB_CMDLINE_LINUX=\"quiet nohz_full=1\"\n"},
		{"nohz_full=2", "GRUB_CMDLINE_LINUX=\"quiet nohz_full=2\"\n"},
	} {
		g, err := ApplyGRUB(name, Line{Words: []Word{{Word: c.word}}, Line: c.word})
		if err != nil || g.Changed != (i != 1) || g.Line != c.word {
			t.Errorf("%d: %+v, %v", i, g, err)
		}
		holds(name, c.want)
		holds(g.Before, was)
	}
	if g, err := UndoGRUB(name); err != nil || !g.Changed || g.Line != "" {
		t.Errorf("undo: %+v, %v", g, err)
	}
	holds(name, was)
	if _, err := UndoGRUB(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("undo a second time: %v", err)
	}
}
