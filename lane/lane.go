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
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"isolane.dev/isolane/quantity"
)

// APIVersion and Kind head a declaration.
const (
	APIVersion = "isolane.dev/v1alpha1"
	Kind       = "Lane"
)

// The SMT wishes.
const (
	Isolate = "isolate" // the siblings of the lane's CPUs are the lane's too and stay idle
	Pack    = "pack"    // whole cores, all threads used
	Any     = "any"     // single threads, but no core shared where that can be avoided
)

// Lane is one declaration.
type Lane struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
	Spec       Spec     `json:"spec"`
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
	Preferred  map[string]int `json:"preferred,omitempty"` // wishes that may be broken, and what each costs; the others must hold
	Roles      map[string]int `json:"roles,omitempty"`     // named threads: CPUs of each
	Scheduling Scheduling     `json:"scheduling,omitzero"`
	Objective  Objective      `json:"objective,omitzero"`
}

// CPUs is how many CPUs, and of what kind.
type CPUs struct {
	Count int    `json:"count"`
	SMT   string `json:"smt,omitempty"`   // Isolate, Pack or Any; "" is Any
	Kind  string `json:"kind,omitempty"`  // performance or efficiency; "" takes either
	L3    string `json:"l3,omitempty"`    // One: all below one L3
	NUMA  string `json:"numa,omitempty"`  // One: CPUs and memory on one node
	Share int    `json:"share,omitempty"` // how many lanes may share each of the CPUs, this one among them; 0 is 1
	Boot  bool   `json:"boot,omitempty"`  // the lane may have the boot CPU and its siblings
	// Balance spreads the lane's threads over its own CPUs, as the kernel does elsewhere. Absent,
	// Isolane decides: see Spec.Balanced.
	Balance *bool `json:"balance,omitempty"`
}

// One is the wish for one L3 or one NUMA node.
const One = "one"

// Memory is how much ordinary memory, and how much more in hugepages, by page size.
type Memory struct {
	Size      quantity.Bytes            `json:"size,omitempty"`
	Hugepages map[string]quantity.Bytes `json:"hugepages,omitempty"`
}

// Network is how packets reach the workload.
type Network struct {
	Path   string `json:"path,omitempty"`
	Device string `json:"device,omitempty"`
	VLAN   VLAN   `json:"vlan,omitzero"`
	VFs    int    `json:"vfs,omitempty"`    // virtual functions; path sriov has one where this is 0
	Queues int    `json:"queues,omitempty"` // interrupts of the device that the lane's CPUs handle
}

// VLAN are the tags on the wire; 0 is none.
type VLAN struct {
	Outer int `json:"outer,omitempty"`
	Inner int `json:"inner,omitempty"`
}

// Near is what the lane must be close to; one of the fields.
type Near struct {
	Device   string `json:"device,omitempty"`
	NUMANode *int   `json:"numaNode,omitempty"`
	Lane     string `json:"lane,omitempty"`
}

// Apart names lanes that this one must not share something with.
type Apart struct {
	Lanes []string `json:"lanes,omitempty"`
	Level string   `json:"level,omitempty"` // core, l3, node or package; "" is l3
}

// Scheduling is the class of the workload's threads.
type Scheduling struct {
	Policy   string `json:"policy,omitempty"` // fifo, rr or other; "" leaves it
	Priority int    `json:"priority,omitempty"`
	BusyPoll bool   `json:"busyPoll,omitempty"` // spin for packets instead of sleeping
}

// Objective is what the lane must reach.
type Objective struct {
	RTT        map[string]quantity.Duration `json:"rtt,omitempty"` // by percentile: p50, p99, p99.9
	Throughput Throughput                   `json:"throughput,omitzero"`
}

// Throughput bounds a rate.
type Throughput struct {
	Min quantity.BitRate `json:"min,omitempty"`
}

