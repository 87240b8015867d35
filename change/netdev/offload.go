package netdev

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// offloads sets how the kernel joins and splits frames for a new device. With gro it joins received frames;
// with wireFrames it splits segments before the device gets them.
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

// Offload sets or reads an offload of a device, as ethtool(8) does, and returns its value. command is
// ETHTOOL_SGRO, ETHTOOL_GTXCSUM or another of include/uapi/linux/ethtool.h that takes a number. With netns ""
// the device is the host's.
func Offload(netns, device string, command, number uint32) (uint32, error) {
	value := struct{ command, data uint32 }{command, number}
	err := Ethtool(netns, device, unsafe.Pointer(&value))
	return value.data, err
}

// RestartLink restarts the link negotiation of a device, as ethtool -r does. It fails with unix.EOPNOTSUPP if
// the driver cannot.
func RestartLink(netns, device string) error {
	command := uint32(unix.ETHTOOL_NWAY_RST)
	return Ethtool(netns, device, unsafe.Pointer(&command))
}

// Ethtool performs a request of include/uapi/linux/ethtool.h for a device; data begins with the command. With
// netns "" the device is the host's.
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
