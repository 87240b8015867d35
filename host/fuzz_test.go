package host

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// No content of a device's files causes a panic, and addresses are of existing devices.
func FuzzPCI(f *testing.F) {
	f.Add("0x020000", "-1", "ff,00000000", "0-3", "8", "2", "../0000:3b:00.1", "../../bus/pci/drivers/ice")
	f.Add("0x", "99999999999", ",", "3-1", "-8", "x", "/", "")
	f.Fuzz(func(t *testing.T, class, node, mask, list, total, num, link, driver string) {
		dir := "sys/bus/pci/devices/0000:3b:00.0/"
		files := fstest.MapFS{"sys/devices/system/cpu/online": {Data: []byte("0-3")},
			"sys/bus/pci/devices/0000:3b:00.1/class": {Data: []byte(class)},
			dir + "virtfn0":                          {Data: []byte(link), Mode: fs.ModeSymlink},
			dir + "physfn":                           {Data: []byte(link), Mode: fs.ModeSymlink},
			dir + "driver":                           {Data: []byte(driver), Mode: fs.ModeSymlink},
		}
		for name, text := range map[string]string{"class": class, "numa_node": node, "local_cpus": mask, "local_cpulist": list,
			"sriov_totalvfs": total, "sriov_numvfs": num, "net/" + strings.ReplaceAll(strings.ReplaceAll(driver, "/", "_"), ".", "_") + "x/address": ""} {
			files[dir+name] = &fstest.MapFile{Data: []byte(text)}
		}
		h, err := Read(files)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range h.PCIDevices {
			if d.SRIOV != nil && (d.SRIOV.TotalVFs < 0 || d.SRIOV.NumVFs < 0) {
				t.Errorf("%+v", d.SRIOV)
			}
			for _, vf := range d.VFs {
				if !isPCIAddress(vf) {
					t.Errorf("VF %q", vf)
				}
			}
			if d.PF != nil && !isPCIAddress(*d.PF) {
				t.Errorf("PF %q", *d.PF)
			}
		}
	})
}
