package netdev

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offloads sets what a new device does for the stack: gro has it join frames, and with wireFrames the kernel
// cuts segments before it hands them over.
func offloads(netns, device string, gro, wireFrames bool) error {
	if gro {
		if _, err := Offload(netns, device, unix.ETHTOOL_SGRO, 1); err != nil {
			return fmt.Errorf("generic receive offload: %w", err)
		}
	}
	if wireFrames {
		if _, err := Offload(netns, device, unix.ETHTOOL_STSO, 0); err != nil {
			return fmt.Errorf("segmentation offload: %w", err)
		}
	}
	return nil
}

// Offload sets or reads what a device does for the stack, as ethtool(8) does, and returns the value: command
// is ETHTOOL_SGRO, ETHTOOL_GTXCSUM or another of include/uapi/linux/ethtool.h that takes a number. The device
// is in a namespace, with "" in the host's.
func Offload(netns, device string, command, number uint32) (uint32, error) {
	value := struct{ command, data uint32 }{command, number}
	err := Ethtool(netns, device, unsafe.Pointer(&value))
	return value.data, err
}

// RestartLink has a device begin its link anew, as ethtool(8) with -r does. It is unix.EOPNOTSUPP where its
// driver does not.
func RestartLink(netns, device string) error {
	command := uint32(unix.ETHTOOL_NWAY_RST)
	return Ethtool(netns, device, unsafe.Pointer(&command))
}

// Ethtool does a request of include/uapi/linux/ethtool.h, which begins with its command, for a device of a
// namespace, or of the host for "".
func Ethtool(netns, device string, data unsafe.Pointer) error {
	do := func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		request := struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}{data: data}
		copy(request.name[:unix.IFNAMSIZ-1], device)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
			uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			return errno
		}
		return nil
	}
	if netns == "" {
		return do()
	}
	return In(netns, do)
}
