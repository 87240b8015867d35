package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/cpuset"
)

const debugIRQs = "sys/kernel/debug/irq/irqs"

// interrupts reads the numbered lines of /proc/interrupts, and where each may fire
// (Documentation/core-api/irq/irq-affinity.rst). It adds those that only /proc/irq has: interrupts of devices
// whose driver has not requested them yet.
func (r *reader) interrupts(devices []PCIDevice) []Interrupt {
	var all []Interrupt
	var table *CountTable
	listed := map[uint64]bool{}
	r.lines("proc/interrupts", func(line string) bool {
		if table == nil {
			var err error
			if table, err = ParseCountHead(line); err != nil {
				r.warn("/proc/interrupts: %v", err)
			}
		} else if irq, ok := parseInterrupt(line, table); ok {
			all = append(all, irq)
			listed[uint64(irq.IRQ)] = true
		}
		return table != nil
	})
	for _, n := range r.numbered("proc/irq", "", "") {
		if !listed[n] {
			unlisted := Interrupt{IRQ: int(n)}
			if table != nil {
				unlisted.Fired = &cpuset.Set{}
			}
			all = append(all, unlisted)
		}
	}
	owners := r.messageOwners(devices)
	debug := len(r.entries(debugIRQs)) > 0
	for i := range all {
		dir := fmt.Sprintf("proc/irq/%d/", all[i].IRQ)
		all[i].Affinity = r.either(dir+"smp_affinity_list", dir+"smp_affinity")
		if !r.forPlan {
			all[i].Effective = r.either(dir+"effective_affinity_list", dir+"effective_affinity")
		}
		if address, ok := owners[all[i].IRQ]; ok && all[i].Device == nil {
			all[i].Device = &address
		}
		if debug {
			all[i].Managed = r.managed(all[i].IRQ)
		}
	}
	slices.SortStableFunc(all, func(a, b Interrupt) int { return a.IRQ - b.IRQ })
	return all
}

// messageOwners returns the device of each message-signalled interrupt, because older kernels do not print it
// in /proc/interrupts (Documentation/ABI/testing/sysfs-bus-pci, msi_irqs).
func (r *reader) messageOwners(devices []PCIDevice) map[int]string {
	owners := map[int]string{}
	for _, d := range devices {
		for _, irq := range r.numbered(pciDir+"/"+d.Address+"/msi_irqs", "", "") {
			owners[int(irq)] = d.Address
		}
	}
	return owners
}

// managed reads the flag that kernel/irq/debugfs.c prints for an interrupt whose affinity only the kernel
// changes. It is only in debugfs (CONFIG_GENERIC_IRQ_DEBUGFS).
func (r *reader) managed(irq int) *bool {
	text, ok := r.read(fmt.Sprintf("%s/%d", debugIRQs, irq))
	if !ok {
		return nil
	}
	is := strings.Contains(text, "IRQD_AFFINITY_MANAGED")
	return &is
}

// CountTable parses /proc/interrupts or /proc/softirqs (proc_interrupts(5)): a head with the online CPUs,
// then a row for each counted event.
type CountTable struct {
	CPUs   []int // of the columns
	counts []uint64
}

// CountRow is a row of a CountTable.
type CountRow struct {
	Label  string   // "36", "NMI", "NET_RX"
	Counts []uint64 // by column, valid until the next Row; totals of the machine, such as ERR, have one
	Text   string   // after the counts
}

// ParseCountHead parses the first line: "CPU0 CPU1 CPU3".
func ParseCountHead(line string) (*CountTable, error) {
	t := &CountTable{}
	for _, name := range strings.Fields(line) {
		number, ok := strings.CutPrefix(name, "CPU")
		id, err := strconv.ParseUint(number, 10, 31)
		if !ok || err != nil || id > cpuset.Max {
			return nil, fmt.Errorf("expected a head of CPUs, found %.40q", name)
		}
		t.CPUs = append(t.CPUs, int(id))
	}
	if len(t.CPUs) == 0 {
		return nil, fmt.Errorf("expected a head of CPUs, found nothing")
	}
	return t, nil
}

// Row parses a line after the head. It returns false if the line has no label. It parses by hand for speed: a
// large machine has thousands of lines with hundreds of counts each.
func (t *CountTable) Row(line string) (CountRow, bool) {
	label, rest, ok := strings.Cut(line, ":")
	t.counts = t.counts[:0]
	at := 0
	const none = "          0" // the count of most CPUs, as the kernel prints it
	for len(t.counts) < len(t.CPUs) {
		end := at
		if next := at + len(none); next < len(rest) && rest[at:next] == none && rest[next] == ' ' {
			t.counts, at = append(t.counts, 0), next
			continue
		}
		for end < len(rest) && rest[end] == ' ' {
			end++
		}
		start, count := end, uint64(0)
		for ; end < len(rest) && rest[end] >= '0' && rest[end] <= '9'; end++ {
			count = count*10 + uint64(rest[end]-'0')
		}
		if end == start || end-start > 19 || end < len(rest) && rest[end] != ' ' {
			break // "5-edge" or a word; 64 bits can have more digits only after centuries
		}
		t.counts, at = append(t.counts, count), end
	}
	return CountRow{Label: strings.TrimSpace(label), Counts: t.counts, Text: strings.TrimSpace(rest[at:])}, ok
}

// parseInterrupt parses a line of /proc/interrupts as kernel/irq/proc.c prints it: number, counts by CPU
// (some lines have fewer than the head), chip, number in the chip with its trigger, actions.
//
//	36:  0  189834  PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
//	11:  5       7  GICv3  27 Level  arch_timer
func parseInterrupt(line string, table *CountTable) (Interrupt, bool) {
	row, ok := table.Row(line)
	irq, err := strconv.ParseUint(row.Label, 10, 31)
	if !ok || err != nil {
		return Interrupt{}, false
	}
	var fired []int
	for column, count := range row.Counts {
		if count > 0 {
			fired = append(fired, table.CPUs[column])
		}
	}
	on := cpuset.Of(fired...)
	chip, actions := row.Source()
	return Interrupt{IRQ: int(irq), Fired: &on, Device: orNull(pciAddress(chip)), Name: orNull(actions)}, true
}

// Source splits the text after the counts of a numbered interrupt into the interrupt chip and the names of
// the actions.
func (r CountRow) Source() (chip, actions string) {
	fields := strings.Fields(r.Text)
	if len(fields) == 0 {
		return "", ""
	}
	chip, fields = fields[0], fields[1:]
	if len(fields) > 0 {
		hardware, _, _ := strings.Cut(fields[0], "-")
		if isDigits(hardware) || hardware == "" { // "5-edge", "27", and Xen's "-virq"
			fields = fields[1:]
		}
	}
	if len(fields) > 0 && (fields[0] == "Level" || fields[0] == "Edge") {
		fields = fields[1:]
	}
	return chip, strings.Join(fields, " ")
}

// pciAddress returns the address at the end of a chip's name: "PCI-MSIX-0000:00:02.0".
func pciAddress(chip string) string {
	address := chip[strings.LastIndexByte(chip, '-')+1:]
	if !isPCIAddress(address) {
		return ""
	}
	return address
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
