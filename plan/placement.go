// Package plan has the documents of the planner: the Placement, which says which lane holds what on one host,
// its cost, and the Refusal where a lane does not fit. Package plan/solver makes them:
//
//	p, err := solver.Solve(h, plan.Placement{}, lanes)
//	var r *plan.Refusal
//	if errors.As(err, &r) { fmt.Println(r.Blocking, r.Cheapest) }
package plan

import (
	"fmt"
	"slices"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/lane"
)

// APIVersion and the kinds head the JSON documents.
const (
	APIVersion    = "isolane.dev/v1alpha2"
	Kind          = "Placement"
	KindOfRefusal = "Refusal"
)

// Placement says which lane holds what on one host. It is also what `isolane plan -o json` prints and
// --placed reads.
type Placement struct {
	APIVersion   string     `json:"apiVersion"`
	Kind         string     `json:"kind"`
	Host         Machine    `json:"host"`
	Lanes        []Lane     `json:"lanes"`
	Housekeeping cpuset.Set `json:"housekeeping"`    // never empty
	Cost         Cost       `json:"cost"`            // of what this solution placed or moved
	Optimal      bool       `json:"optimal"`         // nothing costs less
	Bound        *Cost      `json:"bound,omitempty"` // where Optimal is false: nothing costs less than this
	Moves        []Move     `json:"moves,omitempty"` // in the order in which they can be done
}

// Machine identifies the machine that a placement is for.
type Machine struct {
	Hostname string     `json:"hostname"`
	BootID   string     `json:"bootID,omitempty"` // of the kernel that runs; the same in all its containers
	CPUs     cpuset.Set `json:"cpus"`             // all that the kernel knows, also those offline
}

// Lane is what one lane holds.
type Lane struct {
	Name        string                `json:"name"`
	CPUs        cpuset.Set            `json:"cpus"`
	Idle        cpuset.Set            `json:"idle,omitempty"` // SMT siblings that the lane owns and keeps idle
	MemoryNodes cpuset.Set            `json:"memoryNodes"`
	Memory      []Memory              `json:"memory,omitempty"` // what is set aside for it
	Hugepages   []Hugepages           `json:"hugepages,omitempty"`
	Devices     []Device              `json:"devices,omitempty"`
	Interrupts  []Interrupt           `json:"interrupts,omitempty"` // those that its CPUs handle
	Roles       map[string]cpuset.Set `json:"roles,omitempty"`
	BusyPoll    bool                  `json:"busyPoll,omitempty"` // its sockets poll for packets
	Reasons     []string              `json:"reasons"`
	Spec        lane.Spec             `json:"spec"` // as declared, to place it again
}

// HasFunction says whether a virtual function is the lane's, by its PCI address.
func (l Lane) HasFunction(address string) bool {
	return slices.ContainsFunc(l.Devices, func(d Device) bool { return slices.Contains(d.Virtual, address) })
}

// OwnFunctions are the PCI addresses of the virtual functions that the lane's workload drives itself; none
// where it does not, or nobody has made them yet.
func (l Lane) OwnFunctions() (addresses []string) {
	if l.Spec.Network.Driver == lane.VFIO {
		for _, d := range l.Devices {
			addresses = append(addresses, d.Virtual...)
		}
	}
	return addresses
}

// Memory is an amount on one node.
type Memory struct {
	Node  int    `json:"node"`
	Bytes uint64 `json:"bytes"`
}

// Hugepages are pages of one size on one node.
type Hugepages struct {
	Node      int    `json:"node"`
	PageBytes uint64 `json:"pageBytes"`
	Pages     uint64 `json:"pages"`
	Reserve   uint64 `json:"reserve,omitempty"` // of these, so many are not in the node's pool yet
}

// Pool is the directory of the kernel's pool that they are in, below the root of a machine.
func (h Hugepages) Pool() string {
	return fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-%dkB", h.Node, h.PageBytes>>10)
}

// Device is a PCI function that the lane uses: a physical one, shared, or virtual ones of it.
type Device struct {
	Address string   `json:"address"`
	VFs     []int    `json:"vfs,omitempty"`         // indexes of its virtual functions, the lane's alone
	Virtual []string `json:"vfAddresses,omitempty"` // addresses of those that exist already
}

// Interrupt is one of the lane's device, and the CPU that handles it.
type Interrupt struct {
	IRQ int `json:"irq"`
	CPU int `json:"cpu"`
}

// Move takes a lane from one place to another while it runs.
type Move struct {
	Lane        string     `json:"lane"`
	From        cpuset.Set `json:"from"`
	To          cpuset.Set `json:"to"`
	MemoryBytes uint64     `json:"memoryBytes"` // that has to migrate
	Reason      string     `json:"reason"`
}

// PollMode are the CPUs of a poll-mode switch that has the lane: of its poll-mode threads, the role pmd or
// all but one, and of its others, the role main or one that is left, if any.
func (l Lane) PollMode() (main, pmd cpuset.Set) {
	main, pmd = l.Roles["main"], l.Roles["pmd"]
	if left := l.CPUs.Difference(pmd); main.IsEmpty() && !left.IsEmpty() {
		main = cpuset.Of(left.First())
	}
	if pmd.IsEmpty() {
		pmd = l.CPUs.Difference(main)
	}
	return main, pmd
}

// Owned returns the CPUs that belong to the lane, also those kept idle.
func (l Lane) Owned() cpuset.Set { return l.CPUs.Union(l.Idle) }

// Lane returns the lane of that name, if it is placed.
func (p Placement) Lane(name string) (Lane, bool) { return Find(p.Lanes, name) }

// CPUs returns all CPUs that lanes own, also those kept idle.
func (p Placement) CPUs() cpuset.Set {
	var s cpuset.Set
	for _, l := range p.Lanes {
		s = s.Union(l.Owned())
	}
	return s
}

// Declaration is the lane as it was declared.
func (l Lane) Declaration() lane.Lane {
	return lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind, Metadata: lane.Metadata{Name: l.Name},
		Spec: l.Spec}
}

// Find is the lane of a name.
func Find(lanes []Lane, name string) (Lane, bool) {
	if i := slices.IndexFunc(lanes, func(l Lane) bool { return l.Name == name }); i >= 0 {
		return lanes[i], true
	}
	return Lane{}, false
}
