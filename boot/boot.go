// Package boot computes what lanes want on the kernel's command line, compares it with the one in force, and
// writes it into GRUB's defaults file.
package boot

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cmdline"
	"isolane.dev/isolane/plan"
)

// Line is what lanes want on the kernel's command line, as printed by `isolane boot -o json`.
type Line struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Boot
	Words      []Word `json:"words"`
	Line       string `json:"line"` // all words, as on a command line
	// Notes say what lanes want and this kernel does not support.
	Notes []string `json:"notes,omitempty"`
}

// Word is a parameter that lanes want on the kernel's command line, because nothing achieves the same at run
// time.
type Word struct {
	Word    string `json:"word"`
	Reason  string `json:"reason"`
	InForce bool   `json:"inForce"`          // the command line in force says the same
	Now     string `json:"now,omitempty"`    // what it says instead
	Source  string `json:"source,omitempty"` // the kernel document
}

// Want returns what the lanes of a placement want at boot, and which of it is in force
// (Documentation/admin-guide/kernel-parameters.txt).
func Want(h host.Host, p plan.Placement) Line {
	l := Line{APIVersion: plan.APIVersion, Kind: "Boot", Words: append([]Word{}, words(h, p)...)}
	var line []string
	for i := range l.Words {
		l.Notes = append(l.Notes, l.Words[i].compare(h)...)
		line = append(line, l.Words[i].Word)
	}
	l.Line = strings.Join(line, " ")
	if h.Kernel.KeepsTick() && len(l.Words) > 0 {
		l.Notes = append(l.Notes,
			"nohz_full= is left out: this kernel has no CONFIG_NO_HZ_FULL, so its tick never stops")
	}
	if size := len(h.Kernel.Cmdline) + 1 + len(l.Line); size > mostLine && len(l.Words) > 0 {
		l.Notes = append(l.Notes, fmt.Sprintf("with the command line in force that is up to %d bytes: "+
			"on x86 and arm64 the kernel reads %d, and leaves out the rest", size, mostLine))
	}
	return l
}

// mostLine is COMMAND_LINE_SIZE of x86 and arm64, without the final zero byte.
const mostLine = 2047

// Write prints the words for people, each with its reason, and the line.
func (l Line) Write(w io.Writer) {
	for _, b := range l.Words {
		state := "missing"
		switch {
		case b.InForce:
			state = "in force"
		case b.Now != "":
			state = "in force is " + b.Now
		}
		fmt.Fprintf(w, "%s\n  %s: %s\n", b.Word, state, b.Reason)
	}
	fmt.Fprintf(w, "line: %s\n", l.Line)
	for _, n := range l.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
}

// parameters are all that lanes may want.
const parameters = "isolcpus irqaffinity nohz_full rcu_nocbs hugepagesz hugepages skew_tick " +
	"rcutree.kthread_prio"

func words(h host.Host, p plan.Placement) []Word {
	lanes := p.CPUs()
	if lanes.IsEmpty() {
		return nil
	}
	tickless := lanes.Difference(cpuset.Of(h.CPUs[0].ID))
	// CPUs that this process may not use belong to no lane, and are not in the placement.
	others := p.Housekeeping.Union(h.Online().Difference(h.Usable())).Difference(lanes)
	words := []Word{isolcpus(h, lanes, tickless),
		{Word: "irqaffinity=" + others.String(),
			Reason: "interrupts of devices that come up before the lanes are applied"},
	}
	if !tickless.IsEmpty() {
		if !h.Kernel.KeepsTick() {
			words = append(words, Word{Word: "nohz_full=" + tickless.String(),
				Reason: "the tick stops while a lane's thread is alone on its CPU"})
		}
		words = append(words,
			Word{Word: "rcu_nocbs=" + tickless.String(),
				Reason: "RCU's callbacks run elsewhere (nohz_full implies it where the kernel has it)"})
	}
	words = append(words, hugepageWords(h, p)...)
	if slices.ContainsFunc(p.Lanes, func(l plan.Lane) bool { return l.Spec.Scheduling.Priority > 0 }) {
		words = append(words,
			Word{Word: "skew_tick=1",
				Reason: "real-time lanes: the ticks of housekeeping CPUs do not meet at the same locks"},
			Word{Word: "rcutree.kthread_prio=11",
				Reason: "real-time lanes: RCU's threads run before threads of a priority below 11"})
	}
	return words
}

