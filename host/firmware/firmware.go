// Package firmware says which firmware a machine has: that of its board, and that of its cards, as far as the
// kernel shows it. It reads no serial numbers and no UUIDs.
package firmware

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Board is the firmware of a machine's board (SMBIOS type 0), in its own words.
type Board struct {
	Vendor  *string `json:"vendor"`
	Version *string `json:"version"`
	Date    *string `json:"date"` // of its release, most often month/day/year
}

// Files reads the files of a machine. A missing file is an empty text, a missing directory has no entries.
type Files struct {
	Text    func(path string) string
	Entries func(dir string) []string
}

// OfBoard reads the firmware of the board (Documentation/ABI/testing/sysfs-firmware-dmi-tables), or returns
// nil if the kernel does not show it, as on a machine without SMBIOS.
func OfBoard(f Files) *Board {
	b := Board{}
	for _, of := range []struct {
		file string
		is   **string
	}{{"bios_vendor", &b.Vendor}, {"bios_version", &b.Version}, {"bios_date", &b.Date}} {
		if text := brief(f.Text("sys/class/dmi/id/" + of.file)); text != "" {
			*of.is = &text
		}
	}
	if b == (Board{}) {
		return nil
	}
	return &b
}

// OfDevice reads the version of the firmware of a PCI device, whose directory of sysfs is dir, or returns nil
// if the kernel does not show it there. kind is that of host.PCIDevice.
func OfDevice(f Files, dir, kind string) *string {
	switch kind {
	case "storage": // Documentation/ABI/testing/sysfs-nvme
		return below(f, dir+"/nvme", "firmware_rev")
	case "network": // Documentation/ABI/stable/sysfs-class-infiniband
		return below(f, dir+"/infiniband", "fw_ver")
	case "gpu": // Documentation/gpu/amdgpu/driver-misc.rst
		return orNil(brief(f.Text(dir + "/vbios_version")))
	case "accelerator":
		return below(f, dir+"/ve", "fw_version") // a vector engine of NEC
	}
	return nil
}

// OfNetwork asks the driver of a network interface of this machine, as ethtool -i does, or returns nil if it
// does not say.
func OfNetwork(netdev string) *string {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, netdev)
	if err != nil {
		return nil
	}
	version := brief(unix.ByteSliceToString(info.Fw_version[:]))
	if version == "N/A" { // of drivers that have none to say
		version = ""
	}
	return orNil(version)
}

// below reads a file of the first device of a class.
func below(f Files, dir, file string) *string {
	for _, name := range f.Entries(dir) {
		if text := brief(f.Text(path.Join(dir, name, file))); text != "" {
			return &text
		}
	}
	return nil
}

// brief returns a text of the firmware without padding, and nothing of one that cannot be a version.
func brief(text string) string {
	const most = 100
	if text = strings.TrimSpace(text); len(text) > most {
		return ""
	}
	return text
}

func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}
