// Package lab runs virtual machines with what a development host lacks: several NUMA nodes, SMT,
// SR-IOV, an IOMMU, cgroup v2 partitions and a real-time kernel, all from Debian packages.
//
// The processor is emulated in software. The lab proves function; timings measured in it mean nothing.
package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

// Machine describes a virtual machine.
type Machine struct {
	Sockets int    `json:"sockets"`
	Cores   int    `json:"cores"`   // of a socket
	Threads int    `json:"threads"` // of a core
	Nodes   []Node `json:"nodes"`   // the CPUs are dealt out to them in order
	Kernel  string `json:"kernel"`  // generic or rt
	Cmdline string `json:"cmdline"` // added to the kernel's command line
}

// Node is a NUMA node.
type Node struct {
	MemoryMiB int   `json:"memoryMiB"`
	Distances []int `json:"distances"` // to all nodes; 10 to itself
	NICs      int   `json:"nics"`      // igb cards, which have seven virtual functions each
	NVMes     int   `json:"nvmes"`
}

// Default is the machine that tests use unless they state another: two sockets of two cores of two
// threads, a node and a card for each socket, and an NVMe on the second node.
func Default() Machine {
	return Machine{Sockets: 2, Cores: 2, Threads: 2, Kernel: "generic", Nodes: []Node{
		{MemoryMiB: 1024, Distances: []int{10, 21}, NICs: 1},
		{MemoryMiB: 1024, Distances: []int{21, 10}, NICs: 1, NVMes: 1},
	}}
}

// ReadMachine reads a description in YAML. What it does not say is as in Default; unknown fields are
// errors.
func ReadMachine(file string) (Machine, error) {
	m := Default()
	data, err := os.ReadFile(file)
	if err != nil {
		return m, err
	}
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		return m, fmt.Errorf("%s: %s", file, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if err := m.validate(); err != nil {
		return m, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}

// CPUs is how many the machine has.
func (m Machine) CPUs() int { return m.Sockets * m.Cores * m.Threads }

func (m Machine) validate() error {
	const most = 64
	switch {
	case m.Sockets < 1 || m.Cores < 1 || m.Threads < 1 || m.Sockets > most || m.Cores > most || m.Threads > 8 || m.CPUs() > most:
		return fmt.Errorf("sockets, cores, threads: expected at least 1 each and at most %d CPUs in all", most)
	case len(m.Nodes) < 1 || len(m.Nodes) > 8 || m.CPUs()%len(m.Nodes) != 0:
		return fmt.Errorf("nodes: expected 1 to 8 that divide the %d CPUs evenly, found %d", m.CPUs(), len(m.Nodes))
	case m.Kernel != "generic" && m.Kernel != "rt":
		return fmt.Errorf("kernel: %q: expected generic or rt", m.Kernel)
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
		}
		for _, d := range n.Distances {
			if d < 10 || d > 254 {
				return fmt.Errorf("nodes[%d].distances: %d: expected 10 to 254", i, d)
			}
		}
	}
	return nil
}

// files are what a running machine needs of the host.
type files struct {
	kernel, initrd, root string
	nvme                 string // image that all NVMes show, without writing to it
	control, console     string
	runner, share        string // folders
}

// args are QEMU's. The recipe, and why each part is there, is in docs/lab.md.
func (m Machine) args(f files) []string {
	total := 0
	for _, n := range m.Nodes {
		total += n.MemoryMiB
	}
	kernel, initrd := f.kernel, f.initrd
	for _, path := range []*string{&f.root, &f.nvme, &f.control, &f.console, &f.runner, &f.share} {
		*path = strings.ReplaceAll(*path, ",", ",,") // as QEMU's options want it
	}
	args := []string{
		"-machine", "q35,kernel-irqchip=split", "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,vendor=GenuineIntel",
		"-smp", fmt.Sprintf("%d,sockets=%d,cores=%d,threads=%d", m.CPUs(), m.Sockets, m.Cores, m.Threads), "-m", fmt.Sprintf("%dM", total),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "file:" + f.console,
		"-device", "intel-iommu,intremap=on,caching-mode=on",
	}
	add := func(option, format string, values ...any) {
		args = append(args, option, fmt.Sprintf(format, values...))
	}
	per := m.CPUs() / len(m.Nodes)
	for i, n := range m.Nodes {
		add("-object", "memory-backend-ram,id=m%d,size=%dM", i, n.MemoryMiB)
		add("-numa", "node,nodeid=%d,cpus=%d-%d,memdev=m%[1]d", i, i*per, i*per+per-1)
	}
	for i, n := range m.Nodes {
		for j, d := range n.Distances {
			if i != j {
				add("-numa", "dist,src=%d,dst=%d,val=%d", i, j, d)
			}
		}
	}
	for i, n := range m.Nodes { // devices on pcie.0 itself would have no node
		add("-device", "pxb-pcie,id=pxb%d,bus=pcie.0,bus_nr=%d,numa_node=%[1]d", i, 32*(i+1))
		slot := 0
		port := func() string {
			id := fmt.Sprintf("rp%d%d", i, slot)
			add("-device", "pcie-root-port,id=%s,bus=pxb%d,chassis=%d,slot=%[3]d", id, i, 10*(i+1)+slot)
			slot++
			return id
		}
		for c := range n.NICs {
			add("-netdev", "hubport,id=n%d%d,hubid=1", i, c)
			add("-device", "igb,id=nic%d%d,bus=%s,netdev=n%[1]d%[2]d,mac=52:54:00:00:%02[1]x:%02[2]x,romfile=", i, c, port())
		}
		for d := range n.NVMes {
			add("-drive", "if=none,id=nv%d%d,file=%s,format=raw,snapshot=on", i, d, f.nvme)
			add("-device", "nvme,serial=lab%d%d,drive=nv%[1]d%[2]d,bus=%s", i, d, port())
		}
	}
	add("-drive", "if=none,id=root,file=%s,format=raw,readonly=on,cache=unsafe", f.root)
	add("-device", "virtio-blk-pci,drive=root,bus=pcie.0")
	add("-device", "virtio-serial-pci,bus=pcie.0")
	add("-chardev", "socket,id=ctl,path=%s,server=on,wait=off", f.control)
	add("-device", "virtserialport,chardev=ctl,name=lab.0")
	for _, share := range [][2]string{{"lab", f.runner}, {"host", f.share}} {
		add("-fsdev", "local,id=%s,path=%s,security_model=none,multidevs=remap", share[0], share[1])
		add("-device", "virtio-9p-pci,fsdev=%s,mount_tag=%[1]s,bus=pcie.0", share[0])
	}
	add("-object", "rng-random,id=rng,filename=/dev/urandom")
	add("-device", "virtio-rng-pci,rng=rng,bus=pcie.0")
	return append(args, "-kernel", kernel, "-initrd", initrd, "-append", strings.TrimSpace(
		"console=ttyS0 panic=-1 loglevel=7 nokaslr no_timer_check intel_iommu=on tsc=reliable "+m.Cmdline))
}
