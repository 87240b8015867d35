package host

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxModel bounds the name of a CPU in bytes: a broken file must not fill a page.
const maxModel = 400

// cpuinfo reads /proc/cpuinfo (proc_cpuinfo(5)). On x86 the first CPU is enough. Elsewhere the CPUs differ,
// or the name is at the end.
func (r *reader) cpuinfo(k *Kernel) {
	first := map[string]string{} // value of each key
	var parts []string           // of Arm: each kind of core once
	r.lines("proc/cpuinfo", func(line string) bool {
		key, value, _ := strings.Cut(line, ":")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch _, seen := first[key]; {
		case key == "":
			_, x86 := first["flags"]
			return !x86
		case key == "CPU part":
			if name := armPart(first["CPU implementer"], value); !slices.Contains(parts, name) {
				parts = append(parts, name)
			}
		case strings.HasPrefix(key, "processor ") && first["machine"] == "":
			_, first["machine"], _ = strings.Cut(value, "machine = ") // s390: "version = 00,  …,  machine = 2964"
		case key == "CPU implementer", !seen: // the implementer precedes the part
			first[key] = value
		}
		return true
	})
	if k.CPUModel = model(first, parts); len(k.CPUModel) > maxModel {
		r.warn("/proc/cpuinfo: the name of the CPU is left out: longer than %d bytes", maxModel)
		k.CPUModel = ""
	}
	k.Microcode = first["microcode"]
	if flags, x86 := first["flags"]; x86 {
		k.Flags = strings.Fields(flags)
	}
}

// model returns the name of the CPU from /proc/cpuinfo. Each architecture has its own key: x86 and ia64
// "model name", LoongArch "Model Name", POWER "cpu", RISC-V "uarch", MIPS "cpu model". Arm has numbers
// (32-bit Arm also "model name" or "Processor", which many share), s390 the number of the machine.
func model(first map[string]string, parts []string) string {
	if len(parts) > 0 {
		return strings.Join(parts, ", ")
	}
	for _, key := range []string{"model name", "Model Name", "cpu model", "uarch", "Processor"} {
		if first[key] != "" {
			return first[key]
		}
	}
	if power, _, _ := strings.Cut(first["cpu"], ", "); power != "" { // "POWER9 (raw), altivec supported"
		return power
	}
	if first["vendor_id"] == "IBM/S390" && first["machine"] != "" {
		return zMachine(first["machine"])
	}
	return ""
}

// armPart names a core by its implementer and part number, as the kernel does
// (arch/arm64/include/asm/cputype.h, arch/arm/include/asm/cputype.h).
func armPart(implementer, part string) string {
	by, err := strconv.ParseUint(implementer, 0, 8)
	number, err2 := strconv.ParseUint(part, 0, 12)
	if name := armParts()[by<<12|number]; err == nil && err2 == nil && name != "" {
		return name
	}
	return fmt.Sprintf("Arm core of implementer %.20s, part %.20s", implementer, part)
}

func armParts() map[uint64]string {
	return map[uint64]string{
		0x41b76: "ARM1176", 0x41c05: "Cortex-A5", 0x41c07: "Cortex-A7", 0x41c08: "Cortex-A8",
		0x41c09: "Cortex-A9", 0x41c0d: "Cortex-A12", 0x41c0e: "Cortex-A17", 0x41c0f: "Cortex-A15",
		0x41d01: "Cortex-A32", 0x41d03: "Cortex-A53", 0x41d04: "Cortex-A35", 0x41d05: "Cortex-A55",
		0x41d06: "Cortex-A65", 0x41d07: "Cortex-A57", 0x41d08: "Cortex-A72", 0x41d09: "Cortex-A73",
		0x41d0a: "Cortex-A75", 0x41d0b: "Cortex-A76", 0x41d0c: "Neoverse-N1", 0x41d0d: "Cortex-A77",
		0x41d0e: "Cortex-A76AE", 0x41d15: "Cortex-R82", 0x41d40: "Neoverse-V1", 0x41d41: "Cortex-A78",
		0x41d42: "Cortex-A78AE", 0x41d43: "Cortex-A65AE", 0x41d44: "Cortex-X1", 0x41d46: "Cortex-A510",
		0x41d47: "Cortex-A710", 0x41d48: "Cortex-X2", 0x41d49: "Neoverse-N2", 0x41d4a: "Neoverse-E1",
		0x41d4b: "Cortex-A78C", 0x41d4c: "Cortex-X1C", 0x41d4d: "Cortex-A715", 0x41d4e: "Cortex-X3",
		0x41d4f: "Neoverse-V2", 0x41d80: "Cortex-A520", 0x41d81: "Cortex-A720", 0x41d82: "Cortex-X4",
		0x41d83: "Neoverse-V3AE", 0x41d84: "Neoverse-V3", 0x41d85: "Cortex-X925", 0x41d87: "Cortex-A725",
		0x41d8e: "Neoverse-N3", 0x42516: "ThunderX2", 0x43_0a1: "ThunderX", 0x43_0af: "ThunderX2",
		0x43_0b1: "OcteonTX2", 0x46_001: "A64FX", 0x46_003: "MONAKA", 0x48d01: "Kunpeng-920",
		0x48d02: "Kunpeng-920", 0x48d06: "Kunpeng-950", 0x4e_003: "Denver 2", 0x4e_004: "Carmel",
		0x4e_010: "Olympus", 0x50_000: "X-Gene", 0x51_001: "Oryon", 0x51c00: "Falkor",
		0x6dd49: "Azure Cobalt 100", 0x70_662: "FTC662", 0x70_663: "FTC663", 0x70_862: "FTC862",
		0xc0ac3: "Ampere-1", 0xc0ac4: "Ampere-1A", 0x61_022: "Apple M1 Icestorm", 0x61_023: "Apple M1 Firestorm",
		0x61_032: "Apple M2 Blizzard", 0x61_033: "Apple M2 Avalanche",
	}
}

// zMachine names a mainframe by its number (arch/s390/Kconfig, "Processor type").
func zMachine(number string) string {
	name := map[string]string{
		"2064": "z900", "2066": "z800", "2084": "z990", "2086": "z890", "2094": "z9 EC", "2096": "z9 BC",
		"2097": "z10 EC", "2098": "z10 BC", "2817": "z196", "2818": "z114", "2827": "zEC12", "2828": "zBC12",
		"2964": "z13", "2965": "z13s", "3906": "z14", "3907": "z14 ZR1", "8561": "z15 T01", "8562": "z15 T02",
		"3931": "z16 A01", "3932": "z16 A02", "9175": "z17", "9176": "z17",
	}[number]
	if name == "" {
		return "IBM/S390 machine " + number
	}
	return fmt.Sprintf("IBM %s (%s)", name, number)
}
