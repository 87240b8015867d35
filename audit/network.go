package audit

import (
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/host"
)

const scalingGuide = "Documentation/networking/scaling.rst"

// networkRules ask how packets get to lane CPUs, and where the devices are.
func networkRules() []rule {
	return []rule{
		{
			id: "rps", title: "received packets are steered to lane CPUs",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "an interrupt between CPUs and softirq work, 5 to 50 µs a burst; right only for the lane's own interface",
			runTime: "echo {housekeeping-mask} > /sys/class/net/DEV/queues/rx-N/rps_cpus",
			source:  scalingGuide + ", RPS", check: func(s *subject) []hit {
				return s.overlaps(s.matching("/sys/class/net/*/queues/rx-*/rps_cpus"), s.mask)
			},
		},
		{
			id: "rps-default", title: "interfaces that come up later steer packets to lane CPUs",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "5 to 50 µs of softirq work a burst, as soon as a container's interface appears",
			runTime: "echo {housekeeping-mask} > /proc/sys/net/core/rps_default_mask",
			source:  "Documentation/admin-guide/sysctl/net.rst, rps_default_mask", check: defaultSteering,
		},
		{
			id: "xps", title: "lane and other CPUs share transmit queues",
			classes: Severities{Info, Info, Info}, needsLanes: true,
			cost:    "a lock that another CPU may hold, and completions in somebody else's interrupt",
			runTime: "echo {lane-mask} > xps_cpus of a queue for the lane alone, and {housekeeping-mask} into the others",
			source:  scalingGuide + ", XPS", check: sharedTransmit,
		},
		{
			id: "busy-poll", title: "sockets sleep for packets",
			classes: Severities{None, Info, None},
			cost:    "an interrupt and a wake-up for each message, 5 to 30 µs, which busy polling saves where the CPU is the lane's alone",
			runTime: "echo 50 > /proc/sys/net/core/busy_read; echo 50 > /proc/sys/net/core/busy_poll, or SO_BUSY_POLL in the lane only",
			source:  "Documentation/networking/napi.rst, busy polling", check: noBusyPoll,
		},
		{
			id: "napi-threads", title: "threads that receive packets may run on lane CPUs",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "5 to 100 µs a burst, wherever the scheduler puts them",
			runTime: "taskset -pc CPU PID for each napi/ thread, or echo 0 > /sys/class/net/DEV/threaded",
			source:  "Documentation/networking/napi.rst, threaded NAPI", check: func(s *subject) []hit {
				return s.tasksOnLane(func(t host.Task) bool { return t.Kernel && strings.HasPrefix(t.Name, "napi/") })
			},
		},
		{
			id: "nic-vectors", title: "network cards interrupt lane CPUs",
			classes: Severities{Warn, Warn, Info}, needsLanes: true,
			cost:    "2 to 20 µs each, and the packets behind it: a card spreads its queues over all CPUs; right only for the lane's own queues",
			runTime: "fewer queues, ethtool -L DEV combined N, then echo {housekeeping} > /proc/irq/N/smp_affinity_list for each that is left",
			boot:    "irqaffinity={housekeeping}, isolcpus=managed_irq,{lane}",
			source:  irqGuide, check: networkVectors,
		},
		{
			id: "nic-node", title: "network devices are on other NUMA nodes than the lane",
			classes: Severities{Warn, Warn, Warn}, needsLanes: true,
			cost:    "each packet crosses the interconnect: 100 to 200 ns more, and its bandwidth",
			runTime: "plan the lane near its device (near: {device: …}), or take a virtual function of a device on its node",
			source:  "Documentation/ABI/testing/sysfs-bus-pci, numa_node", check: farDevices,
		},
		{
			id: "nic-node-unknown", title: "network devices do not say which NUMA node they are on",
			classes: Severities{Info, Info, Info},
			cost:    "placement near them is a guess",
			runTime: "look in the firmware's set-up for the slot's node; some firmware has a switch for it",
			source:  "Documentation/ABI/testing/sysfs-bus-pci, numa_node", check: lostDevices,
		},
		{
			id: "aspm", title: "PCI Express links may sleep",
			classes: Severities{Warn, Warn, Info},
			cost:    "2 to 70 µs until the link is awake again",
			runTime: "echo performance > /sys/module/pcie_aspm/parameters/policy", boot: "pcie_aspm.policy=performance",
			source: parameters + ", pcie_aspm", check: linkPower,
		},
		{
			id: "iommu", title: "the IOMMU translates for the kernel's own drivers",
			classes: Severities{None, None, Warn},
			cost:    "mapping and flushing for each packet of a kernel driver: 5 to 50 percent of throughput; devices under vfio are not concerned",
			boot:    "iommu=pt (passthrough for the kernel's drivers; vfio still isolates its devices)",
			source:  parameters + ", iommu=", check: translated,
		},
		{
			id: "nic-coalescing", title: "the interface waits to interrupt for several packets at once",
			classes: Severities{None, Warn, None},
			cost:    "adaptive moderation delays a packet by up to 100 µs",
			runTime: "look: ethtool -c, -g, -n DEV; for latency: ethtool -C DEV adaptive-rx off rx-usecs 0",
			source:  "ethtool(8)", check: func(s *subject) []hit {
				if len(s.optional("/sys/class/net/*/queues/rx-*/rps_cpus")) > 0 {
					s.lacks("file with what ethtool -c, -g and -n say")
				}
				return nil
			},
		},
	}
}

