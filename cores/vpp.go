package cores

import (
	"fmt"
	"strings"

	"isolane.dev/isolane/cpuset"
)

// Limits of VPP (26.06).
const (
	maxVPPThreads = 63  // vlib_thread_init counts main and workers, and rejects FRAME_QUEUE_MAX_NELTS, 64
	maxVPPNode    = 31  // VLIB_BUFFER_MAX_NUMA_NODES
	maxVPPOnline  = 255 // characters of cpu/online that clib_sysfs_read_bitmap reads
)

// vpp writes the sections cpu, buffers and dpdk (FD.io: VPP configuration). VPP takes the numbers of CPUs as
// the kernel's, and exits if one is not in its cpuset. With the word relative, since 25.06, they are
// positions among the CPUs that it may use when it starts; an older VPP skips that word and everything after
// it without an error. The word follows main-core, because VPP since 26.02 looks for both in this order.
// Otherwise it pins main wherever it happens to run, and its heap is then there.
func vpp(r Request) (string, error) {
	switch {
	case r.Lane.CPUs.Len() > maxVPPThreads:
		return "", fmt.Errorf("lane %s has %d CPUs, VPP takes %d: main and %d workers",
			r.Lane.Name, r.Lane.CPUs.Len(),
			maxVPPThreads, maxVPPThreads-1)
	case r.MemoryNodes.Last() > maxVPPNode:
		return "", fmt.Errorf("this machine has memory on node %d: VPP starts only where the highest is %d or less",
			r.MemoryNodes.Last(), maxVPPNode)
	}
	main, workers := Main(r.Lane)
	one := cpuset.Of(main)
	places := "main-core " + r.relative(one).String() + " relative"
	plain := fmt.Sprintf("cpu {\n  main-core %d\n", main)
	if !workers.IsEmpty() {
		places += " corelist-workers " + r.relative(workers).String()
		plain += fmt.Sprintf("  corelist-workers %s\n", workers)
	}
	plain += "}\n"
	switch {
	case !r.Lane.CPUs.IsSubsetOf(r.vppSees()):
		plain = fmt.Sprintf("# VPP reads %d characters of /sys/devices/system/cpu/online, which do not name "+
			"all of these CPUs.\n# So this needs VPP 25.06, and counts places among the CPUs that it may use when it "+
			"starts: %s\ncpu { %s }\n",
			maxVPPOnline, r.Granted, places)
	case r.relative(workers) != workers || r.relative(one) != one:
		plain += fmt.Sprintf("\n# The same from VPP 25.06 on, by places among the CPUs that it may use when it "+
			"starts\n"+
			"# (its cpuset, and taskset), %s:\n# cpu { %s }\n", r.Granted, places)
	}
	return plain + r.foreignBuffers() + r.cards(), nil
}

// vppSees returns the online CPUs that VPP reads: if the list is cut off, without its last entry.
func (r Request) vppSees() cpuset.Set {
	list := r.online().String()
	if len(list) <= maxVPPOnline {
		return r.online()
	}
	list = list[:maxVPPOnline]
	seen, err := cpuset.Parse(list[:strings.LastIndexByte(list, ',')])
	if err != nil {
		return cpuset.Set{} // never: it is the beginning of a list
	}
	return seen
}

// foreignBuffers keeps VPP off nodes other than the lane's. Otherwise VPP makes the kernel reserve hugepages
// for buffers on each node with memory.
func (r Request) foreignBuffers() string {
	foreign := r.MemoryNodes.Difference(r.Lane.MemoryNodes)
	if foreign.IsEmpty() || r.Lane.MemoryNodes.IsEmpty() {
		return ""
	}
	text := "\n# No buffers and no hugepages on other nodes than the lane's. " +
		"VPP before 24.10 does not start with it.\nbuffers {\n"
	for node := range foreign.All() {
		text += fmt.Sprintf("  numa %d { buffers 0 }\n", node)
	}
	return text + "}\n"
}

// cards writes the cards of a lane that has them itself, without a path, and their queues, which VPP divides
// among its workers. VPP then takes only these cards.
func (r Request) cards() string {
	if len(r.Lane.Devices) == 0 || r.Lane.Spec.Network.Path != "" {
		return ""
	}
	text := "\n# VPP takes a card from the kernel when it starts, unless its network device is up.\ndpdk {\n"
	queues := ""
	if n := r.Lane.Spec.Network.Queues; n > 0 {
		queues = fmt.Sprintf(" { num-rx-queues %d }", n)
	}
	for _, d := range r.Lane.Devices {
		addresses := d.Virtual
		if len(addresses) == 0 {
			addresses = []string{d.Address}
		}
		for _, a := range addresses {
			text += "  dev " + a + queues + "\n"
		}
	}
	return text + "}\n"
}
