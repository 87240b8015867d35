package lane

import (
	"fmt"
	"slices"
	"strings"
)

// Field describes one field of a declaration. `isolane explain lane`, the JSON schema and Validate all use
// the table of fields.
type Field struct {
	Path     string   // spec.cpus.count; * stands for any name
	Form     string   // how its value is written
	Required bool     // a lane without it is refused
	Default  string   // what holds without it
	Values   []string // the words that it may be, if these are all
	Min, Max int      // of a number
	Meaning  string
	Example  string // a value, as YAML
}

// Fields returns all fields of a declaration, each before those inside of it.
func Fields() []Field {
	return slices.Concat(headFields(), cpuFields(), resourceFields(), networkFields(), deviceFields(),
		placeFields(), cgroupFields(), threadFields())
}

func headFields() []Field {
	return []Field{
		{Path: "apiVersion", Form: "TEXT", Required: true, Values: []string{APIVersion},
			Example: APIVersion,
			Meaning: "The version of the declaration."},
		{Path: "kind", Form: "TEXT", Required: true, Values: []string{Kind}, Example: Kind,
			Meaning: "What the document declares."},
		{Path: "metadata", Form: "{name: NAME}", Required: true, Example: "{name: web}",
			Meaning: "What the lane is called."},
		{Path: "metadata.name", Form: "NAME", Required: true, Example: "web",
			Meaning: "The lane's name on its host: 1-63 of a-z, 0-9, '-' and '.'. Commands, cgroups " +
				"and other lanes use it."},
		{Path: "spec", Form: "{cpus: {count: N}}", Required: true, Example: "{cpus: {count: 2}}",
			Meaning: "What the lane needs."},
	}
}

func cpuFields() []Field {
	return []Field{
		{Path: "spec.cpus", Form: "{count: N}", Required: true, Example: "{count: 4, smt: isolate}",
			Meaning: "How many CPUs, and of what kind. A CPU is what the kernel numbers: one thread of " +
				"a core."},
		{Path: "spec.cpus.count", Form: "N", Required: true, Min: 1, Max: 8192, Example: "4",
			Meaning: "How many CPUs the lane owns."},
		{Path: "spec.cpus.list", Form: "CPULIST", Default: "Isolane chooses", Example: "2-9",
			Meaning: "The CPUs, as many as count, where somebody has chosen them. Memory, interrupts and idle " +
				"siblings are planned for these; the lane is refused where they cannot be had."},
		{Path: "spec.cpus.smt", Form: "WORD", Values: []string{Isolate, Pack, Any}, Default: Any,
			Example: Isolate,
			Meaning: "What happens to the sibling threads of its cores. isolate: they are the lane's " +
				"too, and stay idle. pack: the lane has whole cores and uses all their threads. " +
				"any: single threads, but no core is shared where that can be avoided."},
		{Path: "spec.cpus.kind", Form: "WORD", Values: []string{"performance", "efficiency"},
			Default: "performance cores first", Example: "performance",
			Meaning: "The kind of core, on machines that have two."},
		{Path: "spec.cpus.l3", Form: "WORD", Values: []string{One}, Default: "few L3 caches are preferred",
			Example: One,
			Meaning: "one: all CPUs below one L3 cache."},
		{Path: "spec.cpus.numa", Form: "WORD", Values: []string{One}, Default: "few NUMA nodes are preferred",
			Example: One,
			Meaning: "one: CPUs and memory on one NUMA node."},
		{Path: "spec.cpus.share", Form: "N", Min: 1, Max: 64,
			Default: "1, the lane owns its CPUs alone", Example: "2",
			Meaning: "How many lanes may share each of the CPUs, this one among them. Not with smt " +
				"isolate or pack, nor with policy fifo or rr."},
		{Path: "spec.cpus.boot", Form: "BOOL", Default: "false", Example: "true",
			Meaning: "The lane may have the boot CPU and its siblings, which the kernel uses for work " +
				"of its own."},
		{Path: "spec.cpus.balance", Form: "BOOL",
			Default: "true, but false for a lane of one CPU and for one whose roles have all its CPUs",
			Example: "false",
			Meaning: "The kernel spreads the lane's threads over the lane's CPUs. false is for " +
				"programs that pin each thread themselves: threads that nobody pins then all stay " +
				"on one CPU."},
	}
}

