// Package firmware says which firmware a machine has: that of its board, and that of its cards, as far as the
// kernel shows it. It reads no serial numbers and no UUIDs.
package firmware

import (
	"errors"
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
// if the kernel does not show it. kind and netdevs are those of host.PCIDevice.
func OfDevice(f Files, dir, kind string, netdevs []string) *string {
	switch kind {
	case "storage": // Documentation/ABI/testing/sysfs-nvme
		return below(f, dir+"/nvme", "firmware_rev")
	case "network": // Documentation/ABI/stable/sysfs-class-infiniband
		of := below(f, dir+"/infiniband", "fw_ver")
		if of == nil && len(netdevs) > 0 {
			of = orNil(brief(f.Text(asked + netdevs[0])))
		}
		return of
	case "gpu": // Documentation/gpu/amdgpu/driver-misc.rst
		return orNil(brief(f.Text(dir + "/vbios_version")))
	case "accelerator":
		return below(f, dir+"/ve", "fw_version") // a vector engine of NEC
	}
	return nil
}

// asked is a directory that only a snapshot has: a file for each network interface whose driver said its
// firmware. No file of a running machine has it, so there it is asked for.
const asked = "ethtool/firmware/"

// IsAsked reports whether Ask says what is in a file of that name.
func IsAsked(name string) bool { return strings.HasPrefix(name, asked) }

// Ask asks the driver of a network interface of this machine, as ethtool -i does. It returns a descriptor to
// read what the file of that name in a snapshot would have, nothing if the driver does not say.
func Ask(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, strings.TrimPrefix(name, asked))
	if err != nil {
		return -1, err
	}
	text := unix.ByteSliceToString(info.Fw_version[:])
	if text == "N/A" { // of drivers that have none to say
		text = ""
	}
	answer, err := unix.MemfdCreate("firmware", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	if _, err = unix.Pwrite(answer, []byte(text), 0); err != nil {
		return -1, errors.Join(err, unix.Close(answer))
	}
	return answer, nil
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
