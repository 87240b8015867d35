package host

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

// The CPU model and the hypervisor of each architecture, as lscpu finds them.
func TestModel(t *testing.T) {
	const (
		cpuinfo = "proc/cpuinfo"
		dmi     = "sys/class/dmi/id/"
		tree    = "proc/device-tree/"
		z       = "vendor_id       : IBM/S390\n# processors    : 3\nprocessor 0: version = FF,  identification = 29AA14,  machine = 2817\n"
		power   = "processor\t: 0\ncpu\t\t: POWER9 (raw), altivec supported\nrevision\t: 2.2 (pvr 004e 1202)\n\nplatform\t: PowerNV\n"
	)
	arm := func(parts ...string) string {
		text := ""
		for _, p := range parts {
			text += "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: " + p + "\n\n"
		}
		return text
	}
	for name, c := range map[string]struct {
		files map[string]string
		model string
		guest string // null, true or false
	}{
		"x86":          {map[string]string{cpuinfo: "model name\t: AMD EPYC\nflags\t\t: fpu\n\nmodel name\t: other\n"}, "AMD EPYC", "false"},
		"x86 guest":    {map[string]string{cpuinfo: "flags\t\t: fpu hypervisor\n"}, "", "true"},
		"no cpuinfo":   {nil, "", "null"},
		"VirtualBox":   {map[string]string{cpuinfo: "flags: fpu\n", "sys/bus/pci/devices/0000:00:02.0/vendor": "0x80ee\n"}, "", "true"},
		"its old list": {map[string]string{cpuinfo: "flags: fpu\n", "proc/bus/pci/devices": "0008\t80867000\t0\n0010\t80eebeef\t12\n"}, "", "true"},
		"QEMU on Arm":  {map[string]string{cpuinfo: arm("0xd0c"), dmi + "sys_vendor": "QEMU\n"}, "Neoverse-N1", "true"},
		"cloud, metal": {map[string]string{dmi + "sys_vendor": "Amazon EC2\n", dmi + "product_name": "m7g.metal\n"}, "", "null"},
		"cloud, guest": {map[string]string{dmi + "sys_vendor": "Amazon EC2\n", dmi + "product_name": "m7g.large\n"}, "", "true"},
		"its laptop":   {map[string]string{dmi + "sys_vendor": "Microsoft Corporation\n", dmi + "product_name": "Surface\n"}, "", "null"},
		"several":      {map[string]string{cpuinfo: arm("0xd87", "0xd87", "0xd85")}, "Cortex-A725, Cortex-X925", "null"},
		"unknown part": {map[string]string{cpuinfo: arm("0xeee")}, "Arm core of implementer 0x41, part 0xeee", "null"},
		"Arm, 32 bits": {map[string]string{cpuinfo: "Processor\t: ARMv7 Processor rev 4 (v7l)\nprocessor\t: 0\n\nprocessor\t: 1\n\n" +
			"CPU implementer\t: 0x41\nCPU part\t: 0xc0f\n"}, "Cortex-A15", "null"},
		"RISC-V":         {map[string]string{cpuinfo: "processor\t: 0\nuarch\t\t: sifive,u74-mc\n", tree + "compatible": "riscv-virtio\x00"}, "sifive,u74-mc", "true"},
		"LoongArch":      {map[string]string{cpuinfo: "system type\t\t: generic\n\nprocessor\t\t: 0\nModel Name\t\t: Loongson-3A5000\n"}, "Loongson-3A5000", "null"},
		"POWER":          {map[string]string{cpuinfo: power, tree + "compatible": "8335-GTH\x00ibm,powernv\x00"}, "POWER9 (raw)", "false"},
		"POWER in KVM":   {map[string]string{tree + "compatible": "qemu,pseries\x00"}, "", "true"},
		"POWER, pHyp":    {map[string]string{tree + "ibm,partition-name": "lp1\x00", tree + "hmc-managed?": "\x00\x00\x00\x01"}, "", "true"},
		"POWER, full":    {map[string]string{tree + "ibm,partition-name": "full\x00", tree + "hmc-managed?": ""}, "", "null"},
		"s390, z/VM":     {map[string]string{cpuinfo: z, "proc/sysinfo": "Type: 2817\nVM00 Control Program: z/VM    6.1.0\n"}, "IBM z196 (2817)", "true"},
		"s390, LPAR":     {map[string]string{cpuinfo: strings.Replace(z, "2817", "9999", 1), "proc/sysinfo": "LPAR Number:  39\n"}, "IBM/S390 machine 9999", "true"},
		"the tree's own": {map[string]string{tree + "hypervisor/compatible": "linux,kvm\x00"}, "", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			files := fstest.MapFS{"sys/devices/system/cpu/online": {Data: []byte("0")}}
			for file, text := range c.files {
				files[file] = &fstest.MapFile{Data: []byte(text)}
			}
			h, err := Read(files)
			guest, _ := json.Marshal(h.Kernel.Hypervisor)
			if err != nil || h.Kernel.CPUModel != c.model || string(guest) != c.guest {
				t.Errorf("got %q, %s, %v; want %q, %s", h.Kernel.CPUModel, guest, err, c.model, c.guest)
			}
		})
	}
}

