package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
		for _, f := range strings.Fields(w.Word) {
			if !slices.Contains(strings.Fields(parameters), nameOf(f)) {
				t.Errorf("%s would stay when that is undone", f)
			}
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

// Pages of a pool stay, whoever uses them. A kernel before 5.16 understands no nodes.
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

// The file is kept as it was before the first change, and is restored.
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

// A kernel ignores all of isolcpus= if it does not know one of its flags, and before 5.18 it ignores
// nohz_full= with another list.
func TestOldKernels(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t)
	h.Kernel.NohzFull = new(cpuset.Set{})
	boots := plan.Placement{Housekeeping: cpuset.Of(3), Lanes: []plan.Lane{{CPUs: cpuset.MustParse("0-2")}}}
	other := plan.Placement{Housekeeping: cpuset.MustParse("0,3"), Lanes: []plan.Lane{{CPUs: cpuset.MustParse("1-2")}}}
	for _, c := range []struct {
		release, want string
		p             plan.Placement
	}{
		{"3.10.0-1160.el7.x86_64", "isolcpus=1-2", other},
		{"4.14.0", "isolcpus=1-2", other},
		{"4.15.0", "isolcpus=domain,1-2", other},
		{"5.5.19", "isolcpus=domain,1-2", other},
		{"4.18.0-372.9.1.rt7.166.el8.x86_64", "isolcpus=managed_irq,domain,1-2", other},
		{"5.6.0", "isolcpus=managed_irq,domain,1-2", other},
		{"", "isolcpus=managed_irq,domain,1-2", other},
		{"5.17.0", "isolcpus=managed_irq,domain,1-2", boots},
		{"5.18.0", "isolcpus=managed_irq,domain,0-2", boots},
	} {
		h.Kernel.Release = c.release
		words := Want(h, c.p).Words
		if words[0].Word != c.want || words[2].Word != "nohz_full=1-2" {
			t.Errorf("%s: %+v; want %s", c.release, words, c.want)
		}
	}
}

// What means the same is in force, unless the kernel says that it has not accepted it.
func TestInForce(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 4, ThreadsPerCore: 1}.Host(t)
	h.Kernel.Release, h.Kernel.Cmdline = "6.12.1", "isolcpus=domain,managed_irq,2,3 irqaffinity=1,0 nohz_full=2-N rcu_nocbs=2"
	p := plan.Placement{Housekeeping: cpuset.MustParse("0-1"), Lanes: []plan.Lane{{CPUs: cpuset.MustParse("2-3")}}}
	for _, c := range []struct{ isolated, tickless, want, note string }{
		{"2-3", "2-3", "true true true false", ""},
		{"", "2-3", "false true true false", "isolcpus= is on the command line, and the kernel has not taken CPUs 2-3 of it"},
		{"2-3", "3", "true true false false", "nohz_full= is on the command line, and the kernel has not taken CPUs 2 of it"},
	} {
		h.Kernel.Isolated, h.Kernel.NohzFull = new(cpuset.MustParse(c.isolated)), new(cpuset.MustParse(c.tickless))
		l := Want(h, p)
		var got []string
		for _, w := range l.Words {
			got = append(got, fmt.Sprint(w.InForce))
		}
		notes := strings.Join(l.Notes, "; ")
		if strings.Join(got, " ") != c.want || !strings.HasPrefix(notes, c.note) || (notes == "") != (c.note == "") {
			t.Errorf("isolated %q, tickless %q: %v, %q", c.isolated, c.tickless, got, notes)
		}
	}
	h.Kernel.Cmdline = strings.Repeat("long ", 400)
	if l := Want(h, p); len(l.Notes) != 1 || !strings.Contains(l.Notes[0], "the kernel reads 2047") {
		t.Errorf("a long command line: %q", l.Notes)
	}
}

// A process confined to some CPUs says nothing about the others, which belong to no lane.
func TestConfined(t *testing.T) {
	h := hosttest.Machine{Packages: 1, CoresPerPackage: 8, ThreadsPerCore: 1, Allowed: cpuset.MustParse("4-7"),
		Offline: cpuset.Of(3)}.Host(t)
	p := plan.Placement{Housekeeping: cpuset.MustParse("4,7"), Lanes: []plan.Lane{{CPUs: cpuset.MustParse("5-6")}}}
	if w := Want(h, p).Words[1].Word; w != "irqaffinity=0-2,4,7" {
		t.Error(w)
	}
}

