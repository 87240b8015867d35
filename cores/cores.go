// Package cores writes the core lists, masks and stanzas that applications need, from what a lane has. Each
// family of applications has a file.
//
// An application in a container sees the CPUs of its cpuset by their real numbers, but some applications
// count them from zero. Each list is first checked against that cpuset.
package cores

import (
	"fmt"
	"io"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/plan"
)

// Request is a lane and what surrounds it.
type Request struct {
	Lane         plan.Lane
	Lanes        []plan.Lane // all placed lanes, including this one
	Housekeeping cpuset.Set
	Granted      cpuset.Set   // the cpuset that the application will see; empty: the lane's CPUs
	Cores        []cpuset.Set // of all online CPUs by core, including those of lanes in force
	MemoryNodes  cpuset.Set   // NUMA nodes with memory
	VhostUser    *VhostUser   // of a lane whose workload itself speaks with a switch
	Emulated     bool         // the host has no /dev/kvm: QEMU emulates the processor
	Tap          *Tap         // of a lane whose workload is a virtual machine with a tap
	InForce      bool         // nobody outside of the lane may use its CPUs now
}

// Tap is the tap of a virtual machine in the network namespace of its lane.
type Tap struct {
	Device, MAC string
	MTU         int  // 0: the guest's default
	Vhost       bool // the host has /dev/vhost-net: its kernel moves the frames, not QEMU
}

// VhostUser is a socket on which a virtual machine or a program in user space listens for its switch.
type VhostUser struct {
	Socket, MAC string
	MTU         int
}

// App is an application that must be told its cores.
type App struct {
	Name  string
	About string // what is written for it
	write func(Request) (string, error)
}

// Apps returns all applications, sorted by name.
func Apps() []App {
	return []App{
		{"dpdk", "EAL options", dpdk},
		{"kubelet", "KubeletConfiguration: what is kept from pods, for all lanes at once", kubelet},
		{"libvirt", "elements of a domain", libvirt},
		{"lxd", "configuration of an instance (also Incus)", lxd},
		{"nginx", "directives of the main context", nginx},
		{"opennebula", "attributes of a VM template", openNebula},
		{"openmp", "environment", openMP},
		{"ovs-dpdk", "ovs-vsctl commands", ovsDPDK},
		{"qemu", "options, and which thread goes where", qemu},
		{"taskset", "command prefix", taskset},
		{"vpp", "sections of startup.conf", vpp},
	}
}

// Document is what an application needs, as printed by `isolane cores -o json`.
type Document struct {
	APIVersion  string     `json:"apiVersion"`
	Kind        string     `json:"kind"` // Cores
	Lane        string     `json:"lane"`
	Application string     `json:"application"`
	CPUs        cpuset.Set `json:"cpus"`
	Text        string     `json:"text"` // for the application
}

// Help lists the applications, one a line.
func Help() string {
	var b strings.Builder
	for _, a := range Apps() {
		fmt.Fprintf(&b, "  %-11s %s\n", a.Name, a.About)
	}
	return b.String()
}

// New returns what an application needs. The error says which CPUs it would lack.
func New(app string, r Request) (Document, error) {
	text, err := textFor(app, r)
	return Document{APIVersion: plan.APIVersion, Kind: "Cores", Lane: r.Lane.Name, Application: app,
		CPUs: r.Lane.CPUs, Text: text}, err
}

// Write prints the text for the application.
func (d Document) Write(w io.Writer) { fmt.Fprint(w, d.Text) }

// Find returns the application of that name.
func Find(name string) (App, error) {
	var names []string
	for _, a := range Apps() {
		if a.Name == name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return App{}, fmt.Errorf("--for %q: expected one of %s", name, strings.Join(names, ", "))
}

func textFor(app string, r Request) (string, error) {
	of, err := Find(app)
	if err != nil {
		return "", err
	}
	if r.Lane.CPUs.IsEmpty() {
		return "", fmt.Errorf("lane %s has no CPUs", r.Lane.Name)
	}
	if out := r.Lane.CPUs.Difference(r.online()); !out.IsEmpty() {
		return "", fmt.Errorf("lane %s has CPUs %s, and of these %s are not online on this machine, which has %s: "+
			"plan it again here", r.Lane.Name, r.Lane.CPUs, out, r.online())
	}
	if r.Granted.IsEmpty() {
		r.Granted = r.Lane.CPUs
	}
	if out := r.Lane.CPUs.Difference(r.Granted); !out.IsEmpty() {
		return "", fmt.Errorf("lane %s has CPUs %s, of which the application may not use %s: its cpuset is %s",
			r.Lane.Name, r.Lane.CPUs, out, r.Granted)
	}
	return of.write(r)
}

func (r Request) online() cpuset.Set {
	var online cpuset.Set
	for _, core := range r.Cores {
		online = online.Union(core)
	}
	return online
}

// others returns the CPUs for threads that do not do the lane's own work.
func (r Request) others() (cpuset.Set, error) {
	if r.Housekeeping.IsEmpty() {
		return r.Housekeeping, fmt.Errorf("no CPU is left for housekeeping, where the other threads of lane %s "+
			"belong", r.Lane.Name)
	}
	return r.Housekeeping, nil
}

// Main returns the CPU of the role main, or the lane's first CPU, and all others as workers.
func Main(l plan.Lane) (main int, workers cpuset.Set) {
	main = l.CPUs.First()
	if m, ok := l.Roles["main"]; ok && !m.IsEmpty() {
		main = m.First()
	}
	return main, l.CPUs.Difference(cpuset.Of(main))
}

// relative returns the positions of CPUs in the cpuset that the application sees.
func (r Request) relative(cpus cpuset.Set) cpuset.Set {
	var places []int
	for i, id := range r.Granted.Slice() {
		if cpus.Contains(id) {
			places = append(places, i)
		}
	}
	return cpuset.Of(places...)
}

// byCore returns the lane's CPUs, those of a core side by side, and how many threads each core has; 0: the
// numbers differ.
func (r Request) byCore() (cpus []int, threads int) {
	same := true
	for _, core := range r.Cores {
		mine := core.Intersection(r.Lane.CPUs)
		if mine.IsEmpty() {
			continue
		}
		cpus = append(cpus, mine.Slice()...)
		same = same && (threads == 0 || threads == mine.Len())
		threads = mine.Len()
	}
	if !same {
		threads = 0
	}
	return cpus, threads
}

// mask returns a hexadecimal number, without the commas of the kernel.
func mask(cpus cpuset.Set) string {
	return "0x" + strings.ReplaceAll(cpus.Mask(), ",", "")
}

// memoryByNode returns DPDK's memory for each node in MiB, from node 0 on: "1024,0".
func (r Request) memoryByNode() string {
	mib := make([]string, max(0, r.MemoryNodes.Last(), r.Lane.MemoryNodes.Last())+1)
	for i := range mib {
		sum := uint64(0)
		for _, h := range r.Lane.Hugepages {
			if h.Node == i {
				sum += h.Pages * (h.PageBytes >> 20)
			}
		}
		mib[i] = fmt.Sprint(sum)
	}
	return strings.Join(mib, ",")
}
