package host

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"isolane.dev/isolane/host/firmware"
)

const pciDir = "sys/bus/pci/devices"

// FindDevice returns the index of the PCI device with this address or network interface, or -1.
func (h Host) FindDevice(name string) int {
	return slices.IndexFunc(h.PCIDevices, func(d PCIDevice) bool {
		return d.Address == name || slices.Contains(d.Netdevs, name)
	})
}

// pciDevices reads /sys/bus/pci/devices (Documentation/ABI/testing/sysfs-bus-pci,
// Documentation/PCI/sysfs-pci.rst).
func (r *reader) pciDevices() []PCIDevice {
	devices := []PCIDevice{}
	pf := map[string]string{} // VF: PF
	for _, address := range r.entries(pciDir) {
		if !isPCIAddress(address) {
			continue
		}
		dir := path.Join(pciDir, address)
		d := PCIDevice{Address: address, Class: r.text(dir + "/class"), Vendor: r.text(dir + "/vendor"),
			Device: r.text(dir + "/device"), Driver: r.linkName(dir + "/driver"), PF: r.linkedDevice(dir + "/physfn"),
			NUMANode: r.small(dir + "/numa_node"), LocalCPUs: r.set(dir+"/local_cpus", dir+"/local_cpulist")}
		d.Kind = pciKind(d.Class)
		if d.Kind == "network" {
			d.Netdevs = r.netdevs(dir)
			if d.PF != nil {
				d.InUse = FunctionInUse(r.root, address)
			}
		}
		if total := r.small(dir + "/sriov_totalvfs"); total != nil && *total > 0 {
			d.SRIOV = &SRIOV{TotalVFs: *total}
			if n := r.small(dir + "/sriov_numvfs"); n != nil {
				d.SRIOV.NumVFs = *n
			}
			for _, n := range r.numbered(dir, "virtfn", "") {
				if vf := r.linkedDevice(fmt.Sprintf("%s/virtfn%d", dir, n)); vf != nil {
					d.VFs = append(d.VFs, *vf)
					pf[*vf] = address
				}
			}
			if len(d.VFs) != d.SRIOV.NumVFs {
				r.warn("/%s/sriov_numvfs: says %d virtual functions, there are %d", dir, d.SRIOV.NumVFs, len(d.VFs))
			}
		}
		devices = append(devices, d)
	}
	for i, d := range devices {
		if of, ok := pf[d.Address]; ok && d.PF == nil {
			devices[i].PF = &of
		}
	}
	slices.SortFunc(devices, func(a, b PCIDevice) int { return strings.Compare(a.Address, b.Address) })
	return devices
}

// firmware reads the firmware of the board and of cards. A virtual function has that of its card.
func (r *reader) firmware(h *Host) {
	files := firmware.Files{Text: r.text, Entries: r.entries}
	h.Firmware = firmware.OfBoard(files)
	for i, d := range h.PCIDevices {
		if d.PF != nil {
			continue
		}
		h.PCIDevices[i].Firmware = firmware.OfDevice(files, path.Join(pciDir, d.Address), d.Kind, d.Netdevs)
	}
}

// FunctionInUse returns why a virtual function of a network card cannot be given to a lane: who uses it, or
// that it has no driver. It returns "" if nobody seems to use it.
func FunctionInUse(root fs.FS, address string) string {
	dir := path.Join(pciDir, address)
	devices, err := fs.ReadDir(root, dir+"/net")
	if err != nil || len(devices) == 0 {
		driver, derr := fs.ReadLink(root, dir+"/driver")
		if derr != nil {
			return "no driver"
		}
		return "no network device here, driver " + path.Base(driver)
	}
	for _, d := range devices {
		text, _ := fs.ReadFile(root, dir+"/net/"+d.Name()+"/flags") // an archive may have none
		flags, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 32)
		if flags&1 != 0 { // IFF_UP
			return d.Name() + " is up"
		}
		if master, merr := fs.ReadLink(root, dir+"/net/"+d.Name()+"/master"); merr == nil {
			return d.Name() + " is a port of " + path.Base(master)
		}
	}
	return ""
}

// netdevs returns the network interfaces of a function, or of the virtio device on it.
func (r *reader) netdevs(dir string) []string {
	names := r.entries(dir + "/net")
	if len(names) == 0 {
		for _, n := range r.numbered(dir, "virtio", "") {
			names = append(names, r.entries(fmt.Sprintf("%s/virtio%d/net", dir, n))...)
		}
	}
	return names
}

// NetworkDevice returns the name of the first network interface of the PCI function with this address, or ""
// if there is none.
func NetworkDevice(root fs.FS, address string) string {
	if !isPCIAddress(address) {
		return ""
	}
	names := (&reader{root: root}).netdevs(path.Join(pciDir, address))
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// pciKind names the base class, and the co-processors among the processors (PCI Code and ID Assignment
// Specification).
func pciKind(class string) string {
	n, err := strconv.ParseUint(strings.TrimPrefix(class, "0x"), 16, 24)
	if err != nil {
		return ""
	}
	switch n >> 16 {
	case 0x01:
		return "storage"
	case 0x02:
		return "network"
	case 0x03:
		return "gpu"
	case 0x06:
		return "bridge"
	case 0x12:
		return "accelerator"
	case 0x0b:
		if n>>8 == 0x0b40 {
			return "accelerator"
		}
	}
	return "other"
}

// linkName returns the last element of a link's target, or nil if there is no link.
func (r *reader) linkName(name string) *string {
	target, err := fs.ReadLink(r.root, name)
	if err != nil || target == "" {
		return nil
	}
	return orNull(path.Base(target))
}

// linkedDevice is like linkName, for a link to a device.
func (r *reader) linkedDevice(name string) *string {
	address := r.linkName(name)
	if address != nil && !isPCIAddress(*address) {
		r.warn("/%s: expected a link to a PCI device, found %.40q", name, *address)
		return nil
	}
	return address
}

// entries lists the names in a directory, in ascending order.
func (r *reader) entries(dir string) []string {
	found, err := fs.ReadDir(r.root, dir)
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(found))
	for _, e := range found {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

// isPCIAddress reports whether a name is domain:bus:slot.function, "0000:3b:00.0". A domain has four to eight
// digits.
func isPCIAddress(name string) bool {
	domain, rest, _ := strings.Cut(name, ":")
	bus, rest, _ := strings.Cut(rest, ":")
	slot, function, _ := strings.Cut(rest, ".")
	return strings.Trim(domain+bus+slot+function, "0123456789abcdef") == "" &&
		(len(domain) == 4 || len(domain) > 4 && len(domain) <= 8 && domain[0] != '0') &&
		len(bus) == 2 && len(slot) == 2 && len(function) == 1
}

// DeviceOf returns the PCI device with that address or network interface, or the zero PCIDevice.
func DeviceOf(h Host, name string) PCIDevice {
	if at := h.FindDevice(name); at >= 0 {
		return h.PCIDevices[at]
	}
	return PCIDevice{}
}
