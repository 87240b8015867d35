// Package lab runs virtual machines with what a development host lacks: several NUMA nodes, SMT,
// SR-IOV, an IOMMU, cgroup v2 partitions and a real-time kernel, all from Debian packages.
//
// The processor is emulated in software. The lab proves function; timings measured in it mean nothing.
package lab

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Machine describes a virtual machine.
type Machine struct {
	Sockets int    `json:"sockets"`
	Cores   int    `json:"cores"`   // per socket
	Threads int    `json:"threads"` // per core
	Nodes   []Node `json:"nodes"`   // the CPUs are dealt out to them in order
	Kernel  string `json:"kernel"`  // one of KernelNames
	Init    string `json:"init"`    // process 1: script, which starts only the agent, or systemd
	Cmdline string `json:"cmdline"` // added to the kernel's command line
	Power   bool   `json:"power"`   // the CPUs have frequencies and idle states
}

// Node is a NUMA node.
type Node struct {
	MemoryMiB int   `json:"memoryMiB"`
	Distances []int `json:"distances"` // to all nodes; 10 to itself
	NICs      int   `json:"nics"`
	NVMes     int   `json:"nvmes"`

	Cards string `json:"cards"` // model of the NICs: igb, e1000e or virtio-net; "": igb
}

// cardNames returns the models of network cards. An igb has seven virtual functions, the others have none.
func cardNames() []string { return []string{"igb", "e1000e", "virtio-net"} }

// Default is the machine of tests that state no other: two sockets of two cores of two threads, a node and a
// card for each socket, and an NVMe on the second node.
func Default() Machine {
	return Machine{Sockets: 2, Cores: 2, Threads: 2, Kernel: "generic", Init: "script", Nodes: []Node{
		{MemoryMiB: 1024, Distances: []int{10, 21}, NICs: 1},
		{MemoryMiB: 1024, Distances: []int{21, 10}, NICs: 1, NVMes: 1},
	}}
}

// ReadMachine reads a description from a file in YAML.
func ReadMachine(file string) (Machine, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Machine{}, err
	}
	return ParseMachine(file, data)
}

// ParseMachine parses a YAML description; name is for errors. Missing fields are as in Default; unknown
// fields are errors.
func ParseMachine(name string, data []byte) (Machine, error) {
	m := Default()
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		return m, fmt.Errorf("%s: %s", name, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if err := m.Validate(); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// CPUs returns the number of CPUs.
func (m Machine) CPUs() int { return m.Sockets * m.Cores * m.Threads }

// Validate checks the description.
func (m Machine) Validate() error {
	const most = 64
	switch {
	case min(m.Sockets, m.Cores, m.Threads) < 1 || max(m.Sockets, m.Cores, m.Threads) > most || m.CPUs() > most:
		return fmt.Errorf("sockets, cores, threads: expected at least 1 each and at most %d CPUs in all", most)
	case len(m.Nodes) < 1 || len(m.Nodes) > 8 || m.CPUs()%len(m.Nodes) != 0:
		return fmt.Errorf("nodes: expected 1 to 8 that divide the %d CPUs evenly, found %d", m.CPUs(), len(m.Nodes))
	case !slices.Contains(KernelNames(), m.Kernel):
		return fmt.Errorf("kernel: %q: expected one of %s", m.Kernel, strings.Join(KernelNames(), ", "))
	case m.Init != "script" && m.Init != "systemd":
		return fmt.Errorf("init: %q: expected script or systemd", m.Init)
	case strings.ContainsAny(m.Cmdline, "\n\x00"):
		return errors.New("cmdline: expected one line")
	}
	for i, n := range m.Nodes {
		switch {
		case n.MemoryMiB < 256 || n.MemoryMiB > 16384:
			return fmt.Errorf("nodes[%d].memoryMiB: %d: expected 256 to 16384", i, n.MemoryMiB)
		case len(n.Distances) != len(m.Nodes) || n.Distances[i] != 10:
			return fmt.Errorf("nodes[%d].distances: expected %d numbers, 10 for the node itself", i, len(m.Nodes))
		case n.NICs < 0 || n.NICs > 4 || n.NVMes < 0 || n.NVMes > 4:
			return fmt.Errorf("nodes[%d]: expected at most 4 nics and 4 nvmes", i)
		case n.Cards != "" && !slices.Contains(cardNames(), n.Cards):
			return fmt.Errorf("nodes[%d].cards: %q: expected one of %s", i, n.Cards,
				strings.Join(cardNames(), ", "))
		}
		for _, d := range n.Distances {
			if d < 10 || d > 254 {
				return fmt.Errorf("nodes[%d].distances: %d: expected 10 to 254", i, d)
			}
		}
	}
	return nil
}
