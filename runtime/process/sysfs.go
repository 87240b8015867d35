package process

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/mount"
)

const sysfs = "/sys"

// ownSysfs mounts a sysfs that shows the devices of this thread's network namespace, because sysfs shows
// those of the namespace that mounted it. As ip-netns(8) does, it uses a mount namespace that gets the host's
// mounts and passes none to it. File systems mounted within sysfs stay.
func ownSysfs() error {
	var inside []string
	err := mount.Info(os.DirFS("/"), func(p mount.Point) {
		if strings.HasPrefix(p.Dir, sysfs+"/") {
			inside = append(inside, p.Dir)
		}
	})
	if err != nil {
		return err
	}
	var stat unix.Statfs_t
	if err = unix.Statfs(sysfs, &stat); err != nil {
		return fmt.Errorf("%s: %w", sysfs, err)
	}
	flags := unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | uintptr(stat.Flags)&unix.MS_RDONLY // as ST_RDONLY
	if err = unix.Unshare(unix.CLONE_NEWNS); err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	}
	if err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	slices.Sort(inside)
	trees := map[string]int{}
	for _, dir := range inside {
		comesWith := func(other string) bool { return strings.HasPrefix(dir+"/", other+"/") }
		if slices.ContainsFunc(slices.Collect(maps.Keys(trees)), comesWith) {
			continue
		}
		if trees[dir], err = unix.OpenTree(unix.AT_FDCWD, dir,
			unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE); err != nil {
			return fmt.Errorf("%s: open_tree: %w", dir, err)
		}
	}
	if err = unix.Mount("sysfs", sysfs, "sysfs", flags, ""); err != nil {
		return fmt.Errorf("%s: %w", sysfs, err)
	}
	for dir, tree := range trees {
		if err = unix.MoveMount(tree, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return fmt.Errorf("%s: move_mount: %w", dir, err)
		}
		if err = unix.Close(tree); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}
