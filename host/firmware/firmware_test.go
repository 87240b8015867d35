package firmware_test

import (
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/host/firmware"
)

// machine returns a machine with these files, and the names of those that are read.
func machine(all map[string]string) (firmware.Files, *[]string) {
	f, read := fstest.MapFS{}, new([]string)
	for name, text := range all {
		f[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return firmware.Files{Text: func(name string) string {
		*read = append(*read, path.Base(name))
		data, _ := f.ReadFile(name)
		return string(data)
	}, Entries: func(dir string) (names []string) {
		entries, _ := f.ReadDir(dir)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}}, read
}

// The board says its firmware, and nothing that identifies the machine is read.
func TestBoard(t *testing.T) {
	const id = "sys/class/dmi/id/"
	f, read := machine(map[string]string{id + "bios_version": "1.15.2\n", id + "bios_date": " 09/10/2024 \n",
		id + "bios_vendor": strings.Repeat("x", 101), id + "product_serial": "S3CR3T\n", id + "product_uuid": "S3CR3T\n"})
	want := &firmware.Board{Version: new("1.15.2"), Date: new("09/10/2024")}
	if diff := cmp.Diff(want, firmware.OfBoard(f)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"bios_vendor", "bios_version", "bios_date"}, *read); diff != "" {
		t.Error("what was read:", diff)
	}
	if none, _ := machine(nil); firmware.OfBoard(none) != nil {
		t.Error("a machine without SMBIOS has firmware of a board")
	}
}

func TestDevice(t *testing.T) {
	const dir = "sys/bus/pci/devices/0000:01:00.0"
	for kind, c := range map[string]struct{ file, text, want string }{
		"storage":     {"/nvme/nvme0/firmware_rev", "GDC5602Q\n", "GDC5602Q"},
		"network":     {"/infiniband/mlx5_0/fw_ver", "22.36.1010\n", "22.36.1010"},
		"gpu":         {"/vbios_version", "113-D4300100-051\n", "113-D4300100-051"},
		"accelerator": {"/ve/ve0/fw_version", "5399\n", "5399"},
		"bridge":      {"/nvme/nvme0/firmware_rev", "GDC5602Q\n", ""},
	} {
		f, _ := machine(map[string]string{dir + c.file: c.text})
		got := firmware.OfDevice(f, dir, kind, nil)
		if (got == nil) != (c.want == "") || got != nil && *got != c.want {
			t.Errorf("%s: got %v, want %q", kind, got, c.want)
		}
	}
}

// A snapshot has what the driver of a network card said. Nobody says anything of an interface that is not there.
func TestNetwork(t *testing.T) {
	f, _ := machine(map[string]string{"ethtool/firmware/eth0": "8.30 0x8000a4d2 1.2926.0"})
	got := firmware.OfDevice(f, "sys/bus/pci/devices/0000:01:00.0", "network", []string{"eth0", "eth1"})
	if got == nil || *got != "8.30 0x8000a4d2 1.2926.0" {
		t.Errorf("got %v", got)
	}
	if fd, err := firmware.Ask("ethtool/firmware/no-such-device"); err == nil || fd != -1 {
		t.Errorf("got %d, %v", fd, err)
	}
}
