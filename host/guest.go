package host

import (
	"slices"
	"strings"
)

// guest says whether the machine is a hypervisor's guest; nil where nothing tells. x86 has a flag, which
// some hypervisors hide: their devices and firmware then give them away. Elsewhere only these do, as
// lscpu(1) and systemd-detect-virt(1) read them, and their silence proves nothing but on x86 and on
// POWER's bare metal.
func (r *reader) guest(flags []string, devices []PCIDevice) *bool {
	compatible := r.strings("proc/device-tree/compatible")
	is := func(machine string) bool { return slices.Contains(compatible, machine) }
	switch {
	case slices.Contains(flags, "hypervisor"), r.firmwareIsGuest(), r.hasVirtualBox(devices),
		r.isLogicalPartition(compatible),
		len(r.strings("proc/device-tree/hypervisor/compatible")) > 0, // "linux,kvm", "xen,xen"
		is("linux,dummy-virt"), is("riscv-virtio"):                   // QEMU's machine virt
		return new(true)
	case flags != nil, is("ibm,powernv"):
		return new(false)
	}
	return nil
}

// strings are the values of a property of the device tree, each ended by a zero byte; also those of a
// text with one line.
func (r *reader) strings(path string) []string {
	text, _ := r.read(path)
	return strings.FieldsFunc(text, func(c rune) bool { return c == 0 || c == '\n' })
}

// firmwareIsGuest looks at the names that firmware gives itself (SMBIOS type 0 and 1). What a cloud calls all
// its machines, those without a hypervisor among them, is no sign.
func (r *reader) firmwareIsGuest() bool {
	const dir = "sys/class/dmi/id/"
	vendor, product := r.text(dir+"sys_vendor"), r.text(dir+"product_name")
	switch vendor {
	case "Amazon EC2":
		return product != "" && !strings.Contains(product, ".metal")
	case "Microsoft Corporation":
		return product == "Virtual Machine"
	}
	for _, name := range []string{vendor, product, r.text(dir + "bios_vendor")} {
		for _, known := range []string{"QEMU", "KVM", "KubeVirt", "OpenStack", "VMware", "VMW", "innotek GmbH",
			"VirtualBox", "Xen", "Bochs", "Parallels", "BHYVE", "Apple Virtualization"} {
			if strings.HasPrefix(name, known) {
				return true
			}
		}
	}
	return false
}

// hasVirtualBox looks for a device of VirtualBox's, also in the old list of devices, whose second
// column is vendor and device.
func (r *reader) hasVirtualBox(devices []PCIDevice) bool {
	found := slices.ContainsFunc(devices, func(d PCIDevice) bool { return d.Vendor == "0x80ee" })
	if len(devices) > 0 {
		return found
	}
	r.lines("proc/bus/pci/devices", func(line string) bool {
		fields := strings.Fields(line)
		found = len(fields) > 1 && strings.HasPrefix(fields[1], "80ee")
		return !found
	})
	return found
}

// isLogicalPartition knows IBM's hypervisors: an s390 is in a partition at least (/proc/sysinfo); a
// POWER has one that a management console named, unless it is "full", or is QEMU's.
func (r *reader) isLogicalPartition(compatible []string) bool {
	found := false
	r.lines("proc/sysinfo", func(line string) bool {
		found = strings.HasPrefix(line, "LPAR Number:") || strings.HasPrefix(line, "VM00 ")
		return !found
	})
	if found || slices.Contains(compatible, "qemu,pseries") {
		return true
	}
	_, managed := r.read("proc/device-tree/hmc-managed?")
	name, named := r.read("proc/device-tree/ibm,partition-name")
	return managed && named && strings.Trim(name, "\x00\n") != "full"
}