func resourceFields() []Field {
	return []Field{
		{Path: "spec.memory", Form: "{size: SIZE, hugepages: {2Mi: SIZE}}",
			Default: "memory of the nearest NUMA node, as much as there is",
			Example: "{size: 1Gi, hugepages: {2Mi: 512Mi}}",
			Meaning: "Memory that must be near the CPUs."},
		{Path: "spec.memory.size", Form: "SIZE", Default: "no amount is asked for", Example: "1Gi",
			Meaning: "Ordinary memory, without the hugepages. The units are Ki, Mi, Gi, Ti and k, M, " +
				"G, T."},
		{Path: "spec.memory.hugepages", Form: "{2Mi: SIZE}", Default: "none",
			Example: "{2Mi: 512Mi, 1Gi: 2Gi}",
			Meaning: "Memory in hugepages, by the size of a page."},
		{Path: "spec.memory.hugepages.*", Form: "SIZE", Example: "512Mi",
			Meaning: "Memory in pages of this size: a multiple of the page."},
	}
}

func networkFields() []Field {
	return []Field{
		{Path: "spec.network", Form: "{device: NAME}", Default: "none",
			Example: "{device: ens1f0, queues: 2}",
			Meaning: "How packets reach the workload."},
		{Path: "spec.network.path", Form: "WORD",
			Default: "the network that the workload has", Example: "bridge",
			Meaning: "The path of packets: what isolane run starts has a network namespace with the device " +
				"eth0, or with ovs-dpdk a socket for vhost-user. auto is the best that the host can make " +
				"(docs/paths.md); a path that it cannot is refused."},
		{Path: "spec.network.device", Form: "NAME", Default: "none: only lanes of this host reach each other",
			Example: "ens1f0",
			Meaning: "The network device that is the uplink, or a bridge that has it as a port; with paths ovs " +
				"and ovs-dpdk one of Open vSwitch; with path vpp also an interface of VPP."},
		{Path: "spec.network.addresses", Form: "[ADDRESS/LENGTH]", Default: "none",
			Example: "[192.0.2.10/24, \"2001:db8::10/64\"]",
			Meaning: "The addresses of eth0."},
		{Path: "spec.network.gateways", Form: "[ADDRESS]", Default: "none: what is on the link can be reached",
			Example: "[192.0.2.1]",
			Meaning: "The routers to all else, at most one for IPv4 and one for IPv6."},
		{Path: "spec.network.sources", Form: "[ADDRESS/LENGTH]", Default: "none: the lane sends from its addresses",
			Example: "[10.1.0.0/16]",
			Meaning: "Others for whom the workload routes: with path express it may send from these too, and say " +
				"that it is a router."},
		{Path: "spec.network.mtu", Form: "N", Min: 68, Max: 65535,
			Default: "that of the uplink; 1500 without one, or by ovs, ovs-dpdk and vpp",
			Example: "1500",
			Meaning: "The largest packet in bytes."},
		{Path: "spec.network.rate", Form: "RATE", Default: "none: as much as the path carries", Example: "2Gbit",
			Meaning: "The most that the workload sends, in bits a second, from 1Mbit."},
		{Path: "spec.network.vlan", Form: "{outer: TAG, inner: TAG}", Default: "none",
			Example: "{outer: 100, inner: 17}",
			Meaning: "The VLAN tags on the wire. The workload sees frames without them, and no others."},
		{Path: "spec.network.vlan.outer", Form: "TAG", Min: 1, Max: 4094, Default: "none",
			Example: "100",
			Meaning: "The first tag: of IEEE 802.1Q, or around an inner one of 802.1ad."},
		{Path: "spec.network.vlan.inner", Form: "TAG", Min: 1, Max: 4094, Default: "none",
			Example: "17",
			Meaning: "The second tag (QinQ)."},
		{Path: "spec.network.takeFromHost", Form: "BOOL", Default: "false", Example: "true",
			Meaning: "While lanes have the device, the host may lose what it reaches through it: its own addresses " +
				"and routes there. Without this such a device is refused (docs/paths.md)."},
	}
}

