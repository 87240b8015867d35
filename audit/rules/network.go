package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"isolane.dev/isolane/audit"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/settings"
)

const scalingGuide = "Documentation/networking/scaling.rst"

// packetRules check how packets get to lane CPUs.
func packetRules() []rule {
	return []rule{{
		id: "rps", title: "received packets are steered to lane CPUs", needsLanes: true,
		impact: "interrupts between CPUs and softirq work, 5 to 50 µs a burst; right for the lane's own interface",
		fix:    "echo {housekeeping-mask} > /sys/class/net/DEV/queues/rx-N/rps_cpus",
		source: scalingGuide + ", RPS", check: steering,
	}, {
		id: "rps-default", title: "interfaces that come up later steer packets to lane CPUs", needsLanes: true,
		impact: "5 to 50 µs of softirq work a burst, as soon as a container's interface appears",
		fix:    "echo {housekeeping-mask} > /proc/sys/net/core/rps_default_mask",
		source: "Documentation/admin-guide/sysctl/net.rst, rps_default_mask", check: defaultSteering,
	}, {
		id: "xps", title: "lane and other CPUs share transmit queues",
		classes:    severities(audit.Info, audit.Info, audit.Info),
		needsLanes: true,
		impact:     "a lock that another CPU may hold, and completions in interrupts of others",
		fix:        "echo {lane-mask} > xps_cpus of the lane's own queue, {housekeeping-mask} into the others",
		source:     scalingGuide + ", XPS", check: sharedTransmit,
	}, {
		id: "busy-poll", title: "sockets sleep for packets",
		classes: severities(audit.None, audit.Info, audit.None),
		impact:  "an interrupt and a wake-up for each message, 5 to 30 µs, which busy polling saves",
		fix:     "scheduling.busyPoll of the lane; not net.core.busy_poll, by which each epoll of the host polls",
		source:  "Documentation/networking/napi.rst, busy polling", check: noBusyPoll,
	}, {
		id: "napi-threads", title: "threads that receive packets may run on lane CPUs", needsLanes: true,
		impact: "5 to 100 µs a burst, wherever the scheduler puts them",
		fix:    "taskset -pc CPU PID for each napi/ thread, or echo 0 > /sys/class/net/DEV/threaded",
		source: "Documentation/networking/napi.rst, threaded NAPI", check: onLane(receivesPackets),
	}}
}

// deviceRules check where the devices are, and how they reach memory.
func deviceRules() []rule {
	return []rule{{
		id: "nic-vectors", title: "network cards interrupt lane CPUs", needsLanes: true,
		impact: "2 to 20 µs each, and packet processing: a card spreads its queues over all CPUs; right for the " +
			"lane's own queues",
		fix:  "ethtool -L DEV combined N: fewer queues; then echo {housekeeping} > /proc/irq/N/smp_affinity_list",
		boot: "irqaffinity={housekeeping}, isolcpus=managed_irq,{lane}", source: irqGuide, check: networkVectors,
	}, {
		id: "nic-node", title: "network devices are on other NUMA nodes than the lane",
		classes: severities(audit.Warn, audit.Warn, audit.Warn), needsLanes: true,
		impact: "each packet crosses the interconnect: 100 to 200 ns more, and its bandwidth",
		fix:    "plan the lane near its device (near: {device: …}), or use a device on its node",
		source: "Documentation/ABI/testing/sysfs-bus-pci, numa_node", check: farDevices,
	}, {
		id: "nic-node-unknown", title: "network devices do not say which NUMA node they are on",
		classes: severities(audit.Info, audit.Info, audit.Info),
		impact:  "placement near them is a guess",
		fix:     "some firmware has a setting for it; else find the slot in the board's manual",
		source:  "Documentation/ABI/testing/sysfs-bus-pci, numa_node", check: unplacedDevices,
	}, {
		id: "aspm", title: "PCI Express links may sleep",
		impact: "2 to 70 µs until the link is awake again",
		fix:    "echo performance > /sys/module/pcie_aspm/parameters/policy", boot: "pcie_aspm.policy=performance",
		source: parameters + ", pcie_aspm", check: linkPower,
	}, {
		id: "iommu", title: "the IOMMU translates for the kernel's own drivers",
		classes: severities(audit.None, audit.None, audit.Warn),
		impact: "mapping and flushing for each packet of a kernel driver: 5 to 50 percent of throughput; none " +
			"with vfio",
		boot:   "iommu.passthrough=1 (for the kernel's drivers; vfio still isolates its devices)",
		source: parameters + ", iommu.passthrough=", check: translated,
	}, {
		id: "nic-coalescing", title: "the interface waits to interrupt for several packets at once",
		classes: severities(audit.None, audit.Warn, audit.None),
		impact:  "adaptive moderation delays a packet by up to 100 µs",
		fix:     "see ethtool -c, -g, -n DEV; for latency: ethtool -C DEV adaptive-rx off rx-usecs 0",
		source:  "ethtool(8)", check: coalescing,
	}, {
		id: "net-daemon", title: "a network service manages devices of lanes' paths",
		impact: "it may give them addresses, set them down, or take an uplink out of its lanes' bridge: no packets",
		source: "systemd.network(5), KeepMaster= and Unmanaged=; NetworkManager.conf(5), unmanaged-devices=",
		check:  managed,
	}}
}

