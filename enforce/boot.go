package enforce

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
)

// BootWord is one parameter that lanes want on the kernel's command line, because nothing does the same
// at run time.
type BootWord struct {
	Word    string `json:"word"`
	Reason  string `json:"reason"`
	InForce bool   `json:"inForce"`          // the command line in force says the same
	Now     string `json:"now,omitempty"`    // what it says instead
	Source  string `json:"source,omitempty"` // the kernel document
}

// BootLine returns what the lanes of a placement want at boot, and what of it is in force
// (Documentation/admin-guide/kernel-parameters.txt).
func BootLine(h host.Host, p plan.Placement) []BootWord {
	lanes := p.CPUs()
	if lanes.IsEmpty() {
		return nil
	}
	boot := cpuset.Of(h.CPUs[0].ID)
	words := []BootWord{
		{Word: "isolcpus=managed_irq,domain," + lanes.String(),
			Reason: "managed interrupts cannot be moved later; and no task starts on these CPUs before the lanes " +
				"are applied"},
		{Word: "irqaffinity=" + p.Housekeeping.String(),
			Reason: "interrupts of devices that come up before the lanes are applied"},
	}
	if tickless := lanes.Difference(boot); !tickless.IsEmpty() {
		words = append(words,
			BootWord{Word: "nohz_full=" + tickless.String(),
				Reason: "the tick stops while a lane's thread is alone on its CPU"},
			BootWord{Word: "rcu_nocbs=" + tickless.String(),
				Reason: "RCU's callbacks run elsewhere (nohz_full implies it where the kernel has it)"})
	}
	words = append(words, hugepageWords(p)...)
	if slices.ContainsFunc(p.Lanes, func(l plan.Lane) bool { return l.Spec.Scheduling.Priority > 0 }) {
		words = append(words,
			BootWord{Word: "skew_tick=1",
				Reason: "real-time lanes: the ticks of housekeeping CPUs do not meet at the same locks"},
			BootWord{Word: "rcutree.kthread_prio=11",
				Reason: "real-time lanes: RCU's threads are not starved by theirs"})
	}
	now := host.ParseBootline(h.Kernel.Cmdline)
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
func hugepageWords(p plan.Placement) []BootWord {
	pages := map[uint64]map[int]uint64{}
	for _, l := range p.Lanes {
		for _, has := range l.Hugepages {
			if pages[has.PageBytes] == nil {
				pages[has.PageBytes] = map[int]uint64{}
			}
			pages[has.PageBytes][has.Node] += has.Pages
		}
	}
	var words []BootWord
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
		words = append(words, BootWord{Word: fmt.Sprintf("hugepagesz=%s hugepages=%s", unit,
			strings.Join(counts, ",")),
			Reason: "later, memory may be too much in pieces for as many pages on these nodes"})
	}
	return words
}

// EditGRUB puts words into GRUB_CMDLINE_LINUX of GRUB's defaults file, in the place of parameters of the
// same names; the rest of the file stays as it is. Editing twice is editing once.
func EditGRUB(text string, words []BootWord) (string, error) {
	const key = "GRUB_CMDLINE_LINUX="
	names := map[string]bool{}
	var add []string
	for _, w := range words {
		for _, f := range strings.Fields(w.Word) {
			name, _, _ := strings.Cut(f, "=")
			names[name] = true
			add = append(add, f)
		}
	}
	lines := strings.SplitAfter(text, "\n")
	at := -1
	for i, line := range lines {
		if strings.HasPrefix(line, key) {
			if at >= 0 {
				return "", fmt.Errorf("line %d: %s stands there twice: leave one", i+1, key)
			}
			at = i
		}
	}
	var keep []string
	if at >= 0 {
		value := strings.TrimSpace(strings.TrimPrefix(lines[at], key))
		quote := ""
		if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
			quote, value = value[:1], value[1:n-1]
		}
		if strings.ContainsAny(value, "$`\\\"'") || quote == "" && strings.ContainsAny(value, " #") {
			return "", fmt.Errorf("line %d: %s holds more than plain words: edit it by hand", at+1, key)
		}
		for _, f := range strings.Fields(value) {
			if name, _, _ := strings.Cut(f, "="); !names[strings.ReplaceAll(name, "-", "_")] {
				keep = append(keep, f)
			}
		}
	}
	line := key + "\"" + strings.Join(append(keep, add...), " ") + "\"\n"
	if at < 0 {
		if text != "" && !strings.HasSuffix(text, "\n") {
			line = "\n" + line
		}
		return text + line, nil
	}
	lines[at] = line
	return strings.Join(lines, ""), nil
}
