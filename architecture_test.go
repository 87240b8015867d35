package isolane_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const module = "isolane.dev/isolane"

// imports is the architecture: which of our packages each package may import. A path with /* at
// its end stands for all packages below it.
func imports() map[string][]string {
	return map[string][]string{
		"cpuset": {}, "quantity": {}, "terminal": {}, "stats": {}, "noise": {}, "sched": {}, "scenarios": {},
		"examples":      {},
		"journal":       {},
		"results":       {"cpuset", "lane"},
		"host":          {"cpuset", "host/cgroup", "host/cmdline", "host/firmware", "host/task", "sched"},
		"host/cmdline":  {"cpuset"},
		"host/task":     {"cpuset", "sched"},
		"host/mount":    {},
		"host/firmware": {},
		"host/cgroup":   {"cpuset", "host/mount", "host/task"},
		"host/settings": {"cpuset", "host", "host/task", "sched"},
		"host/snapshot": {"host", "host/settings"},
		"host/hosttest": {"cpuset", "host", "host/snapshot", "host/task"},
		"lane":          {"cpuset", "quantity", "sched"},
		"lane/explain":  {"examples", "lane", "terminal"},
		"version":       {"lane"},
		"boot":          {"cpuset", "host", "host/cmdline", "plan"},
		"audit":         {"cpuset", "quantity", "terminal"},
		"audit/rules":   {"audit", "cpuset", "host", "host/settings", "host/task", "quantity"},
		"claims":        {"quantity", "terminal"},
		"claims/row":    {"claims"}, "claims/formula": {"claims/row"},
		"claims/role":  {"claims/row"},
		"claims/cells": {"claims/role", "claims/row"},
		"claims/rules": {"claims", "claims/cells", "claims/formula", "claims/role", "claims/row", "quantity"},
		"plan":         {"cpuset", "host", "lane", "quantity"},
		"plan/stock":   {"cpuset", "host", "lane", "plan"}, // only for the two below
		"plan/search":  {"cpuset", "host", "lane", "plan", "plan/stock", "quantity"},
		"plan/solver":  {"cpuset", "host", "lane", "plan", "plan/search", "plan/stock", "quantity"},
		"cores":        {"cpuset", "lane", "plan"},
		"draw":         {"cpuset", "host", "plan", "quantity", "terminal"},
		"knob":         {"change", "change/systemd", "cpuset", "host", "host/cgroup", "host/task", "journal", "lane", "plan"},
		"enforce": {"change", "change/netdev", "enforce/attached", "enforce/merge", "enforce/partition", "host", "host/cgroup", "host/task", "journal", "knob", "lane",
			"netpath", "plan", "unit"},
		"enforce/partition": {"change", "cpuset", "journal", "knob"}, "enforce/adopt": {"change", "enforce", "host", "host/cgroup", "journal", "knob"},
		"change/netdev/queues": {"change/netdev", "cpuset", "journal"}, "change/systemd": {"change/machine", "cpuset", "journal"}, "change/machine": {},
		"enforce/attached": {"change", "change/netdev", "cpuset", "host/cgroup", "host/task", "journal", "plan"},
		"enforce/merge":    {"host", "lane", "netpath", "plan", "plan/solver"},
		"enforce/guard":    {"change", "cpuset", "enforce", "host", "host/cgroup", "host/task", "journal", "netpath"},
		"change":           {"change/netdev", "change/netdev/queues", "change/systemd", "cpuset", "host", "host/cgroup", "host/task", "journal", "sched"},
		"change/netdev":    {"host/task", "journal", "quantity"},
		"netpath":          {"change", "change/netdev", "change/netdev/queues", "cpuset", "host", "journal", "lane", "plan"},
		"netpath/drivers":  {"journal", "netpath", "netpath/*"},
		"netpath/*":        {"change/machine", "change/netdev", "change/netdev/queues", "cores", "cpuset", "host", "journal", "lane", "netpath", "netpath/bridge", "plan", "quantity"},
		"runtime/process":  {"cpuset", "host", "host/mount", "host/task", "sched"},
		"runtime/running": {"change", "cpuset", "enforce", "enforce/attached", "host", "host/cgroup", "host/task", "journal",
			"knob", "plan"},
		"runtime/guest":    {"cpuset", "host", "host/task"},
		"runtime/pod":      {"host/cgroup", "host/task", "journal", "lane"},
		"runtime/busypoll": {"host/task"},
		"runtime/spread":   {"cpuset", "host/cgroup", "host/task"},
		"lanes": {"change", "change/netdev", "cores", "cpuset", "enforce", "enforce/adopt", "enforce/attached", "enforce/merge", "host", "host/cgroup", "host/mount", "host/task", "journal",
			"knob", "lane", "netpath", "plan", "plan/solver", "quantity", "runtime/process", "runtime/running",
			"runtime/busypoll", "runtime/spread", "unit"},
		"history":       {"journal", "terminal"},
		"history/diary": {"enforce", "enforce/attached", "history", "journal", "lane", "lanes", "plan", "quantity"},
		"unit":          {"change/netdev", "cpuset", "knob", "lane", "netpath", "plan"},
		"top":           {"cpuset", "enforce", "lane", "lanes", "quantity", "results", "terminal", "watch", "witness"},
		"watch": {"cpuset", "enforce", "enforce/guard", "host", "lanes", "netpath", "plan", "quantity", "results",
			"runtime/process", "terminal", "witness"},
		"agent":          {"cpuset", "enforce", "history", "journal", "lane", "lanes", "netpath", "plan", "results", "watch", "witness"},
		"witness":        {"cpuset", "host", "host/cgroup", "host/task", "results", "witness/tail"},
		"witness/judge":  {"cpuset", "results"},
		"witness/tail":   {"results", "stats"},
		"probe":          {"results"},
		"probe/*":        {"cpuset", "probe", "probe/timer", "probe/webserver", "quantity", "results"},
		"probe/router":   {"host", "probe", "probe/frames", "probe/http", "probe/webserver", "quantity", "results"},
		"factor":         {"lane", "noise", "probe", "results", "runtime/guest"},
		"factor/*":       {"factor", "host/cmdline", "lane", "noise", "probe", "quantity", "results", "runtime/guest"},
		"prove/scenario": {"enforce/merge", "factor", "lane", "probe", "quantity", "results", "runtime/guest", "sched", "stats"},
		"prove/search":   {"results"},
		"prove/schedule": {"factor", "prove/scenario", "results"},
		"prove/settings": {},
		"prove/balance":  {"results"}, "prove/programs": {"lanes", "runtime/process", "terminal"},
		"prove/layout":  {"cpuset", "factor", "host", "lane", "plan", "plan/solver", "quantity", "results"},
		"prove/network": {"change/netdev", "change/netdev/queues", "cpuset", "journal", "netpath", "probe", "prove/layout"},
		"prove": {"cpuset", "enforce", "factor", "host", "host/cgroup", "host/task", "journal", "knob", "lane", "lanes", "plan", "probe",
			"prove/layout", "prove/programs", "prove/scenario", "prove/schedule", "prove/search", "prove/settings", "prove/testbed", "quantity", "results", "runtime/pod", "runtime/process", "scenarios", "stats", "terminal"},
		"prove/testbed": {"change", "change/netdev", "change/netdev/queues", "cpuset", "enforce", "enforce/attached", "factor", "host", "host/cgroup", "journal", "knob", "lane", "lanes", "netpath", "noise", "plan", "probe",
			"prove/balance", "prove/layout", "prove/network", "prove/programs", "prove/scenario", "prove/settings", "results", "runtime/guest", "runtime/pod", "runtime/process", "terminal", "witness", "witness/judge", "witness/tail"},
		"prove/drivers": {"factor", "factor/*", "netpath/direct", "netpath/drivers", "probe", "probe/*", "prove/scenario", "prove/testbed"},
		"report": {"lane", "quantity", "report/chart", "report/curves", "report/evidence", "report/figures", "report/format", "report/metric", "report/samples", "results", "stats",
			"terminal"},
		"report/objective": {"lane", "report/format", "report/samples", "stats"}, "report/export": {"lane", "report", "report/figures", "report/format", "report/metric", "report/samples", "results", "terminal"},
		"report/answers":  {"claims", "claims/rules", "prove/scenario", "report", "report/figures", "report/format", "report/metric", "results", "stats"},
		"report/compare":  {"quantity", "report/evidence", "report/figures", "report/format", "report/metric", "results", "stats", "terminal"},
		"report/figures":  {"lane", "quantity", "report/evidence", "report/format", "report/metric", "report/objective", "report/samples", "results", "stats"},
		"report/curves":   {"quantity", "report/figures", "report/format", "report/metric", "results"},
		"report/evidence": {"cpuset", "quantity", "results", "stats"},
		"report/metric":   {"report/format", "results", "stats"},
		"report/samples":  {"report/format", "results", "stats"},
		"report/chart":    {"report/curves", "report/figures", "report/format", "report/metric", "report/samples", "terminal"},
		"report/format":   {"results"},
		"examples/embed":  {"cpuset", "journal", "lane", "lanes", "netpath/drivers"}, // a module of its own
		"cli":             {"terminal"}, "cmd/isolane": {"*"},
		"test/*": {"cpuset", "host/hosttest", "lane", "results"},
		"bench":  {"cpuset", "netpath", "netpath/*", "journal", "probe", "probe/*", "results", "witness"},
		// The module of the node's part for Kubernetes. What it says and reads is pure.
		"kube/offer": {"host", "plan", "plan/solver", "quantity"},
		"kube/ask":   {"cpuset", "host", "kube/offer", "lane", "plan", "plan/solver", "quantity"},
		"kube/node": {"change", "cpuset", "enforce", "enforce/attached", "host", "host/cgroup", "journal", "kube/ask", "kube/node/cards", "kube/node/drift", "kube/offer", "lane",
			"lanes", "plan", "plan/solver"},
		"kube/node/cards":            {"host", "kube/ask", "kube/offer", "plan"},
		"kube/node/drift":            {"cpuset", "enforce", "enforce/guard", "host", "journal", "lanes"},
		"kube/cmd/isolane-kube":      {"*"},
		"kube/cmd/isolane-kube-hook": {"cpuset"},
		// The module of the hub. What a hub may change of a host, and which host it takes, is pure.
		"hub/desired": {}, "hub/place": {"host", "lane", "plan", "plan/solver", "quantity"},
		"hub/api": {"lane"}, "hub/sites": {"hub/api"}, "hub/up": {"host", "host/task", "hub/desired", "journal"},
		"hub/simulate":        {"cpuset", "host", "hub/api", "hub/sites", "lane", "lanes", "plan", "plan/solver"},
		"hub/apps":            {"hub/api", "hub/place", "lane", "plan", "quantity"},
		"hub/agent":           {"audit/rules", "history", "host", "host/settings", "hub/api", "hub/desired", "hub/pods", "hub/sites", "hub/up", "hub/workload", "journal", "lanes", "plan", "version"},
		"hub/workload":        {"enforce", "enforce/attached", "history", "history/diary", "host", "host/cgroup", "host/task", "hub/api", "hub/desired", "hub/pods", "journal", "lane", "lanes", "plan", "unit"},
		"hub/pods":            {"hub/api", "lane", "lanes", "plan"},
		"hub/cmd/isolane-hub": {"*"},
		// The module of the virtual machines, which knows Isolane as a program only.
		"lab": {}, "lab/cmd/isolane-lab": {"lab"},
		// The module of the Kubernetes that tests run on, likewise.
		"test/kube": {}, "test/kube/*": {},
		"test/kube/bed": {"test/kube", "test/kube/fold", "test/kube/image", "test/kube/inside"}, "test/kube/bed/*": {"test/kube", "test/kube/bed"},
		"test/kube/cmd/*": {"test/kube", "test/kube/bed", "test/kube/fold", "test/kube/inside"},
	}
}

