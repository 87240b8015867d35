// Package offer says what a node offers to pods: a device for each NUMA node, of which each lane takes an
// amount. It is pure: the same host and the same lanes give the same devices.
package offer

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"isolane.dev/isolane/host"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/plan/solver"
	"isolane.dev/isolane/quantity"
)

// Driver is the name of the driver of dynamic resource allocation, and the domain of its attributes.
const Driver = "isolane.dev"

// The conditions with which a node answers a claim before the pod is bound.
const (
	Placed  = "Placed"
	Refused = "Refused"
)

// The kinds of partition for lanes of pods.
const (
	Remote  = "remote" // the container's own cgroup is a partition
	Cpusets = "cpuset" // no partition: the node part keeps others off, by their cpusets
)

// Partition returns the kind of partition that a kernel makes of a container's cgroup. A remote one needs
// cgroup v2 and Linux 6.7. Moving the container's processes to another cgroup is no alternative: they would
// leave its limits and its rules for devices (cgroup-v2.rst, "Device controller").
func Partition(h host.Host) string {
	if _, v2 := h.Kernel.Cgroup.Cpuset(); v2 && h.Kernel.AtLeast(6, 7) {
		return Remote
	}
	return Cpusets
}

// The capacities of a device. For hugepages the name is Hugepages plus the page size, as in hugepages2Mi,
// because the API requires C identifiers.
const (
	CPUs      = "cpus"
	Cores     = "cores" // whole cores, with all their threads
	Memory    = "memory"
	Hugepages = "hugepages"
)

// numaNode is the standard attribute by which devices of several drivers are aligned.
const numaNode = "resource.kubernetes.io/numaNode"

// Node is the input of an offer.
type Node struct {
	Host   host.Host      // as it was before the lanes, limited to what this program may plan
	Placed plan.Placement // lanes of the host and of pods, in force or promised
	// Claims are those whose lanes are in Placed. What the scheduler has counted for them is offered too.
	Claims    []*resourceapi.ResourceClaim
	Pool      string // of the devices: the name of the node
	Partition string // the kind that this kernel makes of a container's cgroup
	Answers   bool   // each claim is answered before its pod is bound
	Counted   bool   // the CPUs of a claim count as CPUs of the node that its pod asks for
	// Limits are the most that a request may ask for, by device. A device that is not in it has no limits.
	Limits map[string]map[resourceapi.QualifiedName]resource.Quantity
}

// DeviceName returns the name of the device of a NUMA node; -1: the machine does not say which.
func DeviceName(node int) string {
	if node < 0 {
		return "numa"
	}
	return "numa" + strconv.Itoa(node)
}

// NUMANode returns the NUMA node of a device, or -1 if the machine does not say it. It returns an error if no
// device has that name.
func NUMANode(device string) (int, error) {
	number, ours := strings.CutPrefix(device, "numa")
	if number == "" && ours {
		return -1, nil
	}
	n, err := strconv.Atoi(number)
	if !ours || err != nil || n < 0 || DeviceName(n) != device {
		return 0, fmt.Errorf("device %q: expected numa and the number of a NUMA node", device)
	}
	return n, nil
}

// Devices returns one device for each NUMA node of which lanes may have CPUs. A capacity is what the planner
// has free, plus what the scheduler has counted for placed claims, so that what the scheduler believes to be
// free is free. It offers no housekeeping CPUs, offline CPUs, lanes of the host, siblings kept idle, or CPUs
// between others that no lane can have. The error is a *plan.Mismatch.
func (n Node) Devices() ([]resourceapi.Device, error) {
	nodes, err := solver.FreeNodes(n.Host, n.Placed)
	if err != nil {
		return nil, err
	}
	var devices []resourceapi.Device
	for _, at := range nodes {
		d := resourceapi.Device{Name: DeviceName(at.Node), AllowMultipleAllocations: new(true),
			Attributes: n.attributes(at), Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{}}
		if n.Answers {
			d.BindingConditions, d.BindingFailureConditions = []string{Placed}, []string{Refused}
		}
		if n.Counted {
			d.NodeAllocatableResources = map[corev1.ResourceName]resourceapi.NodeAllocatableResource{
				corev1.ResourceCPU: {Mapping: &resourceapi.NodeAllocatableMapping{
					CapacityKey:        new(resourceapi.QualifiedName(CPUs)),
					CapacityMultiplier: resource.NewQuantity(1, resource.DecimalSI)}}}
		}
		used := n.counted(d.Name)
		for name, free := range n.free(at) {
			free.Add(used[name])
			// Without a default, a request that does not name the capacity takes all of it.
			policy := &resourceapi.CapacityRequestPolicy{Default: resource.NewQuantity(0, free.Format)}
			if most, limited := n.Limits[d.Name][name]; limited && most.Cmp(free) < 0 {
				policy.ValidRange = &resourceapi.CapacityRequestPolicyRange{Min: policy.Default, Max: &most}
			}
			d.Capacity[name] = resourceapi.DeviceCapacity{Value: free, RequestPolicy: policy}
		}
		if cpus := d.Capacity[CPUs].Value; !cpus.IsZero() {
			devices = append(devices, d)
		}
	}
	return devices, nil
}

