package host

import (
	"io/fs"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
)

// A thread's name may hold anything; a line that makes sense gives what it says.
func FuzzTask(f *testing.F) {
	const status = "Name:\tvrouter\nCpus_allowed_list:\t2-3\nMems_allowed_list:\t0\nVmLck:\t 12 kB\n"
	const stat = "900 (a) b) R 1 1 1 0 -1 2129984 1 1 1 1 1 1 1 1 20 0 1 0 1 1 1 1 1 1 1 1 1 1 1 1 1 1 0 0 17 2 50 1 0 0 0"
	if got, ok := parseTask(task.Status(status), stat); !ok || got.Processor != 2 || got.Policy != "fifo" || got.Priority != 50 || !got.Kernel ||
		got.Allowed != cpuset.MustParse("2-3") || got.Locked != 12<<10 || got.Nodes != cpuset.Of(0) {
		f.Errorf("got %+v, %v", got, ok)
	}
	f.Add(status, stat)
	f.Add("Cpus_allowed_list: 3-1", "1 ()")
	f.Fuzz(func(t *testing.T, status, stat string) {
		if got, ok := parseTask(task.Status(status), stat); ok && !strings.Contains(stat, strconv.Itoa(got.Processor)) {
			t.Errorf("%q: %+v", stat, got)
		}
	})
}

func TestPages(t *testing.T) {
	got := parsePages("55d0 default file=/bin/N7=9 anon=5 N0=5 N1=3 kernelpagesize_kB=4\n7f00 bind:1 N1=2 kernelpagesize_kB=2048\n\n7f N=1 N0=x\n")
	if diff := cmp.Diff(map[int]uint64{0: 5 << 12, 1: 3<<12 + 2<<21}, got); diff != "" {
		t.Error(diff)
	}
}

// Whatever is in the files of a device: no panic, and addresses of devices that are there.
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
