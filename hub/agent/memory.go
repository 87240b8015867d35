package agent

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// shrink gives back the memory that a talk has needed: there may be none for half an hour.
func shrink(context.Context) error {
	debug.FreeOSMemory()
	return unmap()
}

// unmap takes the pages of this program's file out of its memory: it begins with most of them, and needs few
// of them again. The kernel keeps them for as long as it has room, and maps them again where they are needed.
func unmap() error {
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	own, err := os.Executable()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var from, to uintptr
		var rights string
		if _, err = fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &rights); err != nil {
			return err
		}
		if !strings.HasSuffix(lines.Text(), " "+own) || strings.Contains(rights, "w") { // its own data
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return lines.Err()
}
