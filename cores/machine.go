package cores

import (
	"fmt"
	"strings"

	"isolane.dev/isolane/lane"
)

// topology returns the CPUs as the guest may see them: siblings as siblings if each of its cores has all
// threads, else as cores.
func (r Request) topology() (cpus []int, cores, threads int) {
	cpus, threads = r.byCore()
	if threads == 0 || r.Lane.Spec.CPUs.SMT == lane.Isolate {
		threads = 1
	}
	return cpus, len(cpus) / threads, threads
}

// pins writes where the threads of a machine go. The emulator's and the I/O threads stay on housekeeping.
func (r Request) pins() (string, error) {
	cpus, _, _ := r.topology()
	others, err := r.others()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("<cputune>\n")
	for v, id := range cpus {
		fmt.Fprintf(&b, "  <vcpupin vcpu='%d' cpuset='%d'/>\n", v, id)
	}
	fmt.Fprintf(&b, "  <emulatorpin cpuset='%s'/>\n  <iothreadpin iothread='1' cpuset='%[1]s'/>\n", others)
	if p := r.Lane.Spec.Scheduling; p.Policy.IsRealTime() {
		fmt.Fprintf(&b, "  <vcpusched vcpus='0-%d' scheduler='%s' priority='%d'/>\n",
			len(cpus)-1, p.Policy, p.Priority)
	}
	b.WriteString("</cputune>\n")
	return b.String(), nil
}

// libvirt writes elements of a domain (libvirt: Domain XML format, CPU tuning, NUMA node tuning). A machine
// starts outside of its lane. If that is in force it cannot have the lane's CPUs then, and attach pins its
// threads.
func libvirt(r Request) (string, error) {
	cpus, cores, threads := r.topology()
	var b strings.Builder
	fmt.Fprintf(&b, "<vcpu placement='static'>%d</vcpu>\n<iothreads>1</iothreads>\n", len(cpus))
	if !r.InForce {
		pins, err := r.pins()
		if err != nil {
			return "", err
		}
		b.WriteString(pins)
	}
	if !r.Lane.MemoryNodes.IsEmpty() {
		fmt.Fprintf(&b, "<numatune>\n  <memory mode='strict' nodeset='%s'/>\n</numatune>\n", r.Lane.MemoryNodes)
	}
	shared := ""
	if r.VhostUser != nil { // the switch reads and writes it
		shared = "  <access mode='shared'/>\n"
	}
	if len(r.Lane.Hugepages) > 0 {
		fmt.Fprintf(&b, "<memoryBacking>\n  <hugepages>\n    <page size='%d' unit='KiB'/>\n"+
			"  </hugepages>\n  <locked/>\n%s</memoryBacking>\n", r.Lane.Hugepages[0].PageBytes>>10, shared)
	}
	fmt.Fprintf(&b, "<cpu mode='host-passthrough'>\n"+
		"  <topology sockets='1' dies='1' cores='%d' threads='%d'/>\n</cpu>\n", cores, threads)
	if v := r.VhostUser; v != nil {
		fmt.Fprintf(&b, "<devices>\n  <interface type='vhostuser'>\n    <mac address='%s'/>\n"+
			"    <source type='unix' path='%s' mode='server'/>\n    <model type='virtio'/>\n    <mtu size='%d'/>\n"+
			"  </interface>\n</devices>\n", v.MAC, v.Socket, v.MTU)
	}
	if t := r.Tap; t != nil {
		fmt.Fprintf(&b, "<devices>\n  <interface type='ethernet'>\n    <mac address='%s'/>\n"+
			"    <model type='virtio'/>\n", t.MAC)
		if t.MTU > 0 {
			fmt.Fprintf(&b, "    <mtu size='%d'/>\n", t.MTU)
		}
		b.WriteString("  </interface>\n</devices>\n")
	}
	for _, address := range r.Lane.OwnFunctions() { // it already has its driver
		var domain, bus, slot, function uint
		if _, err := fmt.Sscanf(address, "%x:%x:%x.%x", &domain, &bus, &slot, &function); err != nil {
			return "", fmt.Errorf("%q: expected a PCI address: %w", address, err)
		}
		fmt.Fprintf(&b, "<devices>\n  <hostdev mode='subsystem' type='pci' managed='no'>\n    <source>\n"+
			"      <address domain='0x%04x' bus='0x%02x' slot='0x%02x' function='0x%x'/>\n    </source>\n"+
			"  </hostdev>\n</devices>\n", domain, bus, slot, function)
	}
	return b.String(), nil
}

