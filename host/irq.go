package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const debugIRQs = "sys/kernel/debug/irq/irqs"

// interrupts reads the numbered lines of /proc/interrupts (proc_interrupts(5)), and where each may
// fire (Documentation/core-api/irq/irq-affinity.rst). /proc/irq has more of them: those that a device
// holds and no driver has asked for yet.
func (r *reader) interrupts(devices []PCIDevice) []Interrupt {
	var all []Interrupt
	columns := 0
	listed := map[uint64]bool{}
	r.lines("proc/interrupts", func(line string) bool {
		if columns == 0 {
			columns = strings.Count(line, "CPU")
		} else if irq, ok := parseInterrupt(line, columns); ok {
			all = append(all, irq)
			listed[uint64(irq.IRQ)] = true
		}
		return true
	})
	for _, n := range r.numbered("proc/irq", "", "") {
		if !listed[n] {
			all = append(all, Interrupt{IRQ: int(n)})
		}
	}
	owner := r.messageOwners(devices)
	debug := len(r.entries(debugIRQs)) > 0
	for i := range all {
		dir := fmt.Sprintf("proc/irq/%d/", all[i].IRQ)
		all[i].Affinity = r.either(dir+"smp_affinity_list", dir+"smp_affinity")
		all[i].Effective = r.either(dir+"effective_affinity_list", dir+"effective_affinity")
		if at, ok := owner[all[i].IRQ]; ok && all[i].Device == nil {
			all[i].Device = &at
		}
		if debug {
			all[i].Managed = r.managed(all[i].IRQ)
		}
	}
	slices.SortStableFunc(all, func(a, b Interrupt) int { return a.IRQ - b.IRQ })
	return all
}

// messageOwners says which device has which message-signalled interrupt: older kernels do not print
// it in /proc/interrupts (Documentation/ABI/testing/sysfs-bus-pci, msi_irqs).
func (r *reader) messageOwners(devices []PCIDevice) map[int]string {
	owner := map[int]string{}
	for _, d := range devices {
		for _, irq := range r.numbered(pciDir+"/"+d.Address+"/msi_irqs", "", "") {
			owner[int(irq)] = d.Address
		}
	}
	return owner
}

// managed reads the flag that kernel/irq/debugfs.c prints of an interrupt whose affinity the kernel
// keeps to itself. Nothing but debugfs (CONFIG_GENERIC_IRQ_DEBUGFS) has it.
func (r *reader) managed(irq int) *bool {
	text, ok := r.read(fmt.Sprintf("%s/%d", debugIRQs, irq))
	if !ok {
		return nil
	}
	is := strings.Contains(text, "IRQD_AFFINITY_MANAGED")
	return &is
}

// parseInterrupt reads a line of /proc/interrupts as kernel/irq/proc.c prints it: number, counts by
// CPU (some lines have fewer than the header), chip, number in the chip with its trigger, actions.
//
//	36:  0  189834  PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
//	11:  5       7  GICv3  27 Level  arch_timer
func parseInterrupt(line string, columns int) (Interrupt, bool) {
	number, rest, ok := strings.Cut(line, ":")
	irq, err := strconv.ParseUint(strings.TrimSpace(number), 10, 31)
	if !ok || err != nil {
		return Interrupt{}, false
	}
	rest = afterCounts(rest, columns)
	fields := strings.Fields(rest)
	i := Interrupt{IRQ: int(irq)}
	if len(fields) == 0 {
		return i, true
	}
	i.Device = orNull(pciAddress(fields[0]))
	fields = fields[1:]
	if len(fields) > 0 {
		hardware, _, _ := strings.Cut(fields[0], "-")
		if isDigits(hardware) || hardware == "" { // "5-edge", "27", and Xen's "-virq"
			fields = fields[1:]
		}
	}
	if len(fields) > 0 && (fields[0] == "Level" || fields[0] == "Edge") {
		fields = fields[1:]
	}
	i.Name = orNull(strings.Join(fields, " "))
	return i, true
}

// afterCounts skips up to so many numbers. By hand: there are hundreds in each of thousands of lines.
func afterCounts(s string, columns int) string {
	at := 0
	for ; columns > 0; columns-- {
		end := at
		for end < len(s) && s[end] == ' ' {
			end++
		}
		start := end
		for end < len(s) && s[end] >= '0' && s[end] <= '9' {
			end++
		}
		if end == start || end < len(s) && s[end] != ' ' {
			break
		}
		at = end
	}
	return s[at:]
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