// Parse reads the documents of a YAML stream; name is the file's, for errors.
func Parse(name string, r io.Reader) ([]Lane, error) {
	data, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var lanes []Lane
	separator := regexp.MustCompile(`(?m)^---[ \t]*$`)
	for i, doc := range separator.Split(string(data), -1) {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		var l Lane
		if err := yaml.UnmarshalStrict([]byte(doc), &l); err != nil {
			return nil, fmt.Errorf("%s: document %d: %s", name, i+1, cleanError(err))
		}
		if err := l.Validate(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if slices.ContainsFunc(lanes, func(o Lane) bool { return o.Metadata.Name == l.Metadata.Name }) {
			return nil, fmt.Errorf("%s: metadata.name: %q stands there twice", name, l.Metadata.Name)
		}
		lanes = append(lanes, l)
	}
	if len(lanes) == 0 {
		return nil, fmt.Errorf("%s: expected at least one document of kind Lane", name)
	}
	return lanes, nil
}

// cleanError drops the library's preamble from what it says.
func cleanError(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	for _, preamble := range []string{"error unmarshaling JSON: ", "while decoding JSON: ", "error converting YAML to JSON: ", "json: "} {
		text = strings.TrimPrefix(text, preamble)
	}
	return text
}

// Validate says what is wrong with a declaration; the error names the field.
func (l Lane) Validate() error {
	if l.Spec.Near.Lane == l.Metadata.Name && l.Metadata.Name != "" || slices.Contains(l.Spec.Apart.Lanes, l.Metadata.Name) {
		return fmt.Errorf("spec.near, spec.apart: %q is the lane itself", l.Metadata.Name)
	}
	switch {
	case l.APIVersion != APIVersion || l.Kind != Kind:
		return fmt.Errorf("apiVersion, kind: expected %s %s, found %q %q", APIVersion, Kind, l.APIVersion, l.Kind)
	case !regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`).MatchString(l.Metadata.Name):
		return fmt.Errorf("metadata.name: %q: expected 1-63 of a-z, 0-9, '-' and '.'", l.Metadata.Name)
	}
	if l.Metadata.Name == "housekeeping" {
		return errors.New(`metadata.name: "housekeeping" is what all CPUs are called that are no lane's: expected another name`)
	}
	return l.Spec.Validate()
}

// Validate says what is wrong with a spec; the error names the field.
func (s Spec) Validate() error {
	n := s.Near
	nears := 0
	for _, set := range []bool{n.Device != "", n.NUMANode != nil, n.Lane != ""} {
		if set {
			nears++
		}
	}
	switch {
	case s.CPUs.Count < 1:
		return fmt.Errorf("spec.cpus.count: %d: must be at least 1", s.CPUs.Count)
	case !slices.Contains([]string{"", Isolate, Pack, Any}, s.CPUs.SMT):
		return fmt.Errorf("spec.cpus.smt: %q: expected isolate, pack or any", s.CPUs.SMT)
	case !slices.Contains([]string{"", "performance", "efficiency"}, s.CPUs.Kind):
		return fmt.Errorf("spec.cpus.kind: %q: expected performance or efficiency", s.CPUs.Kind)
	case nears > 1:
		return errors.New("spec.near: expected one of device, numaNode and lane")
	case n.NUMANode != nil && *n.NUMANode < 0:
		return fmt.Errorf("spec.near.numaNode: %d: must not be negative", *n.NUMANode)
	case s.CPUs.L3 != "" && s.CPUs.L3 != One:
		return fmt.Errorf("spec.cpus.l3: %q: expected one", s.CPUs.L3)
	case s.CPUs.NUMA != "" && s.CPUs.NUMA != One:
		return fmt.Errorf("spec.cpus.numa: %q: expected one", s.CPUs.NUMA)
	case s.CPUs.Count > maxCPUs:
		return fmt.Errorf("spec.cpus.count: %d: expected at most %d", s.CPUs.Count, maxCPUs)
	}
	for _, check := range []func() error{s.validateSharing, s.validateWishes, s.validateRest} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// Balanced says whether the kernel balances the lane's threads over its CPUs. Without spec.cpus.balance a lane
// is balanced unless it has nothing to balance: one CPU, or roles that bind a thread to each of its CPUs.
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

const maxCPUs = 8192 // of the largest kernel

func (s Spec) validateSharing() error {
	switch share := s.CPUs.Share; {
	case share < 0 || share > 64:
		return fmt.Errorf("spec.cpus.share: %d: expected 1-64", share)
	case share > 1 && (s.CPUs.SMT == Isolate || s.CPUs.SMT == Pack):
		return fmt.Errorf("spec.cpus.share: %d contradicts spec.cpus.smt: %s: who shares a CPU cannot have whole cores", share, s.CPUs.SMT)
	case share > 1 && (s.Scheduling.Policy == "fifo" || s.Scheduling.Policy == "rr"):
		return fmt.Errorf("spec.cpus.share: %d contradicts spec.scheduling.policy: %s: one lane would starve the others", share, s.Scheduling.Policy)
	}
	return nil
}

// Wishes are the names that Preferred may have, as far as the spec has them.
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

func (s Spec) validateWishes() error {
	for _, name := range slices.Sorted(maps.Keys(s.Preferred)) {
		if weight := s.Preferred[name]; weight < 1 || weight > 1000 {
			return fmt.Errorf("spec.preferred.%s: %d: expected 1-1000", name, weight)
		}
		if !slices.Contains(s.Wishes(), name) {
			return fmt.Errorf("spec.preferred.%s: expected one of the wishes in this spec: %s", name, cmp.Or(strings.Join(s.Wishes(), ", "), "there is none"))
		}
	}
	if s.Apart.Level != "" && len(s.Apart.Lanes) == 0 {
		return errors.New("spec.apart.lanes: expected the lanes to be apart from")
	}
	if !slices.Contains([]string{"", "core", "l3", "node", "package"}, s.Apart.Level) {
		return fmt.Errorf("spec.apart.level: %q: expected core, l3, node or package", s.Apart.Level)
	}
	if s.Near.Lane != "" && slices.Contains(s.Apart.Lanes, s.Near.Lane) && (s.Apart.Level == "node" || s.Apart.Level == "package") {
		return fmt.Errorf("spec.apart: contradicts spec.near.lane: %q", s.Near.Lane)
	}
	if s.Network.VFs < 0 || s.Network.VFs > 256 {
		return fmt.Errorf("spec.network.vfs: %d: expected 0-256", s.Network.VFs)
	}
	if s.Network.Queues < 0 || s.Network.Queues > 1024 {
		return fmt.Errorf("spec.network.queues: %d: expected 0-1024", s.Network.Queues)
	}
	if s.Network.VFs > 0 && s.Network.Path != "sriov" {
		return fmt.Errorf("spec.network.vfs: %d: only with spec.network.path: sriov", s.Network.VFs)
	}
	if s.Network.Queues > 0 && s.Network.Device == "" {
		return errors.New("spec.network.queues: expected spec.network.device, whose queues they are")
	}
	return nil
}

func (s Spec) validateRest() error {
	total := 0
	for role, count := range s.Roles {
		if count < 1 {
			return fmt.Errorf("spec.roles.%s: %d: must be at least 1", role, count)
		}
		total += count
	}
	if total > s.CPUs.Count {
		return fmt.Errorf("spec.roles: %d CPUs in all, but spec.cpus.count is %d", total, s.CPUs.Count)
	}
	for _, tag := range []int{s.Network.VLAN.Outer, s.Network.VLAN.Inner} {
		if tag < 0 || tag > 4094 {
			return fmt.Errorf("spec.network.vlan: %d: expected 1-4094", tag)
		}
	}
	for size, total := range s.Memory.Hugepages {
		page, err := quantity.ParseBytes(size)
		if err != nil || page == 0 || total%page != 0 {
			return fmt.Errorf("spec.memory.hugepages.%s: %s is not a multiple of the page size", size, total)
		}
	}
	percentile := regexp.MustCompile(`^(p[0-9]{1,2}(\.[0-9]{1,4})?|max)$`)
	for p := range s.Objective.RTT {
		if !percentile.MatchString(p) {
			return fmt.Errorf("spec.objective.rtt: %q: expected a percentile such as p99.9, or max", p)
		}
	}
	return s.Scheduling.validate()
}

func (s Scheduling) validate() error {
	switch s.Policy {
	case "", "other":
		if s.Priority != 0 {
			return fmt.Errorf("spec.scheduling.priority: %d: only with policy fifo or rr", s.Priority)
		}
	case "fifo", "rr":
		if s.Priority < 1 || s.Priority > 98 {
			return fmt.Errorf("spec.scheduling.priority: %d: expected 1-98", s.Priority)
		}
	default:
		return fmt.Errorf("spec.scheduling.policy: %q: expected fifo, rr or other", s.Policy)
	}
	return nil
}
