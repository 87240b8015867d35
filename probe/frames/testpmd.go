package frames

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// program is DPDK's forwarder.
const program = "dpdk-testpmd"

// testpmdReady is what testpmd prints with its statistics. The first ones come when it forwards.
const testpmdReady = "Port statistics"

// become replaces this process by testpmd, on the same CPUs and with the socket that keeps the kernel's stack
// quiet.
func become(l local, socket string) error {
	name, err := exec.LookPath(program)
	if err != nil {
		return fmt.Errorf("forwarder: testpmd: %s is not installed: apt-get install dpdk-dev", program)
	}
	var mine unix.CPUSet
	if err = unix.SchedGetaffinity(0, &mine); err != nil {
		return fmt.Errorf("CPUs of this process: %w", err)
	}
	if _, err = unix.FcntlInt(uintptr(l.socket), unix.F_SETFD, 0); err != nil { // the socket stays open
		return err
	}
	return unix.Exec(name, testpmdArgs(l.device.Name, socket, mine), os.Environ())
}

// testpmdArgs returns a command line that forwards and swaps the addresses of Ethernet, IPv4 and UDP. It
// needs no hugepages, and no files that a second testpmd would find. Its two threads may use all CPUs: the
// first sleeps between its statistics.
func testpmdArgs(device, socket string, cpus unix.CPUSet) []string {
	var list []string
	for c := range len(cpus) * 64 {
		if cpus.IsSet(c) {
			list = append(list, strconv.Itoa(c))
		}
	}
	vdev := "net_af_xdp0,iface=" + device
	if socket == packets {
		vdev = "net_af_packet0,iface=" + device
	}
	return []string{program, "--lcores", "(0-1)@(" + strings.Join(list, ",") + ")", "--no-huge", "--no-shconf",
		"-m", "128", "--no-pci", "--no-telemetry", "--vdev", vdev, "--", "--forward-mode=5tswap", "--auto-start",
		"--stats-period=3600", "--total-num-mbufs=16384"}
}
