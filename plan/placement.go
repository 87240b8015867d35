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

// APIVersion and the kinds are at the head of the JSON documents.
const (
	APIVersion    = "isolane.dev/v1alpha2"
	Kind          = "Placement"
	KindOfRefusal = "Refusal"
)

// Placement says which lane holds what on one host. It is what `isolane plan -o json` prints and --placed
// reads.
type Placement struct {
	APIVersion   string     `json:"apiVersion"`
	Kind         string     `json:"kind"`
	Host         Machine    `json:"host"`
	Lanes        []Lane     `json:"lanes"`
	Housekeeping cpuset.Set `json:"housekeeping"`    // never empty
	Cost         Cost       `json:"cost"`            // of what this solution placed or moved
	Optimal      bool       `json:"optimal"`         // no placement costs less
	Bound        *Cost      `json:"bound,omitempty"` // if not optimal: no placement costs less than this
	Moves        []Move     `json:"moves,omitempty"` // in an order in which they can be done
}

// Machine identifies the machine that a placement is for.
type Machine struct {
	Hostname  string     `json:"hostname"`
	MachineID string     `json:"machineID,omitempty"` // the same after a reboot
	BootID    string     `json:"bootID,omitempty"`    // of the running kernel; the same in all containers
	CPUs      cpuset.Set `json:"cpus"`                // all that the kernel knows, offline ones included
}

// Lane is what one lane holds.
type Lane struct {
	Name        string                `json:"name"`
	CPUs        cpuset.Set            `json:"cpus"`
	Idle        cpuset.Set            `json:"idle,omitempty"` // SMT siblings that the lane owns and keeps idle
	MemoryNodes cpuset.Set            `json:"memoryNodes"`
	Memory      []Memory              `json:"memory,omitempty"` // set aside for it
	Hugepages   []Hugepages           `json:"hugepages,omitempty"`
	Devices     []Device              `json:"devices,omitempty"`
	Interrupts  []Interrupt           `json:"interrupts,omitempty"` // those that its CPUs handle
	Roles       map[string]cpuset.Set `json:"roles,omitempty"`
	BusyPoll    bool                  `json:"busyPoll,omitempty"` // its sockets poll for packets
	Reasons     []string              `json:"reasons"`
	Spec        lane.Spec             `json:"spec"` // as declared, to place it again
}

// HasFunction reports whether the lane has the virtual function with this PCI address.
func (l Lane) HasFunction(address string) bool {
	return slices.ContainsFunc(l.Devices, func(d Device) bool { return slices.Contains(d.Virtual, address) })
}

// OwnFunctions returns the PCI addresses of the virtual functions that the lane's workload drives itself;
// none if it drives none, or they do not exist yet.
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
	Reserve   uint64 `json:"reserve,omitempty"` // of these, pages that are not in the node's pool yet
}

// Pool returns the directory of the kernel's pool for these pages, relative to the root of the machine.
func (h Hugepages) Pool() string {
	return fmt.Sprintf("sys/devices/system/node/node%d/hugepages/hugepages-%dkB", h.Node, h.PageBytes>>10)
}

// Device is a PCI function that the lane uses: a physical one, which is shared, or virtual functions of it.
type Device struct {
	Address string   `json:"address"`
	VFs     []int    `json:"vfs,omitempty"`         // indexes of the virtual functions that the lane alone has
	Virtual []string `json:"vfAddresses,omitempty"` // addresses of those that exist already
}

// Interrupt is an interrupt of the lane's device, and the CPU that handles it.
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

// PollMode returns the CPUs of the poll-mode switch that has the lane. pmd is for its poll-mode threads: the
// role pmd, or all CPUs but one. main is for its other threads: the role main, or one remaining CPU if there
// is one.
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

// Owned returns the CPUs that belong to the lane, idle siblings included.
func (l Lane) Owned() cpuset.Set { return l.CPUs.Union(l.Idle) }

// Lane returns the lane of that name, if it is placed.
func (p Placement) Lane(name string) (Lane, bool) { return Find(p.Lanes, name) }

// CPUs returns all CPUs that lanes own, idle siblings included.
func (p Placement) CPUs() cpuset.Set {
	var s cpuset.Set
	for _, l := range p.Lanes {
		s = s.Union(l.Owned())
	}
	return s
}

// Declaration returns the lane as it was declared.
func (l Lane) Declaration() lane.Lane {
	return lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind, Metadata: lane.Metadata{Name: l.Name},
		Spec: l.Spec}
}

// Find returns the lane of that name.
func Find(lanes []Lane, name string) (Lane, bool) {
	if i := slices.IndexFunc(lanes, func(l Lane) bool { return l.Name == name }); i >= 0 {
		return lanes[i], true
	}
	return Lane{}, false
}
