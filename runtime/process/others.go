package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/mount"
)

const namespaces = "/run/netns"

// hideOthers leaves this thread, whose mounts are its own, nothing that has the names of other lanes: of
// cgroups it sees those of its lane only, and no network namespaces, pinned maps or groups of resctrl.
func (l Lane) hideOthers() error {
	var all []mount.Point
	if err := mount.Info(os.DirFS("/"), func(p mount.Point) { all = append(all, p) }); err != nil {
		return err
	}
	done := map[string]bool{} // one that was brought into a sysfs of its own is listed twice
	for _, p := range all {
		if done[p.Dir] || !slices.Contains([]string{"cgroup", "cgroup2", "resctrl", "bpf"}, p.Type) {
			continue
		}
		done[p.Dir] = true
		hide := func() error { return cover(p.Dir) }
		for _, own := range []string{l.Cgroup, l.Memory} {
			if strings.HasPrefix(own, p.Dir+"/") {
				hide = func() error { return unix.Mount(own, p.Dir, "", unix.MS_BIND, "") }
			}
		}
		if err := hide(); err != nil {
			return fmt.Errorf("%s without what is others': %w", p.Dir, err)
		}
	}
	// Names that come later would be in its list of mounts; on the file system of the host itself they are.
	err := unix.Mount("", "/run", "", unix.MS_PRIVATE, "")
	if err != nil && !errors.Is(err, unix.EINVAL) { // it is none of its own
		return fmt.Errorf("/run: %w", err)
	}
	for _, p := range slices.Backward(all) {
		if p.Dir != namespaces && !strings.HasPrefix(p.Dir, namespaces+"/") {
			continue
		}
		if err = unix.Unmount(p.Dir, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // it has gone
			return fmt.Errorf("%s: umount: %w", p.Dir, err)
		}
	}
	if err = cover(namespaces); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", namespaces, err)
	}
	return nil
}

// cover has an empty directory in the place of one.
func cover(dir string) error {
	const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	return unix.Mount("tmpfs", dir, "tmpfs", flags, "mode=555")
}
