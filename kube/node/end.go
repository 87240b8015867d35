package node

import (
	"context"
	"errors"
	"os"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/host/cgroup"
)

// undone is why attaching a lane to a container's cgroup failed and was undone there.
type undone struct {
	error

	group string
}

func (u undone) Unwrap() error { return u.error }

// end kills the processes in a container's cgroup, wherever the kubelet's cgroups are.
func end(ctx context.Context, group string) error {
	root := os.DirFS("/")
	mounts, err := cgroup.Mounted(root)
	if err != nil {
		return err
	}
	top, _ := mounts.Cpuset()
	all, err := cgroup.Tree(root, top)
	for _, dir := range all {
		if strings.Contains(dir+"/", "/"+group+"/") {
			err = errors.Join(err, change.EndProcesses(ctx, dir))
		}
	}
	return err
}