// The sources of a node's memory, and which of them counts.
func TestNodeMemory(t *testing.T) {
	for _, c := range []struct{ list, meminfo, want string }{
		{"0", "Node 0 MemTotal: 4 kB", "true 4096, 0 warnings"},
		{"", "Node 0 MemTotal: 4 kB", "true 4096, 1 warnings"},
		{"0", "Node 0 MemTotal: 0 kB", "false 0, 1 warnings"},
		{"0", "", "true null, 0 warnings"},
		{"1", "", "false 0, 0 warnings"},
		{"0", "Node 0 MemTotal: x kB", "true null, 1 warnings"}, // the warning is about the number
	} {
		files := fstest.MapFS{"sys/devices/system/cpu/online": {Data: []byte("0")}, "sys/devices/system/node/has_memory": {Data: []byte(c.list)},
			"sys/devices/system/node/node0/meminfo": {Data: []byte(c.meminfo)}}
		h, err := Read(files)
		if err != nil {
			t.Fatal(err)
		}
		var node struct {
			HasMemory   any
			MemoryBytes json.RawMessage
		}
		data, _ := json.Marshal(h.NUMANodes[0])
		if err = json.Unmarshal(data, &node); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%v %s, %d warnings", node.HasMemory, node.MemoryBytes, len(h.Warnings)); got != c.want {
			t.Errorf("list %q, meminfo %q: got %s, want %s", c.list, c.meminfo, got, c.want)
		}
	}
}

// No content of these files causes a panic, and the name is one line of bounded length.
func FuzzModel(f *testing.F) {
	f.Add("CPU implementer : 0x41\nCPU part : 0xd0c\n", "LPAR Number: 1\n", "ibm,powernv\x00qemu", "QEMU", "0010 80eebeef\n")
	f.Add("processor 0: version = 00, machine = 2964\nvendor_id : IBM/S390", "VM", "\x00\x00", "Amazon EC2", "\n")
	f.Add("CPU part : 0x10000\nCPU part:\nflags:\n\nuarch : x", "", "", "", "")
	f.Fuzz(func(t *testing.T, cpuinfo, sysinfo, compatible, vendor, pci string) {
		files := fstest.MapFS{}
		for path, text := range map[string]string{"sys/devices/system/cpu/online": "0", "proc/cpuinfo": cpuinfo, "proc/sysinfo": sysinfo,
			"proc/device-tree/compatible": compatible, "proc/device-tree/ibm,partition-name": vendor, "proc/device-tree/hmc-managed?": pci,
			"sys/class/dmi/id/sys_vendor": vendor, "sys/class/dmi/id/product_name": sysinfo, "proc/bus/pci/devices": pci} {
			files[path] = &fstest.MapFile{Data: []byte(text), Mode: fs.FileMode(0o444)}
		}
		h, err := Read(files)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(h.Kernel.CPUModel, "\n") || len(h.Kernel.CPUModel) > maxModel {
			t.Errorf("model %q", h.Kernel.CPUModel)
		}
	})
}
