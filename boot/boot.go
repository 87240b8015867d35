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
	// Notes are what lanes want and this kernel cannot.
	Notes []string `json:"notes,omitempty"`
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
	if h.Kernel.KeepsTick() && len(l.Words) > 0 {
		l.Notes = []string{"nohz_full= is left out: this kernel has no CONFIG_NO_HZ_FULL, so its tick never stops"}
	}
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
	for _, n := range l.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
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
				Reason: "real-time lanes: RCU's threads are not starved by theirs"})
	}
	now, parameters := h.Kernel.Parameters(), strings.Fields(h.Kernel.Cmdline)
	for i, w := range words {
		name, want, _ := strings.Cut(w.Word, "=")
		words[i].Source = "Documentation/admin-guide/kernel-parameters.txt, " + name + "="
		value, there := now.Get(name)
		if size, _, ok := strings.Cut(want, " "); ok { // hugepages of a size
			pages := reserved(parameters, parseSize(size))
			value, there = size+" hugepages="+pages, pages != ""
		}
		words[i].InForce = there && value == want
		if there && !words[i].InForce {
			words[i].Now = name + "=" + value
		}
	}
	return words
}