func defaultSteering(s *subject) []hit {
	if _, ok := s.files["/proc/sys/net/core/rps_default_mask"]; !ok { // since Linux 6.3, where the kernel has RPS
		return nil
	}
	return overlap("/proc/sys/net/core/rps_default_mask")(s)
}

func sharedTransmit(s *subject) []hit {
	var h hit
	for _, p := range s.optional("/sys/class/net/*/queues/tx-*/xps_cpus") {
		cpus, ok := s.mask(p)
		if on := cpus.Intersection(s.lane); ok && !on.IsEmpty() && !cpus.IsSubsetOf(s.lane) {
			h.cpus = h.cpus.Union(on)
			h.evidence = append(h.evidence, fmt.Sprintf("%s: CPUs %s", p, cpus))
		}
	}
	if len(h.evidence) == 0 {
		return nil
	}
	h.inForce = fmt.Sprintf("%d queues", len(h.evidence))
	return []hit{h}
}

func noBusyPoll(s *subject) []hit {
	read, ok := s.number("/proc/sys/net/core/busy_read")
	poll, also := s.number("/proc/sys/net/core/busy_poll")
	if !ok || !also || read > 0 || poll > 0 {
		return nil
	}
	return []hit{{inForce: "busy_read and busy_poll are 0; single sockets may still ask for it"}}
}

// interfaces are the physical network functions that have an interface or could give virtual ones.
func (s *subject) interfaces() []host.PCIDevice {
	var nics []host.PCIDevice
	for _, d := range s.PCIDevices {
		if d.Kind == "network" && d.PF == nil && (len(d.Netdevs) > 0 || d.Driver != nil) {
			nics = append(nics, d)
		}
	}
	return nics
}

func label(d host.PCIDevice) string {
	if len(d.Netdevs) == 0 {
		return d.Address
	}
	return d.Address + " (" + strings.Join(d.Netdevs, ", ") + ")"
}

// networkVectors counts by card: the same interrupts as in the findings about interrupts, as an engineer
// would mend them. What is set to other CPUs is as good as moved.
func networkVectors(s *subject) []hit {
	type card struct {
		text      string
		on, total int
	}
	var h hit
	var cards []card
	sum := card{}
	for _, d := range s.PCIDevices {
		c := card{text: label(d)}
		if d.Driver != nil {
			c.text += " " + *d.Driver
		}
		for _, i := range s.Interrupts {
			if d.Kind != "network" || i.Device == nil || *i.Device != d.Address {
				continue
			}
			c.total++
			if on := effective(i).Intersection(s.lane); !on.IsEmpty() && !s.isPending(i) {
				c.on++
				h.cpus = h.cpus.Union(on)
			}
		}
		sum.on, sum.total = sum.on+c.on, sum.total+c.total
		if c.on > 0 {
			cards = append(cards, c)
		}
	}
	if sum.total == 0 && len(s.interfaces()) > 0 {
		s.lacks("/proc/interrupts that names devices, or msi_irqs of network cards")
	}
	if sum.on == 0 {
		return nil
	}
	slices.SortStableFunc(cards, func(a, b card) int { return b.on - a.on })
	for _, c := range cards {
		h.evidence = append(h.evidence, fmt.Sprintf("%s: %d of %d vectors", c.text, c.on, c.total))
	}
	h.inForce = fmt.Sprintf("%d of %d vectors of network cards go to lane CPUs", sum.on, sum.total)
	return []hit{h}
}

// farDevices is of concern only where no device is near.
func farDevices(s *subject) []hit {
	near := s.nodes(s.lane)
	var far []string
	for _, d := range s.interfaces() {
		switch {
		case d.NUMANode == nil:
		case near.Contains(*d.NUMANode):
			return nil
		default:
			far = append(far, fmt.Sprintf("%s: node %d", label(d), *d.NUMANode))
		}
	}
	if near.IsEmpty() || len(far) == 0 {
		return nil
	}
	return []hit{{cpus: s.lane, inForce: fmt.Sprintf("the lane is on node %s, all %d devices on others", near, len(far)), evidence: far}}
}

func lostDevices(s *subject) []hit {
	var h hit
	for _, d := range s.interfaces() {
		if d.NUMANode == nil {
			h.evidence = append(h.evidence, label(d))
		}
	}
	if len(s.NUMANodes) < 2 || len(h.evidence) == 0 {
		return nil
	}
	h.inForce = fmt.Sprintf("%d devices on a machine with %d nodes", len(h.evidence), len(s.NUMANodes))
	return []hit{h}
}

func linkPower(s *subject) []hit {
	const file = "/sys/module/pcie_aspm/parameters/policy"
	if _, ok := s.files[file]; !ok && len(s.PCIDevices) == 0 {
		return nil
	}
	policy, ok := s.chosen(file)
	if !ok || policy == "performance" {
		return nil
	}
	h := hit{inForce: file + " is " + policy}
	if policy == "default" {
		h.classes = &Severities{Info, Info, None} // the firmware chose
		h.inForce += ": what the firmware set up"
	}
	return []hit{h}
}

func translated(s *subject) []hit {
	types := map[string]int{}
	groups := s.optional("/sys/kernel/iommu_groups/*/type")
	for _, p := range groups {
		types[s.files[p]]++
	}
	lazy, strict := types["DMA-FQ"], types["DMA"]
	if lazy+strict == 0 {
		return nil
	}
	return []hit{{asked: s.boot.asked("iommu"), inForce: fmt.Sprintf("%d of %d groups translate strictly, %d lazily", strict, len(groups), lazy)}}
}