// deviceFields has what the workload's device is, and what a card gives it.
func deviceFields() []Field {
	return []Field{
		{Path: "spec.network.vfs", Form: "N", Min: 1, Max: 256, Default: "1 with path sriov",
			Example: "2",
			Meaning: "How many virtual functions of the device the lane gets, only with path sriov: eth0 with the " +
				"lane's addresses, and eth1 and so on without; with driver vfio-pci all as they are."},
		{Path: "spec.network.driver", Form: "WORD", Values: []string{VFIO, Tap}, Example: "tap",
			Default: "the kernel's: the workload has eth0",
			Meaning: "How the workload has its device, where it is no network device. tap, for a " +
				"virtual machine: tap0 in the namespace. vfio-pci, with path sriov: the virtual function itself, for " +
				"a virtual machine or a program in user space (DPDK)."},
		{Path: "spec.network.vf", Form: "{trust: BOOL, state: WORD}", Default: "none",
			Example: "{trust: true, state: enable}",
			Meaning: "What the card grants the lane's virtual functions, only with path sriov."},
		{Path: "spec.network.vf.trust", Form: "BOOL", Default: "false", Example: "true",
			Meaning: "The workload may ask the card for more than its own frames, such as all multicast or another " +
				"MAC address: its driver says what."},
		{Path: "spec.network.vf.state", Form: "WORD", Values: []string{"auto", "enable", "disable"},
			Default: "as the card has it", Example: "enable",
			Meaning: "The link that the workload sees. auto: the card's. enable: always up. disable: down, and no " +
				"frames pass."},
		{Path: "spec.network.queues", Form: "N", Min: 1, Max: 1024, Default: "none", Example: "2",
			Meaning: "How many queues the workload's device has, by which the lane's CPUs send, and how many " +
				"interrupts of a card's queues go to these CPUs."},
	}
}

func placeFields() []Field {
	return []Field{
		{Path: "spec.near", Form: "one of {device: NAME}, {numaNode: N} and {lane: NAME}",
			Default: "nothing", Example: "{device: ens1f0}",
			Meaning: "What the lane must be close to: one thing."},
		{Path: "spec.near.device", Form: "NAME", Example: "ens1f0",
			Meaning: "On the NUMA node of this device: a network device or a PCI address."},
		{Path: "spec.near.numaNode", Form: "N", Min: 0, Max: 1023, Example: "0",
			Meaning: "On this NUMA node."},
		{Path: "spec.near.lane", Form: "NAME", Example: "db",
			Meaning: "Beside this lane."},
		{Path: "spec.apart", Form: "{lanes: [NAME]}", Default: "nothing",
			Example: "{lanes: [db], level: node}",
			Meaning: "What the lane must not share with other lanes."},
		{Path: "spec.apart.lanes", Form: "[NAME]", Example: "[db]",
			Meaning: "The other lanes, by name."},
		{Path: "spec.apart.level", Form: "WORD", Values: []string{"core", "l3", "node", "package"},
			Default: "l3", Example: "node",
			Meaning: "What they must not share: a core, an L3 cache, a NUMA node or a package."},
		{Path: "spec.preferred", Form: "{WISH: COST}", Default: "all wishes must hold",
			Example: "{near: 3}",
			Meaning: "Wishes of this lane that may be broken, and what each costs. The wishes are smt, " +
				"kind, l3, numa, near and apart."},
		{Path: "spec.preferred.*", Form: "COST", Min: 1, Max: 1000, Example: "3",
			Meaning: "What it costs to break the wish: the planner breaks those that cost least in " +
				"all."},
	}
}

func cgroupFields() []Field {
	return []Field{
		{Path: "spec.cgroup", Form: "{path: PATH, partition: member}", Default: "a partition that Isolane makes",
			Example: "{path: system.slice/web.service}",
			Meaning: "Where the lane's processes are."},
		{Path: "spec.cgroup.path", Form: "PATH", Default: "a cgroup that Isolane makes",
			Example: "system.slice/web.service",
			Meaning: "The workload's own cgroup, as its service manager or container runtime has made it, with " +
				"processes in it. With cgroup v2 from Linux 6.7 the lane lies there, and limits and statistics stay " +
				"whose they are; with v1 its cpuset gets the lane's CPUs; else its processes move to the lane."},
		{Path: "spec.cgroup.partition", Form: "WORD", Values: []string{Member},
			Default: "a partition where the kernel makes one", Example: Member,
			Meaning: "member: a plain cpuset. The kernel does not take its CPUs from others then: only their own " +
				"cpusets and affinities keep them off. With cgroup v1 all are plain."},
	}
}