// ratchet is what each package may have at most, without its tests, and the whole tree. Lines are rounded up
// to 50 and exported names to 5. These numbers only fall: `go test . -run Ratchet -update` lowers them. A
// change that must raise one raises it here, and says why at the end of its row; a new package brings a row.
func ratchet() string {
	return `
package              lines exported  why it was raised
(files>400)              0
(functions>60)           1
(lines>110)              0
(nolint)                14  the hub that a token names is checked by its digest
agent                 1628       30  what another program needs to be one too (Socket, Whole, ServedError); a method for each request of its client; no empty answer to one of many reads
audit                  250       15
audit/rules           2400        5  out of audit; what a source lacks beside what is optional, quotas above a lane's cgroup, flags of old kernels; network services that manage devices of lanes; drop-ins of irqbalance, masks of work queues in force
boot                   600       10  what old kernels take, what means the same, GRUB's file in other hands; pools of hugepages that somebody else has
change                2450       35  threads of interrupts that wait to move; a controller that others hand down; threads of interrupts that a partition has moved; files are read without what os.File adds; a process of ours puts back what it set before it ends; CPUs that are offline stay a thread's own; what a killed move has frozen is thawed; governors of CPUs that are offline, hugepages that others add
change/machine         100        5  out of change/systemd: programs of the machine, for its switches too
change/netdev         2500       45  lanes are held to their rate out of their reach; queues of any device, and those it had before; devices that go together; checksums as on a wire; tags inside namespaces; entries of forwarding tables; a mount for the names of namespaces; router advertisements are refused, ports of bridges forward; devices that take all frames, bridges that are down keep nobody waiting; pairs between two namespaces; a device is compared by one thread in its namespace; taps of machines that run on the host
change/netdev/queues   400        5  out of change/netdev: which CPUs handle the frames of devices
change/systemd         300        5  out of change: what systemd carries out
claims                 200       10  shares of errors and hits, loss of rates, busy CPUs, packets × size on a link; all rows of a table, for answers
claims/cells           200        5  out of claims/rules: the rows by their configurations
claims/formula         150        5  out of claims/rules
claims/role            350        5  out of claims/rules: the names of formulas, also of machines, failures and money
claims/row            1000       50  conditions that name one of several parts; out of claims/rules: what a row is, apart from what rows say together; sides of comparisons, statistics of statistics, lengths, power and energy
claims/rules          2500        5  out of claims, whose findings others read too; what a table says in words, so that nothing is found that is not there; parts and totals; CPUs of hosts, times of light and links, averaged percentiles, units of one column, the base of comparisons
cli                    381       21  exit codes and -o, out of cmd/isolane, also for the hub's commands; -o of commands that print a document, their errors beside it, and how a program ends whose output is lost: out of cmd/isolane
cmd/isolane           1400        0  when clients begin together; what a command does with lanes is a library (history/diary, lanes)
cores                  700       15  an application is looked for before its lane; QEMU's options for a tap; what a machine of libvirt has in a lane that is in force
cpuset                 350       10
draw                  1000        5
enforce               2500       45  hugepages that others add, a lane's CPUs that are offline; a release that is tried once more; interrupts that come later get all CPUs back, and others with other numbers; running containers get the path; whose settings wait for a program, and their end; what a kill cuts off of a workload's way out
enforce/adopt          150        5  out of enforce: lanes without a record
enforce/attached       375       15  quotas that somebody sets again; out of enforce: workloads that ran before their lanes; the way home of cpusets that did not have what the lane has; whose lane changes, out of enforce
enforce/guard          700        5  programs that pin their own threads; cgroups that are widened after the plan; what cannot be put back is tried less and less often; where each lane's tasks belong; drift and repair, out of enforce
enforce/merge          350        5  segments are asked while lanes are planned; out of enforce: wanted lanes beside those in force
enforce/partition      150       10  out of enforce: partitions that the kernel refuses
examples                50        5
examples/embed         100        0
factor                 300       25  programs at both ends of the wire, what a cell needs, distances
factor/boot            200        5  conditions that need another boot
factor/command         150        5  programs at both ends of the wire, what a level needs
factor/cpus             50        5  factors, metrics and cells are data, and drivers
factor/distance         50        5  where the ends of a tunnel are
factor/instances       100        5  several of the application at once
factor/lane            100        5  a factor for what a lane asks for
factor/noise           100        5  factors, metrics and cells are data, and drivers
factor/path            100        5  factors, metrics and cells are data, and drivers; a level with another name, and tags on the wire
factor/placement        50        5  factors, metrics and cells are data, and drivers
factor/runtime         150        5  the real-time and the web case study, exports, compare
factor/setting         100        5  factors, metrics and cells are data, and drivers
history                767       30  reads times that people give, out of cmd/isolane; the times that a person names: out of cmd/isolane
history/diary          350        5  out of cmd/isolane: programs that use the library record alike, and what they do to lanes
host                  2500       34  files of the machine that a container lacks; CPUs that lanes may not have and housekeeping has; the firmware of board and cards; what runs is read with fewer opens, and for plans without where interrupts fire; pools without what the kernel frees; the choice in brackets of a file, for knobs and the audit; an ID of the machine that is not confidential
host/cgroup            330       15  who writes to cpusets while a run is measured
host/cmdline           200        5  conditions that need another boot
host/firmware          150        6  what an inventory says of board and cards, out of host
host/hosttest          650       20  a large machine in files, to be read; mounts of a test alone; tests that need systemd; threads of interrupts, whose CPU the kernel chooses
host/mount             100        5
host/settings          450       10  out of host and audit: what only an audit needs of a machine; what services are told about CPUs and devices, out of audit
host/snapshot          600        5  names of files that are all that is read
host/task              300       20
hub/agent             1940       10  both certificates have expired; Leases as the hub asks; reports by a connection of their own; a full disk uses up no token, a hub that has just started has revoked nobody; what runs otherwise than it is declared, and another hub at the address; who is revoked, a disk that takes nothing, audits that cost much; speaks with the hub beside what it looks after; what is told of a machine when the planner or an audit would see something else; how the clock of the host differs from the hub's; the hub's host: joins, reports, answers; hold, rehome, status; renews what has run out, finds other hubs
hub/api                400       46  how often hosts renew Leases; what is proved and has changed on a host; how objects are written, once for hub and hosts; its kinds, Apps, tenants and their quotas among them; a card trusts no App
hub/apps              1730       10  Instances by the watch and what the hub has written since; how many hosts there are; copies of hosts are packed; why hosts have not ended an App yet, how many of its hosts it has; names that are too long for hosts, fields where an App has them; hosts and sites that do not answer, for all Apps; reasons that go with what they are of; hosts that are away, what has not ended yet; labels by what is proved; Apps get hosts that reserve their lanes; quotas, which tenants read; why
hub/cmd/isolane-hub   1880        0  many requests at once, held against a referee's books; join starts the agent; hosts are told how often to renew Leases; core kinds as protobuf, less garbage; the certificates of a hub whose clock was behind; disks that are full; backups leave devices alone; who asks without a right to; wrong input of up has its exit code; the agent of a host looks after its lanes; simulate's changes for one host; by cobra, as isolane: help, exit codes, completion; kubectl's verbs; the hub's program: people at the hub and at sites, backup, simulate, a Kubernetes that is there; three hubs, one of which controls
hub/desired            519       16  a hold does not move from where rehome counts; which file a full disk does not take; what is beside each other; holds that no new start makes longer; the hub's first part: what it may change of what a host runs; what was renamed in a folder is on the disk too
hub/place              610       20  hosts that decline whatever is asked, and those with an Instance already; what each host lacks, and which change costs least over all; machines that are too large to plan on; the hub's first part: which host a lane gets; what its owner may read of that; the tightest fit
hub/pods               450        2  the nodes of a Kubernetes as hosts
hub/simulate           638        5  a referee of many requests; renew Leases as the hub asks; reports by a connection of their own, as the agent's; what agents tell of a machine; many hosts of a hub on one machine, for its figures; whether they hear a hub that was killed
hub/sites              950       19  Leases, renewed more rarely the more hosts there are; how often hosts read and say all; who revokes a host takes its rights; tokens, certificates and rights of hosts at the hub; namespaces that are deleted; the signer of a Kubernetes that is there; what has run out
hub/up                1359       10  how much is worked on at once; an invitation by a hub that was alone; a clock that is years off, a full disk, what is no backup; an address that is none; why a hub that cannot start does not; an API server without what is for pods; a hub on one machine: etcd and an API server as children; what a killed hub left; people by OIDC; backup and restore; members of three
hub/workload          1600       10  what ran before a change that cannot be, a cluster that never answers, what a tenant may read; out of hub/agent, which had what is done for Instances beside what is told of a machine; pods of a cluster, services and containers in lanes, as users without privileges; ends aside what takes its time, goes on where its disk takes nothing; what a lane lacks, and what its release has left, on disk; lanes of before a boot together
journal               1250       30  what somebody else relies on stays; where the step of each of thousands of threads is; a long log is written anew; what is made anew goes first; what a killed change was to replace; steps that wait for a program; whether it is busy; says of what ends that its time was up; a step stays where the kernel refuses its replacement; kinds whose value and state are one look; no second look at what was just seen in force
knob                  1900       35  others are kept off lanes that are no partitions, on cgroup v2; interrupts that come later; cgroups of pods that were made while lanes were in force
kube/ask              1350       20  several lanes of a claim, what is reserved for no pod, whether a status is as it was written; real-time, out of kube/node; fields that are twice; memory that a pod asks for too, and what no node could answer otherwise; the pod that a claim was answered for, and what containers of other drivers use up; whether the kubelet lets a lane's containers have its hugepages, and a pod later than the one that was asked for; pods get lanes: a claim as lanes, the answer as its status; parts of several containers; what a pod asks for as a whole; changes that a pod can have
kube/cmd/isolane-kube   150        0  pods get lanes
kube/cmd/isolane-kube-hook   150        0  memory nodes too; pods get lanes: fail-closed
kube/node             2500        5  what others write into claims, slices of another node, an API server that is too old; what containers beside a lane get when it has gone; quotas that somebody sets again; a kubelet that does not register the driver; updates of pods beside a record that cannot be read; what the node part has left, and its end; whose lane it is, before it is in force; promises that are gone, other pods of a claim, lanes without a partition, CPUs that are gone; the driver of a node, the plugin of its container runtime; what pods cannot have; claims of other nodes; what a kill leaves of files; ends a container whose lane was taken back; withholds what it refused while other nodes are tried; what else a node may not have to offer lanes; other plugins that set CPUs, by their containers and what they do; claims that the scheduler counts itself; devices of other drivers that are on another NUMA node
kube/node/cards        100        5  out of kube/node: which devices of other drivers are far from a pod's lanes
kube/node/drift        250        5  what others change of lanes is put back and told, without a flood
kube/offer             300       15  which kernels make partitions of containers' cgroups, for answers too; pods get lanes: what a node offers
lab                   1550       20  models of network cards
lab/cmd/isolane-lab    450        0  a machine whose cards are on a device of its host
lane                  1700       45  what lanes may take from their host; what drives a lane's device
lane/explain           150        5
lanes                 2150       35  cgroups that were made beside lanes, CPUs that lanes may not have; quotas that somebody sets again; a spreader that is nobody's ends; what recover did not put back; files with lanes, what waits is told, a status that no change is half done in, plans for other hosts, what applications are told, out of cmd/isolane; machines of libvirt lend their taps
netpath               1800       60  devices that are a switch's, what a switch counts and may not do, rules of a switch's lane out of lane; what the host itself has on an uplink, and its only default route; switches that do not answer, once for two paths; why an uplink carries nothing; uplinks and ports are checked in one place, with routes and tags of the host; whether a kernel has tags, for measurements; addresses that the host has on a segment, devices on an uplink; a wire without a host between, the limit of measurements; what a switch keeps over a reboot; a MAC address that somebody has
netpath/bridge         150        5  lanes are held to their rate; the wire to the outside client
netpath/direct          50        5  the machine's limit, for measurements
netpath/drivers         50        5  one list of paths, for the commands and for programs that use the library
netpath/express        850        5  frames longer than a lane's MTU, tables of an earlier layout; lanes are held to their rate; a shared table of lanes that stays, its file system, and what lanes may send; programs that frames meet before ours
netpath/macvlan        100        5
netpath/ovs           1950       10  what flows dropped, once for all lanes; an ovs-vswitchd that is not root; its bridges are no cards; bridges that Open vSwitch cannot make; receive queues of cards, both paths on one bridge, and customers behind one outer tag; flows of another version
netpath/sriov         1700        5  the card holds devices of lanes to their rate; a vertical path: functions made, given, told, put back; on vfio-pci with its IOMMU groups; queues; a card that was reset; the least rate and groups as found; what it is in scenarios; trust, the state of a link, two tags; vectors where the driver lets them be set
netpath/vpp            950        5  path vpp, and VPP in a lane; its card takes all frames
noise                  200        7  hackbench beside stress-ng: its programs and their packages
plan                   700       25  which interrupts are a lane's, out of plan/stock; names the file of a refused lane, out of cmd/isolane; the devices of placed lanes as the host has them now, out of enforce
plan/search           1950       20  others' use of a pool; combinations of too few nodes are spared, and of those that have nothing; a refusal says who has the functions
plan/solver           2100       10  fewer hugepages as a change; how large a lane may be within a part; what a lane near to another leaves it
plan/stock            1200       15  lanes that are still to come; both directions of a queue; memory of nodes without
probe                  811       31  how many CPUs the application has; on which CPU the longest samples were; one interface for several instances; arrivals of each block; whether instances measured together; the intervals of a trend; probes that are run by hand, out of cmd/isolane; measurements of several instances as one; by hand, whole: out of cmd/isolane; a merge key that cannot be what it looks like
probe/cyclictest       250        5
probe/echo             850       10  guards against the classic errors
probe/frames          2100        6  its frames, also for probe router; the kernel as a forwarder; where frames are lost, as both ends count them; frames for which a device has no room; a generator of frames and a forwarder, by AF_XDP and AF_PACKET, and which of these frames take; a forwarder in a virtual machine
probe/http            1070       10  latencies that are left out; which server it was; loads as shares of a measured capacity; several instances, and the client of probe router; a client whose part of the load is nothing
probe/iperf3           300        5  figures that cannot be are void; halves of a window, what it found; CPU time of a packet
probe/probetest        100        5  servers of probes' tests, shared
probe/router          1400        5  a router that polls, by Open vSwitch; a router that is started anew, and an attacker that plays one of IPv6; virtual routers: what an application between clients and server carries; a customer that attacks
probe/rtla             550        5  the kernel's own measure of wake-up latency
probe/timer            100        5
probe/wakeup           500        5  the real-time and the web case study, exports, compare
probe/webserver        596       22  goodput a CPU; which server it was; the real-time and the web case study, exports, compare
probe/wrk              350        5  facts, published figures
prove                 1850       20  programs that only some cells need; servers in virtual machines, trials whose late client does not matter; a limit of commands; application and neighbours as pods; several of the application; settings of the host that each run found; tags of networks behind routers; pods of a static node
prove/balance          250        5  segments at both ends, and who dropped some
prove/drivers          100        5  out of cmd/isolane: what a scenario may name, also for programs that use the library; the paths of scenarios
prove/layout           400       10  distances of the application from the client; and whether they differ between cells
prove/network          150       10  out of prove/testbed: names and addresses, and networks behind instances
prove/programs         330       10  programs that end while they are needed; whether isolane itself was late; out of prove/testbed: programs of a run, and commands
prove/scenario        1854       23  factors that cells may be without; what of a scenario can be in pods, and beside them in processes; rows of published tables; several instances; cells that only longer modes have; levels that do nothing are refused; so are times of 0, an aim listed twice, an attack on nobody
prove/schedule         460       15  out of prove: which runs come when; how a session goes on after a boot: out of cmd/isolane
prove/search           400       10  searches beside the cells
prove/settings         100        2  was in prove
prove/testbed         2500       15  applications that take frames before the kernel does, and name what they drop; applications whose work the kernel does; out of prove: how one run is made; the machine's limit and virtual functions, paths without a wire; how long CPUs of client and application were busy; segments that both ends counted; what serves is killed and started anew within the window; tags on the wire
quantity               250       10  loads as shares of a measured capacity
report                2500        5  bounds of late clients in tables; what was found stands first, also without aims; a file for each chart; what was lost, for programs; loads that cells hold, against each other; guards that failed are named in sentences; runs whose CPUs were near and far
report/answers         500        5  published tables, row by row, beside sessions; guards, loads and widths that leave an answer open
report/chart           772        5  texts hide the lines below them; each axis has a scale; bounds are marked; names in capitals
report/compare         758       11  boots are compared where runs are not of one boot; how many a verdict needs; guards of the sessions lower verdicts; two directories: out of cmd/isolane
report/curves          250        5  out of report/figures
report/evidence        450       16  what of the conditions differs between boots, for figures and compare; out of report/figures; what the machine did, and settings that differ, likewise; what is counted, for tables; what programs of others took; how far the CPUs were from each other
report/export          800        5  files to export to, out of cmd/isolane; aims that a guard opens; what was lost, and bounds, where a format cannot hold them
report/figures        2500       26  segments that nobody accounts for; what late clients find is a bound, and so are ratios to it, in all formats; what must not be at all; a ratio of any two cells, for answers; guards on heat, idle states, settings and what probes found; aims and objectives heed guards; what was lost is longer than all else; an open loop beside each closed one; the command of a session; void runs, which flatter what is left; a guard on the distance of the CPUs
report/format          155       11  numbers and units, which figures, page and plots print; what was lost
report/metric          100        5  out of report/figures: what runs measure, for all that print it
report/objective       200        5  out of report/figures: bounds of lanes
report/samples         150        5  out of report/figures: what was sampled, asked and lost
results               1220       90  segments; bounds of late clients; all cells and runs of a session, out of prove; kinds of sources, roles of threads, out of witness; what ended a session, settings, pods; the names of units; the role of what clients ask; which runs were made and on which boots, out of report/figures; runs that are void for steal alone; how long a cache line took
runtime/busypoll       200        5  only the lane's sockets poll, no longer the whole host's
runtime/guest         1425       15  machines that serve, also by vhost-user: the devices of their path, modules of their kernel; containers that serve in their caller's network; a table of its kinds
runtime/pod            565        6  application and neighbours as pods, by kubectl, also on a static node; stops neighbours, as prove/testbed did
runtime/process        850       17  a command in the foreground, what needs capabilities; a user without privileges, who sees no names of others; signals that come before a program begins, or that it is to ignore; who needs root; isolane's own threads on some CPUs and back
runtime/running       1200       10  quotas of containers in lanes; taps that a machine has open
runtime/spread         100        5
scenarios               50        5
sched                   50       10  names of policies, once
stats                  650       26  shares of runs that have stalls; about how many blocks or boots a verdict needs
terminal               500       15  lines of errors and notes; strange programs and names end in one line
test/fingerprint        50        0
test/golden             50        5
test/kube              250        5  a Kubernetes for tests, a module of its own
test/kube/bed         2100       10  a Kubernetes for tests, a module of its own; nodes in a machine of the lab join it; systemd as cgroup driver
test/kube/bed/bedtest   100        5  a Kubernetes for tests, a module of its own
test/kube/cmd/kubebed   300        0  a Kubernetes for tests, a module of its own
test/kube/fold         200        5  a Kubernetes for tests, a module of its own
test/kube/image        150        5  a Kubernetes for tests, a module of its own
test/kube/inside       400        5  a Kubernetes for tests, a module of its own; programs that end with their parent
test/kube/lanes/spin   100        0  pods get lanes: what pods of tests run
test/kube/topology     150        5  a Kubernetes for tests, a module of its own
test/programs          800        0
test/session           400       10  what a lane wins back, curves over a factor
test/summary           110        0  which tests took longest
test/vpptest           250       10  stands in for a VPP, for the tests of two packages
top                    753        5  lanes live in a terminal; a terminal: out of cmd/isolane
unit                   300       10  services of a hub too; out of cmd/isolane; units that ask for CPUs of lanes, out of enforce
version                100        5
watch                  656       17  follows the lanes in force, for the agent; its words, for top; who may watch, documents for programs: out of cmd/isolane
witness               2470       10  where each lane's tasks belong; ticks and handlers told apart, and what is at most another's time; the real-time and the web case study, exports, compare; what came into a container from outside; how long a cache line took
witness/judge          150        5  out of witness: the evidence against the plan
witness/tail           325        5  which of several threads served, or that nobody knows; out of witness and prove: what explains the worst samples
`
}