// What GRUB reads after the line, or instead of it, would undo the change.
func TestGRUBElsewhere(t *testing.T) {
	words := []Word{{Word: "nohz_full=1"}, {Word: "hugepagesz=2M hugepages=0:8"}}
	const plain = "GRUB_CMDLINE_LINUX=\"\"\n"
	for _, c := range []struct{ name, text, dropIn, err string }{
		{"the same in the default", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet nohz-full=3\"\n" + plain, "",
			"line 1: GRUB_CMDLINE_LINUX_DEFAULT has nohz-full=3, which comes behind"},
		{"hugepages in the default", plain + "GRUB_CMDLINE_LINUX_DEFAULT='hugepages=3'\n", "", "line 2: GRUB_CMDLINE_LINUX_DEFAULT has hugepages=3"},
		{"indented", "if true; then\n  GRUB_CMDLINE_LINUX=\"crashkernel=1G\"\nfi\n", "", "line 2: GRUB_CMDLINE_LINUX is set with more than its name"},
		{"exported", "export GRUB_CMDLINE_LINUX=a\n", "", "line 1: GRUB_CMDLINE_LINUX is set with more than its name"},
		{"added to", plain + "GRUB_CMDLINE_LINUX+=\" b\"\n", "", "line 2: GRUB_CMDLINE_LINUX is set with more than its name"},
		{"two commands", "GRUB_CMDLINE_LINUX=a;b\n", "", "line 1: GRUB_CMDLINE_LINUX= holds more than plain words"},
		{"a file that replaces it", plain, "GRUB_CMDLINE_LINUX=\"console=ttyS0\"\n", "50-cloud.cfg: line 1: sets GRUB_CMDLINE_LINUX in place of"},
		{"a file with the same", plain, "\nGRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT nohz_full=2\"\n", "50-cloud.cfg: line 2: has nohz_full=2"},
		{"a file that adds", plain, "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX a\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=1G\"\n", ""},
	} {
		name := filepath.Join(t.TempDir(), "grub")
		write := func(file, text string) {
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		write(name, c.text)
		write(name+".d/50-cloud.cfg", c.dropIn)
		_, err := ApplyGRUB(name, Line{Words: words})
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v; want %s", c.name, err, c.err)
		}
		if text, rerr := os.ReadFile(name); rerr != nil || (string(text) == c.text) != (c.err != "") {
			t.Errorf("%s: %q, %v", c.name, text, rerr)
		}
	}
}

// What somebody else has changed since stays.
func TestUndoGRUB(t *testing.T) {
	words := []Word{{Word: "nohz_full=1"}, {Word: "hugepagesz=2M hugepages=0:8"}}
	for _, c := range []struct{ name, before, old, new, want string }{
		{"nothing", "A=1\nGRUB_CMDLINE_LINUX='quiet  nohz_full=3'\n", "", "", "A=1\nGRUB_CMDLINE_LINUX='quiet  nohz_full=3'\n"},
		{"another line", "A=1\nGRUB_CMDLINE_LINUX='quiet  nohz_full=3'\n", "A=1", "A=2", "A=2\nGRUB_CMDLINE_LINUX='quiet  nohz_full=3'\n"},
		{"the line", "GRUB_CMDLINE_LINUX=\"quiet nohz_full=3 hugepages=5\"\n", "quiet", "quiet crashkernel=1G",
			"GRUB_CMDLINE_LINUX=\"quiet crashkernel=1G nohz_full=3 hugepages=5\"\n"},
		{"no line before", "A=1", "", "", "A=1"},
		{"no line before, one word since", "A=1\n", "LINUX=\"", "LINUX=\"quiet ", "A=1\nGRUB_CMDLINE_LINUX=\"quiet\"\n"},
	} {
		after, err := editGRUB(c.before, words)
		if err != nil {
			t.Fatal(err)
		}
		got, err := undoGRUB(strings.Replace(after, c.old, c.new, 1), c.before)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}
