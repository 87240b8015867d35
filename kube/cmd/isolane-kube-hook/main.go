// Command isolane-kube-hook stops a container that is about to start outside of its lane. It is an OCI hook:
// the container runtime runs it inside the container, just before the container's program (startContainer,
// runtime-spec).
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/cpuset"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "isolane-kube-hook: expected the name of a lane and its CPUs")
		os.Exit(2)
	}
	cpus, err := own(os.Args[2:], os.Stdin)
	if err == nil {
		err = inside(os.Args[1], cpus)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolane-kube-hook:", err)
		tell(err)
		os.Exit(1)
	}
}

// own returns the CPUs of this container, if several share a lane. A share is container=CPUs, or CPUs for all
// other containers. The runtime tells in state which container this is (runtime-spec, State).
func own(shares []string, state io.Reader) (list string, err error) {
	const name = "io.kubernetes.cri.container-name"
	var said struct{ Annotations map[string]string }
	if len(shares) > 1 || strings.Contains(shares[0], "=") {
		err = json.NewDecoder(state).Decode(&said)
		if err == nil && said.Annotations[name] == "" {
			err = fmt.Errorf("annotation %s: expected the name of the container, as containerd says it", name)
		}
	}
	for _, share := range shares {
		of, cpus, one := strings.Cut(share, "=")
		if !one {
			list = of
		} else if of == said.Annotations[name] {
			return cpus, err
		}
	}
	if list == "" && err == nil {
		err = fmt.Errorf("container %s: expected one of %s", said.Annotations[name], strings.Join(shares, " "))
	}
	return list, err
}

// tell writes the error where the kubelet looks for the last words of a container (terminationMessagePath),
// because runc does not report the output of such a hook.
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

// inside returns nil if this process, and so the container's program, can run only on the lane's CPUs.
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
