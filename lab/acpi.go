package lab

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// powerTable returns an SSDT with what QEMU's own tables lack for the processors: P-states and C-states (ACPI
// 6.5, chapter 8.4), in AML (chapter 20). The threads of a core change their frequency together.
func (m Machine) powerTable() []byte {
	// No device answers at this port: the kernel remembers what it has written there, and it has no other
	// effect.
	const port = 0x5000
	var table []byte
	for cpu := range m.CPUs() {
		var states [][]byte
		for i, mhz := range []uint32{2000, 1500, 1000} { // power in mW, latencies in µs, control and status
			states = append(states, amlNumbers(mhz, mhz, 10, 10, uint32(i), uint32(i)))
		}
		const coordinatedByAny = 0xfd
		domain := amlNumbers(5, 0, uint32(cpu/m.Threads), coordinatedByAny, uint32(m.Threads))
		table = append(table, aml(0x10, fmt.Appendf(nil, "\\\x2f\x03_SB_CPUSC%03X", cpu), // Scope (\_SB.CPUS.C000)
			amlName("_PCT", amlPackage(amlRegister(spaceIO, 16, port), amlRegister(spaceIO, 16, port))),
			amlName("_PSS", amlPackage(states...)),
			amlName("_PSD", amlPackage(domain)),
			amlName("_CST", amlPackage(amlNumber(3), idleState(1), idleState(50), idleState(200))))...)
	}
	return table
}

// idleState returns a state that halts, which is the only type of C-state in which an emulated processor
// really sleeps. Its latency in µs makes the kernel treat it as deep.
func idleState(latency uint32) []byte {
	const c1, power = 1, 100
	return amlPackage(amlRegister(spaceFixedHardware, 0, 0), amlNumber(c1), amlNumber(latency), amlNumber(power))
}

// Address spaces of registers.
const (
	spaceIO            = 1
	spaceFixedHardware = 0x7f
)

// aml returns an object with its length in the three-byte form.
func aml(op byte, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	n := len(body) + 3
	return append([]byte{op, 0x80 | byte(n&0xf), byte(n >> 4), byte(n >> 12)}, body...)
}

func amlName(name string, value []byte) []byte {
	return slices.Concat([]byte{0x08}, []byte(name), value)
}

func amlPackage(elements ...[]byte) []byte {
	count := byte(len(elements))
	return aml(0x12, []byte{count}, slices.Concat(elements...))
}

func amlNumber(n uint32) []byte { return binary.LittleEndian.AppendUint32([]byte{0x0c}, n) }

func amlNumbers(numbers ...uint32) []byte {
	var elements [][]byte
	for _, n := range numbers {
		elements = append(elements, amlNumber(n))
	}
	return amlPackage(elements...)
}

// amlRegister returns a buffer with a generic register descriptor and an end tag (chapter 6.4).
func amlRegister(space, bits byte, address uint64) []byte {
	descriptor := binary.LittleEndian.AppendUint64([]byte{0x82, 12, 0, space, bits, 0, 0}, address)
	descriptor = append(descriptor, 0x79, 0)
	return aml(0x11, amlNumber(uint32(len(descriptor))), descriptor)
}