// The sources are read here and not with `go list`: the go command caches a test that starts
// another process, and would answer from the cache after the layering was broken.
func TestImports(t *testing.T) {
	table := imports()
	for _, name := range sources(t) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		dir := path.Dir(name)
		allowed, known := lookup(table, dir)
		if !known {
			t.Errorf("%s: package %s is not in the table of architecture_test.go: what is its one reason to exist?", name, dir)
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range file.Imports {
			full, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			belongs := func(module string) bool { return strings.HasPrefix(dir, module) }
			if isKubernetes(full) && !slices.ContainsFunc([]string{"kube/", "hub/", "test/kube"}, belongs) {
				t.Errorf("%s imports %s: Kubernetes belongs to the modules kube and hub", name, full)
			}
			ours, is := strings.CutPrefix(full, module+"/")
			if is && !slices.ContainsFunc(allowed, func(a string) bool { return matches(a, ours) }) {
				t.Errorf("%s imports %s; %s may import %s", name, ours, dir, strings.Join(allowed, ", "))
			}
		}
	}
}

// isKubernetes says whether a package is of Kubernetes, or of what nodes run beside it.
func isKubernetes(full string) bool {
	return strings.HasPrefix(full, "k8s.io/") || strings.HasPrefix(full, "github.com/containerd/") ||
		strings.HasPrefix(full, "tags.cncf.io/") ||
		strings.HasPrefix(full, "sigs.k8s.io/") && full != "sigs.k8s.io/yaml"
}

