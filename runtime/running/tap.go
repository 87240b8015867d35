package running

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Tap returns the name of the tap device of this process's network namespace that a virtual machine has open
// (tun(4)). Of several it is the one of the network card with the address mac: libvirt gives the tap that
// address with fe in front.
func Tap(threads []Thread, mac string) (string, error) {
	var taps []net.Interface
	for _, t := range threads {
		if t.TID != t.PID {
			continue
		}
		more, err := tapsOf(t.PID)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // it has ended
			return "", err
		}
		taps = append(taps, more...)
	}
	if len(taps) > 1 {
		taps = slices.DeleteFunc(taps, func(i net.Interface) bool { return i.HardwareAddr.String()[2:] != mac[2:] })
	}
	if len(taps) != 1 {
		return "", fmt.Errorf("expected a virtual machine with one tap on the host or, of several, one for a "+
			"network card with the address %s (isolane cores prints it)", mac)
	}
	return taps[0].Name, nil
}

// tapsOf finds taps by copies of the descriptors of a process (pidfd_getfd(2), Linux 5.6).
func tapsOf(pid int) ([]net.Interface, error) {
	ours, err := os.Stat("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(process)
	var taps []net.Interface
	for _, e := range all {
		number, nerr := strconv.Atoi(e.Name())
		file, lerr := os.Readlink(dir + "/" + e.Name())
		if nerr != nil || lerr != nil || !strings.HasSuffix(file, "/net/tun") { // or closed meanwhile
			continue
		}
		name, terr := deviceBehind(process, number, ours)
		if terr != nil {
			return nil, fmt.Errorf("%s/%d: %w", dir, number, terr)
		}
		device, derr := net.InterfaceByName(name)
		if derr == nil && len(device.HardwareAddr) > 0 { // a tun has none
			taps = append(taps, *device)
		}
	}
	return taps, nil
}

// getDevNetns is TUNGETDEVNETNS (include/uapi/linux/if_tun.h), _IO('T', 227): it returns a descriptor of the
// network namespace of the device.
const getDevNetns = 'T'<<8 | 227

// deviceBehind returns the name of the device behind a descriptor of a process, or "" if it has none or is in
// another network namespace than ours.
func deviceBehind(process, number int, ours os.FileInfo) (string, error) {
	fd, err := unix.PidfdGetfd(process, number, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("any")
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.TUNGETIFF, request)
	}
	if errors.Is(err, unix.EBADFD) { // no device yet
		return "", nil
	}
	if err != nil {
		return "", err
	}
	ns, err := unix.IoctlRetInt(fd, getDevNetns)
	if err != nil {
		return "", err
	}
	file := os.NewFile(uintptr(ns), "namespace")
	defer file.Close()
	of, err := file.Stat()
	if err != nil || !os.SameFile(of, ours) {
		return "", err
	}
	return request.Name(), nil
}