func threadFields() []Field {
	return []Field{
		{Path: "spec.roles", Form: "{NAME: N}", Default: "none", Example: "{main: 1, worker: 3}",
			Meaning: "Named threads with CPUs of their own, as VPP, DPDK and QEMU have: main, worker, " +
				"vcpu, emulator and others."},
		{Path: "spec.roles.*", Form: "N", Min: 1, Max: 8192, Example: "3",
			Meaning: "How many of the lane's CPUs these threads have."},
		{Path: "spec.switch", Form: "WORD", Default: "none",
			Example: "ovs-dpdk",
			Meaning: "The lane is that of this switch of the host, which is told its CPUs and hugepages: the " +
				"poll-mode threads of ovs-dpdk have the role pmd, or all CPUs but one; vpp's all but main."},
		{Path: "spec.scheduling", Form: "{policy: fifo, priority: N}",
			Default: "as the workload has it", Example: "{policy: fifo, priority: 50}",
			Meaning: "The scheduling class of the workload's threads."},
		{Path: "spec.scheduling.policy", Form: "WORD", Values: []string{"fifo", "rr", "other"},
			Default: "as the workload has it", Example: "fifo",
			Meaning: "fifo and rr are the real-time classes, other is the usual one."},
		{Path: "spec.scheduling.priority", Form: "N", Min: 1, Max: 98, Example: "50",
			Meaning: "The real-time priority; fifo and rr need one."},
		{Path: "spec.scheduling.busyPoll", Form: "BOOL", Default: "false", Example: "true",
			Meaning: "Sockets and epolls of the workload poll the device for up to a millisecond before they " +
				"sleep: a card's own, " +
				"or paths express, macvlan, sriov."},
		{Path: "spec.objective", Form: "{rtt: {p99: TIME}, throughput: {min: RATE}}", Default: "none",
			Example: "{rtt: {p99: 100us}}",
			Meaning: "What the lane must reach; a measurement says whether it does."},
		{Path: "spec.objective.rtt", Form: "{p99: TIME}", Default: "none",
			Example: "{p99: 100us, p99.9: 250us}",
			Meaning: "Bounds of the round-trip time, by percentile: p50, p99, p99.9, max."},
		{Path: "spec.objective.rtt.*", Form: "TIME", Example: "100us",
			Meaning: "The bound of this percentile. The units are ns, us, ms, s."},
		{Path: "spec.objective.throughput", Form: "{min: RATE}", Default: "none",
			Example: "{min: 1Gbit/s}",
			Meaning: "Bounds of the throughput."},
		{Path: "spec.objective.throughput.min", Form: "RATE", Default: "none", Example: "1Gbit/s",
			Meaning: "The least throughput. The units are kbit/s, Mbit/s, Gbit/s."},
	}
}

// field returns the row of a path in a table. Names that the user chooses match *.
func field(table []Field, path string) (Field, bool) {
	for _, f := range table {
		parent, open := strings.CutSuffix(f.Path, "*")
		if f.Path == path || open && strings.HasPrefix(path, parent) && len(path) > len(parent) {
			return f, true
		}
	}
	return Field{}, false
}

// Topic returns the row of a field as a user asks `isolane explain` for it: lane.spec.cpus. The topic lane
// has no path.
func Topic(name string) (Field, error) {
	if name == "lane" {
		return Field{}, nil
	}
	table := Fields()
	if path, isLane := strings.CutPrefix(name, "lane."); isLane {
		if f, ok := field(table, path); ok {
			return f, nil
		}
	}
	known := []string{"lane"}
	for _, f := range table {
		known = append(known, "lane."+f.Path)
	}
	for _, k := range known {
		if strings.HasSuffix(k, "."+name) { // spec.cpus, cpus
			return Field{}, fmt.Errorf("%s: expected %s", cut(name, longest), k)
		}
	}
	if meant := nearest(name, known); meant != "" {
		return Field{}, fmt.Errorf("%s: there is no such field, did you mean %s?", cut(name, longest), meant)
	}
	return Field{}, fmt.Errorf("%s: there is no such field: isolane explain lane shows all", cut(name, longest))
}