// isolcpus uses only what the kernel knows: a kernel that does not know a flag ignores the whole parameter,
// and before Linux 5.18 it accepts nohz_full= only with the same list (kernel/sched/isolation.c).
func isolcpus(h host.Host, lanes, tickless cpuset.Set) Word {
	flags := h.Kernel.IsolcpusFlags()
	w := Word{Reason: "managed interrupts cannot be moved later; and no task starts on these CPUs before " +
		"the lanes are applied"}
	if !slices.Contains(flags, "managed_irq") {
		w.Reason = "no task starts on these CPUs before the lanes are applied; managed interrupts stay, since a " +
			"kernel before Linux 5.6 ignores all of it where it finds managed_irq"
	}
	if h.Kernel.Before(5, 18) && !h.Kernel.KeepsTick() && !tickless.IsEmpty() && tickless != lanes {
		lanes = tickless
		w.Reason += "; without the boot CPU, as before Linux 5.18 nohz_full= must have the same list"
	}
	w.Word = "isolcpus=" + strings.Join(append(flags, lanes.String()), ",")
	return w
}

// compare sets what the command line in force says about a word, and returns notes on it.
func (w *Word) compare(h host.Host) (notes []string) {
	name, want, _ := strings.Cut(w.Word, "=")
	w.Source = "Documentation/admin-guide/kernel-parameters.txt, " + name + "="
	now := h.Kernel.Parameters()
	value, there := now.Get(name)
	if size, _, ok := strings.Cut(want, " "); ok { // hugepages of one size
		pages := reserved(strings.Fields(h.Kernel.Cmdline), parseSize(size))
		value, there = size+" hugepages="+pages, pages != ""
	}
	asked := host.Kernel{Cmdline: w.Word}.Parameters()
	w.InForce = there && (value == want || sameCPUs(now, asked, name, h.Possible()))
	if there && !w.InForce {
		w.Now = name + "=" + value
	}
	taken := map[string]*cpuset.Set{"isolated": h.Kernel.Isolated, "nohz_full": h.Kernel.NohzFull}
	for file, cpus := range taken {
		missing := cpuset.Set{}
		if cpus != nil && (name == file || name == "isolcpus" && file == "isolated") {
			missing = listed(asked, name, h.Possible()).Difference(*cpus)
		}
		if w.InForce && !missing.IsEmpty() { // only a boot message of the kernel says why
			w.InForce = false
			notes = append(notes, fmt.Sprintf("%s= is on the command line, and the kernel has not taken CPUs "+
				"%s of it: /sys/devices/system/cpu/%s has %q; dmesg | grep -i -e housekeeping -e isolcpus says why",
				name, missing, file, cpus))
		}
	}
	return notes
}

// listed returns the CPUs that a command line names in a parameter; none if the kernel would reject the list.
func listed(line cmdline.Line, name string, possible cpuset.Set) cpuset.Set {
	if name == "isolcpus" {
		i, _ := line.Isolcpus()
		cpus, _ := i.CPUs(possible)
		return cpus
	}
	list, _ := line.Get(name)
	cpus, _ := cpuset.ParseWithin(list, possible)
	return cpus
}

// sameCPUs reports whether a parameter with a CPU list means the same on two command lines.
func sameCPUs(a, b cmdline.Line, name string, possible cpuset.Set) bool {
	i, _ := a.Isolcpus()
	j, _ := b.Isolcpus()
	slices.Sort(i.Flags)
	slices.Sort(j.Flags)
	lists := []string{"isolcpus", "irqaffinity", "nohz_full", "rcu_nocbs"}
	if !slices.Contains(lists, name) || name == "isolcpus" && !slices.Equal(i.Flags, j.Flags) {
		return false
	}
	cpus := listed(a, name, possible)
	return !cpus.IsEmpty() && cpus == listed(b, name, possible)
}
