package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/host/cgroup"
)

// undone is why a lane did not come to a container's cgroup, and was taken back there.
type undone struct {
	error

	group string
}

func (u undone) Unwrap() error { return u.error }

// end kills what is in a container's cgroup, which is below whatever the kubelet's are in, until nothing is.
func end(group string) error {
	root := os.DirFS("/")
	mounts, err := cgroup.Mounted(root)
	if err != nil {
		return err
	}
	top, _ := mounts.Cpuset()
	all, err := cgroup.Tree(root, top)
	for _, dir := range all {
		if strings.HasSuffix(dir, "/"+group) {
			err = errors.Join(err, endIn(root, dir))
		}
	}
	return err
}

func endIn(root fs.FS, dir string) error {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for tries := 100; ; tries-- {
		pids, err := cgroup.Processes(root, dir)
		if err != nil || len(pids) == 0 {
			return err
		}
		if tries == 0 {
			return fmt.Errorf("%s: expected no process, found %d after they were killed", dir, len(pids))
		}
		for _, pid := range pids {
			if err = unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		<-again.C
	}
}