func steering(s *subject) []hit {
	return s.overlaps(s.Matching("/sys/class/net/*/queues/rx-*/rps_cpus"), s.Mask)
}

func defaultSteering(s *subject) []hit { // since Linux 6.3, if the kernel has RPS
	s.lacksAll("/proc/sys/net/core/")
	return s.overlaps(s.Optional("/proc/sys/net/core/rps_default_mask"), s.Mask)
}

func sharedTransmit(s *subject) []hit {
	var h hit
	s.lacksAll("/sys/class/net/")
	for _, p := range s.Optional("/sys/class/net/*/queues/tx-*/xps_cpus") {
		cpus, ok := s.Mask(p)
		if on := cpus.Intersection(s.lane); ok && !on.IsEmpty() && !cpus.IsSubsetOf(s.lane) {
			h.add(on, "%s: CPUs %s", p, cpus)
		}
	}
	return h.counted("%d queues")
}

func noBusyPoll(s *subject) []hit {
	read, ok := s.Number("/proc/sys/net/core/busy_read")
	poll, also := s.Number("/proc/sys/net/core/busy_poll")
	if !ok || !also || read > 0 || poll > 0 {
		return nil
	}
	return []hit{{inForce: "busy_read and busy_poll are 0; single sockets may still ask for it"}}
}

func receivesPackets(t settings.Task) bool { return t.Kernel && strings.HasPrefix(t.Name, "napi/") }

// interfaces returns the physical network functions that have an interface, or could provide virtual
// functions.
func (s *subject) interfaces() []host.PCIDevice {
	return slices.DeleteFunc(slices.Clone(s.PCIDevices), func(d host.PCIDevice) bool {
		return d.Kind != "network" || d.PF != nil || len(d.Netdevs) == 0 && d.Driver == nil
	})
}

func label(d host.PCIDevice) string {
	if len(d.Netdevs) == 0 {
		return d.Address
	}
	return d.Address + " (" + strings.Join(d.Netdevs, ", ") + ")"
}

// networkVectors counts by network card, as an engineer would move them, the interrupts that the rules on
// interrupts also find. Interrupts that are set to other CPUs count as moved.
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
		s.Lacks("/proc/interrupts that names devices, or msi_irqs of network cards")
	}
	slices.SortStableFunc(cards, func(a, b card) int { return b.on - a.on })
	for _, c := range cards {
		h.add(cpuset.Set{}, "%s: %d of %d vectors", c.text, c.on, c.total)
	}
	h.inForce = fmt.Sprintf("%d of %d vectors of network cards go to lane CPUs", sum.on, sum.total)
	return h.shown()
}