// ARCHITECTURE.md has a row for each package; those of tests and of the lab are in one.
func TestArchitectureNamesPackages(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources(t) {
		dir := path.Dir(name)
		top, _, _ := strings.Cut(dir, "/")
		if dir == "." || top == "test" || top == "lab" || top == "bench" {
			continue
		}
		if !strings.Contains(string(text), "`"+dir+"`") && !strings.Contains(string(text), "`"+path.Dir(dir)+"/<name>`") {
			t.Errorf("%s: package %s has no row in ARCHITECTURE.md", name, dir)
		}
	}
}

// sources are all Go files of the repository, tests and other modules included.
func sources(t *testing.T) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(d.Name(), ".") && name != "."
		switch {
		case err != nil:
			return err
		case d.IsDir() && (hidden || d.Name() == "testdata"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".go"):
			names = append(names, name)
		}
		return nil
	})
	if err != nil || len(names) == 0 {
		t.Fatal("no sources: ", err)
	}
	return names
}

// lookup returns what a package may import, by the longest pattern that matches it.
func lookup(table map[string][]string, dir string) ([]string, bool) {
	longest := ""
	for pattern := range table {
		if matches(pattern, dir) && len(pattern) > len(longest) {
			longest = pattern
		}
	}
	return table[longest], longest != ""
}

