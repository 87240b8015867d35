package hosttest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"isolane.dev/isolane/host"
)

// Large is a machine of 256 CPUs with 2,000 interrupts and 200 PCI devices, in a real directory.
func Large(tb testing.TB) fs.FS {
	tb.Helper()
	files := Machine{Packages: 2, CoresPerPackage: 64, ThreadsPerCore: 2, NodesPerPackage: 4, CoresPerL3: 8}.FS()
	put := func(name, text string) { files[name] = &fstest.MapFile{Data: []byte(text)} }
	table := bytes.NewBufferString(strings.Repeat("  CPU0", 256) + "\n")
	counts := strings.Repeat("          0", 256)
	for i := range 2000 {
		fmt.Fprintf(table, "%d:%s  PCI-MSIX-0000:%02x:00.0  %d-edge  nic-%d\n", i, counts, i%200, i, i)
		put(fmt.Sprintf("proc/irq/%d/smp_affinity_list", i), fmt.Sprint(i%256))
		put(fmt.Sprintf("proc/irq/%d/effective_affinity_list", i), fmt.Sprint(i%256))
	}
	put("proc/interrupts", table.String())
	for i := range 200 {
		for _, f := range [][2]string{{"class", "0x020000"}, {"vendor", "0x8086"}, {"device", "0x1592"},
			{"numa_node", "1"}, {"local_cpulist", "64-127"}} {
			put(fmt.Sprintf("sys/bus/pci/devices/0000:%02x:00.0/%s", i, f[0]), f[1])
		}
	}
	dir := tb.TempDir()
	if err := os.CopyFS(dir, files); err != nil {
		tb.Fatal(err)
	}
	root, err := host.Dir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return root
}
