// Package lane is the declaration: what one workload needs, as its YAML says.
//
//	apiVersion: isolane.dev/v1alpha1
//	kind: Lane
//	metadata: {name: vrouter-17}
//	spec:
//	  cpus: {count: 2, smt: isolate}
//
// Only metadata.name and spec.cpus.count are required; unknown fields are errors.
package lane

import (
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/sched"
)

// APIVersion and Kind are at the head of a declaration.
const (
	APIVersion = "isolane.dev/v1alpha1"
	Kind       = "Lane"
)

// The SMT wishes.
const (
	Isolate = "isolate" // the siblings of the lane's CPUs belong to the lane and stay idle
	Pack    = "pack"    // whole cores, all threads used
	Any     = "any"     // single threads; a core is shared only if that cannot be avoided
)

// Lane is one declaration.
type Lane struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`

	At string `json:"-"` // where it is, "web.yaml:3"; "" if in no file
}

// Metadata names a lane.
type Metadata struct {
	Name string `json:"name"`
}

// Spec is what a lane needs.
type Spec struct {
	CPUs       CPUs           `json:"cpus"`
	Memory     Memory         `json:"memory,omitzero"`
	Network    Network        `json:"network,omitzero"`
	Near       Near           `json:"near,omitzero"`
	Apart      Apart          `json:"apart,omitzero"`
	Preferred  map[string]int `json:"preferred,omitempty"` // wishes that may be broken, and the cost of each
	Roles      map[string]int `json:"roles,omitempty"`     // named threads: CPUs of each
	Switch     string         `json:"switch,omitempty"`    // the host's poll-mode switch that the lane is for
	Scheduling Scheduling     `json:"scheduling,omitzero"`
	Cgroup     Cgroup         `json:"cgroup,omitzero"`
	Objective  Objective      `json:"objective,omitzero"`
}

// CPUs says how many CPUs the lane needs, and of what kind.
type CPUs struct {
	Count int    `json:"count"`
	SMT   string `json:"smt,omitempty"`  // Isolate, Pack or Any; "" is Any
	Kind  string `json:"kind,omitempty"` // performance or efficiency; "" takes either
	L3    string `json:"l3,omitempty"`   // One: all below one L3
	NUMA  string `json:"numa,omitempty"` // One: CPUs and memory on one node
	// List names the CPUs if somebody has chosen them: as many as Count, not counting idle siblings.
	List  cpuset.Set `json:"list,omitzero"`
	Share int        `json:"share,omitempty"` // how many lanes may share each CPU, including this one; 0 is 1
	Boot  bool       `json:"boot,omitempty"`  // the lane may have the boot CPU and its siblings
	// Balance spreads the lane's threads over its CPUs, as the kernel does elsewhere. If absent, Isolane
	// decides: see Spec.Balanced.
	Balance *bool `json:"balance,omitempty"`
}

// One is the wish for a single L3 or NUMA node.
const One = "one"

// Memory says how much ordinary memory the lane needs, and in addition hugepages, by page size.
type Memory struct {
	Size      quantity.Bytes            `json:"size,omitempty"`
	Hugepages map[string]quantity.Bytes `json:"hugepages,omitempty"`
}

// Network is how packets reach the workload.
type Network struct {
	Path      string    `json:"path,omitempty"`
	Device    string    `json:"device,omitempty"`    // the uplink
	Addresses []Address `json:"addresses,omitempty"` // of the workload's network device
	Gateways  []Gateway `json:"gateways,omitempty"`  // its default routes, at most one per family
	Sources   []Prefix  `json:"sources,omitempty"`   // others for which it routes: it may send from these
	MTU       int       `json:"mtu,omitempty"`       // 0: the uplink's; without uplink, or by path ovs, 1500
	// Rate limits what the workload sends; 0: no limit.
	Rate   quantity.BitRate `json:"rate,omitempty"`
	VLAN   VLAN             `json:"vlan,omitzero"`
	VFs    int              `json:"vfs,omitempty"`    // virtual functions of the device; 0: the path's default
	Driver string           `json:"driver,omitempty"` // VFIO or Tap; "": the workload has a network device
	VF     VF               `json:"vf,omitzero"`
	Queues int              `json:"queues,omitempty"` // of the lane's device, and a card's interrupts
	// TakeFromHost allows a path to leave the host without what it reaches through the device.
	TakeFromHost bool `json:"takeFromHost,omitempty"`
}

// The values of Network.Driver.
const (
	VFIO = "vfio-pci" // the workload drives its virtual function itself
	Tap  = "tap"      // the workload is a virtual machine, with a tap device
)

// HasTap reports whether the workload is a virtual machine with a tap device.
func (n Network) HasTap() bool { return n.Driver == Tap }

// VLAN has the tags on the wire; 0 is none.
type VLAN struct {
	Outer int `json:"outer,omitempty"`
	Inner int `json:"inner,omitempty"`
}

// VF says what the card grants the lane's virtual functions (ip-link(8), vf).
type VF struct {
	Trust bool   `json:"trust,omitempty"` // they may ask for more than their own frames
	State string `json:"state,omitempty"` // of their link: auto, enable or disable; "" leaves it as it is
}

// Near says what the lane must be close to. It has one of the fields.
type Near struct {
	Device   string `json:"device,omitempty"`
	NUMANode *int   `json:"numaNode,omitempty"`
	Lane     string `json:"lane,omitempty"`
}

// Apart names lanes with which this one must not share something.
type Apart struct {
	Lanes []string `json:"lanes,omitempty"`
	Level string   `json:"level,omitempty"` // core, l3, node or package; "" is l3
}

// Cgroup says where the lane's processes are, and of what kind that cgroup is.
type Cgroup struct {
	Path      string `json:"path,omitempty"`      // the workload's own, which exists; "": Isolane makes one
	Partition string `json:"partition,omitempty"` // Member; "": a partition if the kernel can make one
}

// Member is the kernel's word for a cpuset that is no partition (cgroup-v2.rst, "cpuset.cpus.partition").
const Member = "member"

// Scheduling is the scheduling class of the workload's threads.
type Scheduling struct {
	Policy   sched.Policy `json:"policy,omitempty"` // fifo, rr or other; "" leaves it as it is
	Priority int          `json:"priority,omitempty"`
	BusyPoll bool         `json:"busyPoll,omitempty"` // spin for packets instead of sleeping
}

// Balanced reports whether the kernel balances the lane's threads over its CPUs. By default it does so unless
// there is nothing to balance: one CPU, or roles that bind a thread to each CPU.
func (s Spec) Balanced() bool {
	if s.CPUs.Balance != nil {
		return *s.CPUs.Balance
	}
	bound := 0
	for _, count := range s.Roles {
		bound += count
	}
	return s.CPUs.Count > 1 && bound < s.CPUs.Count
}

// Spread reports whether waiting threads move to idle CPUs of the lane: always, unless spec.cpus.balance is
// false. The kernel moves them if it balances them, else Isolane does.
func (s Spec) Spread() bool { return s.CPUs.Balance == nil || *s.CPUs.Balance }

// Wishes returns the keys that Preferred may have: those wishes that the spec has.
func (s Spec) Wishes() []string {
	var wishes []string
	for _, w := range []struct {
		name  string
		asked bool
	}{
		{"smt", s.CPUs.SMT == Isolate || s.CPUs.SMT == Pack}, {"kind", s.CPUs.Kind != ""}, {"l3", s.CPUs.L3 != ""},
		{"numa", s.CPUs.NUMA != ""}, {"near", s.Near != Near{}}, {"apart", len(s.Apart.Lanes) > 0},
	} {
		if w.asked {
			wishes = append(wishes, w.name)
		}
	}
	return wishes
}
