package journal

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// unix.CPUSet ends at 1024 CPUs; the kernel takes any length (sched_setaffinity(2)).

func schedGetaffinity(tid int, mask []byte) (int, error) {
	n, _, errno := unix.Syscall(unix.SYS_SCHED_GETAFFINITY, uintptr(tid), uintptr(len(mask)),
		uintptr(unsafe.Pointer(&mask[0])))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func schedSetaffinity(tid int, mask []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_SCHED_SETAFFINITY, uintptr(tid), uintptr(len(mask)),
		uintptr(unsafe.Pointer(&mask[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
