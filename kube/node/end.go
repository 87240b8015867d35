package node

import (
	"context"
	"errors"
	"os"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/host/cgroup"
)

// undoneError is why attaching a lane to a container's cgroup failed and was undone there.
type undoneError struct {
	error

	group string
}

func (u undoneError) Unwrap() error { return u.error }

// killCgroup kills the processes in a container's cgroup, wherever the kubelet's cgroups are.
func killCgroup(ctx context.Context, group string) error {
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