func matches(pattern, dir string) bool {
	if parent, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(dir, parent)
	}
	return pattern == dir
}

// What a scenario is made of stands in its file and in drivers: the engine names no scenario, no kind of probe,
// no level and no cell. results/first.go reads sessions whose writers did.
func TestEngineNamesNoLevel(t *testing.T) {
	words := map[string]bool{}
	for _, folder := range []string{"probe", "netpath"} {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			words[e.Name()] = e.IsDir()
		}
	}
	files, err := os.ReadDir("scenarios")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile("scenarios/" + f.Name())
		var s struct {
			Metadata struct{ Name string }
			Spec     struct {
				Factors []struct{ Levels []any }
				Cells   []string
			}
		}
		if err != nil || !strings.HasSuffix(f.Name(), ".yaml") || yaml.Unmarshal(data, &s) != nil {
			continue
		}
		words[s.Metadata.Name] = true
		for _, c := range s.Spec.Cells {
			words[c] = true
		}
		for _, factor := range s.Spec.Factors {
			for _, l := range factor.Levels {
				if m, ok := l.(map[string]any); ok {
					l = m["name"]
				}
				if _, number := l.(float64); !number {
					words[fmt.Sprint(l)] = true
				}
			}
		}
	}
	delete(words, "lane") // also what all of this is about
	delete(words, "edge") // what isolane prove runs when it is told nothing
	if len(words) < 15 {
		t.Fatalf("only %d words were found: %v", len(words), words)
	}
	for _, folder := range []string{"factor", "noise", "probe", "prove", "prove/scenario", "prove/schedule", "prove/search", "prove/testbed", "report", "report/chart", "report/compare", "report/curves", "report/evidence", "report/export", "report/figures", "report/format", "report/metric", "report/objective", "report/samples",
		"results", "stats", "witness", "witness/judge", "witness/tail"} {
		sources, err := filepath.Glob(folder + "/*.go")
		if err != nil || len(sources) == 0 {
			t.Fatal(folder, err)
		}
		for _, name := range sources {
			if strings.HasSuffix(name, "_test.go") || name == "results/first.go" {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if text, err := strconv.Unquote(l.Value); err == nil && words[text] {
						t.Errorf("%s names %q", name, text)
					}
				}
				return true
			})
		}
	}
}

// What lanes are made of knows no network path by its name: each says what it needs itself. Examples in the table of
// fields do.
func TestLanesNameNoPath(t *testing.T) {
	words := map[string]bool{"bridge-gro": true, "ovs-dpdk": true} // of the drivers that are two paths
	entries, err := os.ReadDir("netpath")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		words[e.Name()] = e.IsDir()
	}
	for _, name := range sources(t) {
		top, _, _ := strings.Cut(name, "/")
		if strings.HasSuffix(name, "_test.go") || name == "lane/fields.go" || !slices.Contains([]string{"lane", "lanes", "plan", "enforce", "journal", "knob"}, top) {
			continue
		}
		parsed, perr := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if perr != nil {
			t.Fatal(perr)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, uerr := strconv.Unquote(l.Value); uerr == nil && words[text] {
					t.Errorf("%s names %q", name, text)
				}
			}
			return true
		})
	}
}
