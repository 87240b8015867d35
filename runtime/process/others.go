package process

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/mount"
)

const namespaces = "/run/netns"

// hideOthers hides from this thread, which has its own mounts, everything with the names of other lanes. It
// sees only the cgroups of its lane, and no network namespaces, pinned maps or groups of resctrl.
func (l Lane) hideOthers() error {
	done := map[string]bool{} // one that was moved into the new sysfs is listed twice
	all, err := mounts(func(p mount.Point) bool {
		again := done[p.Dir]
		done[p.Dir] = true
		return !again && slices.Contains([]string{"cgroup", "cgroup2", "resctrl", "bpf"}, p.Type)
	})
	if err != nil {
		return err
	}
	for _, p := range all {
		hide := func() error { return cover(p.Dir) }
		for _, own := range []string{l.Cgroup, l.Memory} {
			if strings.HasPrefix(own, p.Dir+"/") {
				hide = func() error { return unix.Mount(own, p.Dir, "", unix.MS_BIND, "") }
			}
		}
		if err = hide(); err != nil {
			return fmt.Errorf("%s without what is others': %w", p.Dir, err)
		}
	}
	return hideNamespaces()
}

// hideNamespaces hides the names of network namespaces from this thread, in its list of mounts too.
func hideNamespaces() error {
	// Later ones would be in that list; if /run is on the host's own file system they are.
	err := unix.Mount("", "/run", "", unix.MS_PRIVATE, "")
	if err != nil && !errors.Is(err, unix.EINVAL) { // not a mount of its own
		return fmt.Errorf("/run: %w", err)
	}
	// ip-netns(8) shares the directory with /run, so each name is mounted twice, once below the directory.
	for went := true; went; {
		var all []mount.Point
		all, err = mounts(func(p mount.Point) bool {
			return p.Dir == namespaces || strings.HasPrefix(p.Dir, namespaces+"/")
		})
		if err != nil {
			return err
		}
		went = false
		for _, p := range slices.Backward(all) {
			err = unix.Unmount(p.Dir, unix.MNT_DETACH)
			if went = went || err == nil; err != nil && !errors.Is(err, unix.EINVAL) { // hidden, or it has gone
				return fmt.Errorf("%s: umount: %w", p.Dir, err)
			}
		}
	}
	if err = cover(namespaces); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", namespaces, err)
	}
	return nil
}

// mounts returns those mounts of this thread that which selects.
func mounts(which func(mount.Point) bool) (some []mount.Point, err error) {
	err = mount.OfThread(func(p mount.Point) {
		if which(p) {
			some = append(some, p)
		}
	})
	return some, err
}

// cover mounts an empty directory over dir.
func cover(dir string) error {
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return unix.Mount("tmpfs", dir, "tmpfs", flags, "mode=555")
}