// qemu writes options (qemu-system-x86_64(1)). QEMU has no option that pins the threads of virtual CPUs;
// QMP's query-cpus-fast returns their ids.
func qemu(r Request) (string, error) {
	cpus, cores, threads := r.topology()
	others, err := r.others()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "-smp %d,sockets=1,cores=%d,threads=%d -name debug-threads=on", len(cpus), cores, threads)
	if size := r.guestMemory(); size > 0 && !r.Lane.MemoryNodes.IsEmpty() {
		backend := "memory-backend-ram"
		if len(r.Lane.Hugepages) > 0 {
			backend = fmt.Sprintf("memory-backend-memfd,share=on,hugetlb=on,hugetlbsize=%d",
				r.Lane.Hugepages[0].PageBytes)
		}
		fmt.Fprintf(&b, " -m %dM -object %s,id=lane,size=%[1]dM,host-nodes=%[3]s,policy=bind,prealloc=on"+
			" -numa node,memdev=lane",
			size>>20, backend, r.Lane.MemoryNodes)
	}
	if v := r.VhostUser; v != nil {
		fmt.Fprintf(&b, " -chardev socket,id=vhost,path=%s,server=on -netdev vhost-user,id=vhost,chardev=vhost"+
			" -device virtio-net-pci,netdev=vhost,mac=%s,host_mtu=%d", v.Socket, v.MAC, v.MTU)
	}
	if r.VhostUser != nil && r.Emulated {
		b.WriteString(",vectors=0")
	}
	if t := r.Tap; t != nil {
		fmt.Fprintf(&b, " -netdev tap,id=tap,ifname=%s,script=no,downscript=no,vhost=%s"+
			" -device virtio-net-pci,netdev=tap,mac=%s",
			t.Device, map[bool]string{true: "on", false: "off"}[t.Vhost], t.MAC)
		if t.MTU > 0 {
			fmt.Fprintf(&b, ",host_mtu=%d", t.MTU)
		}
	}
	for _, address := range r.Lane.OwnFunctions() {
		fmt.Fprintf(&b, " -device vfio-pci,host=%s", address)
	}
	b.WriteString("\n")
	for v, id := range cpus {
		fmt.Fprintf(&b, "# thread \"CPU %d/KVM\": taskset -pc %d TID\n", v, id)
	}
	fmt.Fprintf(&b, "# all other threads: taskset -pc %s TID\n", others)
	if r.VhostUser != nil && r.Emulated {
		b.WriteString("# vectors=0: no /dev/kvm is here, and QEMU 7.2 crashes by MSI-X of vhost-user\n")
	}
	return b.String(), nil
}

// guestMemory returns the size of the hugepages or, without hugepages, of the ordinary memory.
func (r Request) guestMemory() uint64 {
	sum := uint64(0)
	for _, h := range r.Lane.Hugepages {
		sum += h.Pages * h.PageBytes
	}
	if sum > 0 {
		return sum
	}
	for _, m := range r.Lane.Memory {
		sum += m.Bytes
	}
	return sum
}

// lxd writes the configuration of an instance (LXD: Instance options, limits.cpu). A single number there is a
// count, so a single CPU is written as a range.
func lxd(r Request) (string, error) {
	list := r.Lane.CPUs.String()
	if r.Lane.CPUs.Len() == 1 {
		list = fmt.Sprintf("%s-%[1]s", list)
	}
	text := fmt.Sprintf("limits.cpu: \"%s\"\n", list)
	if !r.Lane.MemoryNodes.IsEmpty() {
		text += fmt.Sprintf("limits.cpu.nodes: \"%s\"\n", r.Lane.MemoryNodes)
	}
	for _, h := range r.Lane.Hugepages {
		sizes := map[uint64]string{64 << 10: "64KB", 1 << 20: "1MB", 2 << 20: "2MB", 1 << 30: "1GB"}
		if name := sizes[h.PageBytes]; name != "" {
			text += fmt.Sprintf("limits.hugepages.%s: \"%d\"\n", name, h.Pages*h.PageBytes)
		}
	}
	return text, nil
}

// openNebula writes attributes of a VM template (OpenNebula: Virtual Topology and CPU Pinning). OpenNebula
// itself chooses among the CPUs that its host may use: ISOLCPUS of the host excludes the others.
func openNebula(r Request) (string, error) {
	cpus, cores, threads := r.topology()
	policy := "THREAD"
	if r.Lane.Spec.CPUs.SMT == lane.Isolate || r.Lane.Spec.CPUs.SMT == lane.Pack {
		policy = "CORE"
	}
	topology := fmt.Sprintf("PIN_POLICY = \"%s\", SOCKETS = \"1\", CORES = \"%d\", THREADS = \"%d\"",
		policy, cores, threads)
	if r.Lane.MemoryNodes.Len() == 1 {
		topology += fmt.Sprintf(", NODE_AFFINITY = \"%s\"", r.Lane.MemoryNodes)
	}
	if len(r.Lane.Hugepages) > 0 {
		topology += fmt.Sprintf(", HUGEPAGE_SIZE = \"%d\"", r.Lane.Hugepages[0].PageBytes>>20)
	}
	return fmt.Sprintf("CPU = \"%d\"\nVCPU = \"%[1]d\"\nTOPOLOGY = [ %s ]\n", len(cpus), topology), nil
}
