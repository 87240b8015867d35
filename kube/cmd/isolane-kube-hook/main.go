// Command isolane-kube-hook ends the start of a container that is not in its lane: an OCI hook, which the
// container runtime runs in the container in place of its program, before that (startContainer,
// runtime-spec).
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "isolane-kube-hook: expected the name of a lane and its CPUs")
		os.Exit(2)
	}
	if err := inside(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "isolane-kube-hook:", err)
		tell(err)
		os.Exit(1)
	}
}

// tell writes where the kubelet looks for the last words of a container (terminationMessagePath), because
// runc tells nobody what a hook of the container has said.
func tell(said error) {
	f, err := os.OpenFile("/dev/termination-log", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return // the pod has another path
	}
	fmt.Fprintln(f, said)
	if err = f.Close(); err != nil {
		fmt.Fprintln(os.Stderr, "isolane-kube-hook:", err)
	}
}

// inside is nil where this process, and so the container's program, can only run on the lane's CPUs.
func inside(lane, list string) error {
	cpus, err := cpuset.Parse(list)
	if err != nil {
		return err
	}
	var mask unix.CPUSet
	if err = unix.SchedGetaffinity(0, &mask); err != nil {
		return err
	}
	var has []int
	for id := range len(mask) * 64 {
		if mask.IsSet(id) {
			has = append(has, id)
		}
	}
	if allowed := cpuset.Of(has...); !allowed.IsSubsetOf(cpus) {
		return fmt.Errorf("the container has CPUs %s, expected those of lane %s, %s: isolane-kube was not there "+
			"to bring the lane, look at its log", allowed, lane, cpus)
	}
	return nil
}
