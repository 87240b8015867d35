// Package boot says what lanes want on the kernel's command line, beside the one in force, and puts it into
// GRUB's defaults file.
package boot

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

// Line is what lanes want on the kernel's command line: what `isolane boot -o json` prints.
type Line struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // Boot
	Words      []Word `json:"words"`
	Line       string `json:"line"` // all words, as they stand on a command line
}

// Word is one parameter that lanes want on the kernel's command line, because nothing does the same
// at run time.
type Word struct {
	Word    string `json:"word"`
	Reason  string `json:"reason"`
	InForce bool   `json:"inForce"`          // the command line in force says the same
	Now     string `json:"now,omitempty"`    // what it says instead
	Source  string `json:"source,omitempty"` // the kernel document
}

// Want returns what the lanes of a placement want at boot, and what of it is in force
// (Documentation/admin-guide/kernel-parameters.txt).
func Want(h host.Host, p plan.Placement) Line {
	l := Line{APIVersion: plan.APIVersion, Kind: "Boot", Words: append([]Word{}, words(h, p)...)}
	var line []string
	for _, w := range l.Words {
		line = append(line, w.Word)
	}
	l.Line = strings.Join(line, " ")
	return l
}

// Write writes the words for people, each with its reason, and the line.
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
}

func words(h host.Host, p plan.Placement) []Word {
	lanes := p.CPUs()
	if lanes.IsEmpty() {
		return nil
	}
	boot := cpuset.Of(h.CPUs[0].ID)
	words := []Word{
		{Word: "isolcpus=managed_irq,domain," + lanes.String(),
			Reason: "managed interrupts cannot be moved later; and no task starts on these CPUs before the lanes " +
				"are applied"},
		{Word: "irqaffinity=" + p.Housekeeping.String(),
			Reason: "interrupts of devices that come up before the lanes are applied"},
	}
	if tickless := lanes.Difference(boot); !tickless.IsEmpty() {
		words = append(words,
			Word{Word: "nohz_full=" + tickless.String(),
				Reason: "the tick stops while a lane's thread is alone on its CPU"},
			Word{Word: "rcu_nocbs=" + tickless.String(),
				Reason: "RCU's callbacks run elsewhere (nohz_full implies it where the kernel has it)"})
	}
	words = append(words, hugepageWords(p)...)
	if slices.ContainsFunc(p.Lanes, func(l plan.Lane) bool { return l.Spec.Scheduling.Priority > 0 }) {
		words = append(words,
			Word{Word: "skew_tick=1",
				Reason: "real-time lanes: the ticks of housekeeping CPUs do not meet at the same locks"},
			Word{Word: "rcutree.kthread_prio=11",
				Reason: "real-time lanes: RCU's threads are not starved by theirs"})
	}
	now := h.Kernel.Parameters()
	for i, w := range words {
		name, want, _ := strings.Cut(w.Word, "=")
		words[i].Source = "Documentation/admin-guide/kernel-parameters.txt, " + name + "="
		value, there := now.Get(name)
		words[i].InForce = there && (value == want || strings.Contains(h.Kernel.Cmdline, w.Word))
		if there && !words[i].InForce {
			words[i].Now = name + "=" + value
		}
	}
	return words
}

// hugepageWords reserve the lanes' pages on their nodes while memory is still in one piece. The numbers
// by node are understood since Linux 5.16.
func hugepageWords(p plan.Placement) []Word {
	pages := map[uint64]map[int]uint64{}
	for _, l := range p.Lanes {
		for _, has := range l.Hugepages {
			if pages[has.PageBytes] == nil {
				pages[has.PageBytes] = map[int]uint64{}
			}
			pages[has.PageBytes][has.Node] += has.Pages
		}
	}
	var words []Word
	for _, size := range []uint64{64 << 10, 2 << 20, 32 << 20, 512 << 20, 1 << 30} {
		var counts []string
		for node := range 64 {
			if n := pages[size][node]; n > 0 {
				counts = append(counts, fmt.Sprintf("%d:%d", node, n))
			}
		}
		if len(counts) == 0 {
			continue
		}
		unit := fmt.Sprintf("%dM", size>>20)
		switch {
		case size >= 1<<30:
			unit = fmt.Sprintf("%dG", size>>30)
		case size < 1<<20:
			unit = fmt.Sprintf("%dK", size>>10)
		}
		words = append(words, Word{Word: fmt.Sprintf("hugepagesz=%s hugepages=%s", unit,
			strings.Join(counts, ",")),
			Reason: "later, memory may be too much in pieces for as many pages on these nodes"})
	}
	return words
}