// farDevices matters only if no device is near.
func farDevices(s *subject) []hit {
	local := s.nodes(s.lane)
	var h hit
	for _, d := range s.interfaces() {
		switch {
		case d.NUMANode == nil:
		case local.IsEmpty() || local.Contains(*d.NUMANode):
			return nil
		default:
			h.add(s.lane, "%s: node %d", label(d), *d.NUMANode)
		}
	}
	return h.counted("all %d devices are on other nodes than the lane, which is on node %s", local)
}

func unplacedDevices(s *subject) []hit {
	var h hit
	for _, d := range s.interfaces() {
		if d.NUMANode == nil && len(s.NUMANodes) > 1 {
			h.add(cpuset.Set{}, "%s", label(d))
		}
	}
	return h.counted("%d devices on a machine with %d nodes", len(s.NUMANodes))
}

func linkPower(s *subject) []hit {
	const file = "/sys/module/pcie_aspm/parameters/policy"
	if _, ok := s.Files[file]; !ok && len(s.PCIDevices) == 0 {
		return nil
	}
	policy, ok := s.Chosen(file)
	if !ok || policy == "performance" {
		return nil
	}
	h := hit{inForce: file + " is " + policy}
	if policy == "default" {
		h.classes = new(severities(audit.Info, audit.Info, audit.None)) // the firmware chose
		h.inForce += ": what the firmware set up"
	}
	return []hit{h}
}

func translated(s *subject) []hit {
	types := map[string]int{}
	groups := s.Optional("/sys/kernel/iommu_groups/*/type")
	for _, p := range groups {
		types[s.Files[p]]++
	}
	lazy, strict := types["DMA-FQ"], types["DMA"]
	if lazy+strict == 0 {
		s.lacksAll("/sys/kernel/")
		return nil
	}
	h := hit{requested: cmp.Or(s.requested("iommu.passthrough"), s.requested("iommu")),
		inForce: fmt.Sprintf("%d of %d groups translate strictly, %d lazily", strict, len(groups), lazy)}
	if s.Kernel.Before(5, 15) { // Linux before 5.15 calls both of these DMA
		h.inForce = fmt.Sprintf("%d of %d groups translate", strict, len(groups))
	}
	return []hit{h}
}

// coalescing is known only from ethtool's netlink interface, which a snapshot does not have.
func coalescing(s *subject) []hit {
	none := len(s.Optional("/sys/class/net/*/queues/rx-*/rps_cpus")) == 0
	return s.noHit(none && len(s.interfaces()) == 0, "file with what ethtool -c, -g and -n say")
}

// managed recognizes Isolane's devices, and their ports, by name (netpath.Port, netpath.Bridge).
func managed(s *subject) []hit {
	const ours = "isl"
	s.lacksAll("/sys/class/net/")
	var hits []hit
	for _, d := range s.ManagedDevices() {
		own := strings.HasPrefix(d.Name, ours)
		if !own && (!strings.HasPrefix(d.Master, ours) || d.KeepsMaster) {
			continue
		}
		h := hit{requested: d.File, inForce: d.By + " manages " + d.Name}
		if !own {
			h.inForce += ", a port of " + d.Master + ", and takes it out of there when "
		}
		switch {
		case d.By == settings.NetworkManager:
			match, name := ours+"*", "isolane"
			if !own {
				match, name = d.Name, "uplink-"+d.Name
				h.inForce += "a connection of it is activated"
			}
			h.fix = fmt.Sprintf("a file /etc/NetworkManager/conf.d/%s.conf with [keyfile] and "+
				"unmanaged-devices+=interface-name:%s, then nmcli general reload", name, match)
		case own:
			h.fix = "a file /etc/systemd/network/00-isolane.network with [Match] Name=isl* and " +
				"[Link] Unmanaged=yes, then networkctl reload"
		default:
			h.fix = "KeepMaster=yes in the section [Network] of " + d.File + ", then networkctl reload"
			h.inForce += "it sets it up anew"
		}
		hits = append(hits, h)
	}
	return hits
}
