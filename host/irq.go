package host

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
)

// interrupts reads the numbered lines of /proc/interrupts (proc_interrupts(5)) and where each may
// fire (Documentation/core-api/irq/irq-affinity.rst).
func (r *reader) interrupts() []Interrupt {
	text, ok := r.read("proc/interrupts")
	if !ok {
		return nil
	}
	names := ParseInterruptNames(text)
	irqs := make([]int, 0, len(names))
	for irq := range names {
		irqs = append(irqs, irq)
	}
	slices.Sort(irqs)
	all := make([]Interrupt, 0, len(irqs))
	for _, irq := range irqs {
		dir := fmt.Sprintf("proc/irq/%d/", irq)
		all = append(all, Interrupt{IRQ: irq, Name: names[irq], Affinity: r.list(dir + "smp_affinity_list"),
			Effective: r.list(dir + "effective_affinity_list")})
	}
	return all
}

// ParseInterruptNames returns the actions of each numbered interrupt: what stands after the counts,
// the chip and the hardware number. A line may have fewer counts than the header has CPUs.
func ParseInterruptNames(text string) map[int]string {
	names := map[int]string{}
	for line := range strings.Lines(text) {
		number, rest, ok := strings.Cut(line, ":")
		irq, err := strconv.Atoi(strings.TrimSpace(number))
		if !ok || err != nil || irq < 0 {
			continue
		}
		fields := strings.Fields(rest)
		for len(fields) > 0 && isDigits(fields[0]) {
			fields = fields[1:]
		}
		// The chip, and the hardware number with the trigger ("6-edge", or "6-edge" glued to it).
		if len(fields) > 2 {
			names[irq] = strings.Join(fields[2:], " ")
		} else {
			names[irq] = ""
		}
	}
	return names
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func (r *reader) hugepageSizes(dir string) []uint64 {
	entries, err := fs.ReadDir(r.root, dir)
	if err != nil {
		return nil
	}
	var sizes []uint64
	for _, e := range entries {
		size, ok := strings.CutSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB")
		if kib, err := strconv.ParseUint(size, 10, 40); ok && err == nil {
			sizes = append(sizes, kib)
		}
	}
	slices.Sort(sizes)
	return sizes
}