// counted returns what the scheduler has counted on a device for the placed claims.
func (n Node) counted(device string) map[resourceapi.QualifiedName]resource.Quantity {
	sums := map[resourceapi.QualifiedName]resource.Quantity{}
	for _, c := range n.Claims {
		for _, r := range Results(c, n.Pool) {
			if r.Device != device {
				continue
			}
			for name, amount := range r.ConsumedCapacity {
				sum := sums[name]
				sum.Add(amount)
				sums[name] = sum
			}
		}
	}
	return sums
}

// Results returns the devices of a pool that a claim has been given.
func Results(c *resourceapi.ResourceClaim, pool string) (of []resourceapi.DeviceRequestAllocationResult) {
	if c.Status.Allocation == nil {
		return nil
	}
	for _, r := range c.Status.Allocation.Devices.Results {
		if r.Driver == Driver && r.Pool == pool {
			of = append(of, r)
		}
	}
	return of
}

// free returns what lanes can still have of a NUMA node. Hugepages are only those in its pools: the kubelet
// counts no others, and the kernel may not find room for more.
func (n Node) free(at solver.NodeRoom) map[resourceapi.QualifiedName]resource.Quantity {
	whole := 0
	for _, core := range n.Host.CoresOf(at.CPUs) {
		if core == n.Host.Siblings(core.First()) {
			whole++
		}
	}
	free := map[resourceapi.QualifiedName]resource.Quantity{
		CPUs:   *resource.NewQuantity(int64(at.CPUs.Len()), resource.DecimalSI),
		Cores:  *resource.NewQuantity(int64(whole), resource.DecimalSI),
		Memory: *resource.NewQuantity(int64(at.Memory), resource.BinarySI),
	}
	for _, size := range n.pageSizes(at.Node) {
		bytes := at.Hugepages[size] * size
		name := Hugepages + quantity.Bytes(size).String()
		free[resourceapi.QualifiedName(name)] = *resource.NewQuantity(int64(bytes), resource.BinarySI)
	}
	return free
}

// pageSizes returns the sizes of a node's hugepages in bytes.
func (n Node) pageSizes(node int) (sizes []uint64) {
	for _, of := range n.Host.NUMANodes {
		for _, pages := range of.Hugepages {
			if of.ID == node && pages.PageBytes > 0 {
				sizes = append(sizes, pages.PageBytes)
			}
		}
	}
	return sizes
}

// attributes returns what a DeviceClass or a claim can select by.
func (n Node) attributes(at solver.NodeRoom) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	number := func(n int) resourceapi.DeviceAttribute {
		return resourceapi.DeviceAttribute{IntValue: new(int64(n))}
	}
	text := func(s string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &s} }
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"partition":      text(n.Partition),
		"threadsPerCore": number(ThreadsPerCore(n.Host, at.Node)),
		"kind":           text(n.kind(at.Node)),
	}
	if at.Node >= 0 {
		all[numaNode] = number(at.Node)
	}
	if len(at.L3) > 0 { // the machine says which CPUs share an L3
		block := 0
		for _, free := range at.L3 {
			block = max(block, free.Len())
		}
		all["largestL3Block"] = number(block)
	}
	return all
}

// ThreadsPerCore returns how many CPUs the largest core of a NUMA node has.
func ThreadsPerCore(h host.Host, node int) int {
	most := 1
	for _, c := range h.CPUs {
		if nodeOf(c) == node {
			most = max(most, h.Siblings(c.ID).Len())
		}
	}
	return most
}

func nodeOf(c host.CPU) int {
	if c.NUMANode == nil {
		return -1
	}
	return *c.NUMANode
}

// kind returns the kind of the cores of a node, or mixed if there are several.
func (n Node) kind(node int) string {
	kinds := map[host.CPUKind]bool{}
	for _, c := range n.Host.CPUs {
		if c.Online && nodeOf(c) == node && c.Kind != "" {
			kinds[c.Kind] = true
		}
	}
	switch names := slices.Collect(maps.Keys(kinds)); len(names) {
	case 0:
		return "unknown"
	case 1:
		return string(names[0])
	default:
		return "mixed"
	}
}
