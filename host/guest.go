package host

import (
	"slices"
	"strings"
)

// guest reports whether the machine is a guest of a hypervisor; nil if nothing tells. x86 has a flag, which
// some hypervisors hide; their devices and firmware then show them. Other architectures have only these,
// which are read as in lscpu(1) and systemd-detect-virt(1). Without any sign the machine is no guest only on
// x86 and on bare-metal POWER; elsewhere that is not known.
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

// strings returns the values of a property of the device tree, each of which ends with a zero byte. It also
// reads a text of one line.
func (r *reader) strings(path string) []string {
	text, _ := r.read(path)
	return strings.FieldsFunc(text, func(c rune) bool { return c == 0 || c == '\n' })
}

// firmwareIsGuest looks at the names that firmware gives itself (SMBIOS type 0 and 1). A name that a cloud
// gives to all its machines, including those without a hypervisor, is no sign.
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

// hasVirtualBox looks for a device of VirtualBox. Without devices from sysfs it reads the old list of
// devices, whose second column is vendor and device.
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

// isLogicalPartition recognizes IBM's hypervisors. An s390 is in a partition at least (/proc/sysinfo). POWER
// is in one if QEMU made the machine, or if a management console named its partition other than "full".
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
