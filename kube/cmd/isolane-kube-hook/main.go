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
	cpus, nodes, err := own(os.Args[2:], os.Stdin)
	if err == nil {
		err = inside(os.Args[1], cpus, nodes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "isolane-kube-hook:", err)
		tell(err)
		os.Exit(1)
	}
}

// memory is the name of the share that has the memory nodes of all containers. No container has such a name.
const memory = "Memory"

// own returns the CPUs of this container, if several share a lane, and its memory nodes, which files of older
// versions do not have. A share is container=CPUs, or CPUs for all other containers. The runtime tells in
// state which container this is (runtime-spec, State).
func own(shares []string, state io.Reader) (list, nodes string, err error) {
	const name = "io.kubernetes.cri.container-name"
	var said struct{ Annotations map[string]string }
	if of, all, _ := strings.Cut(shares[0], "="); of == memory {
		nodes, shares = all, shares[1:]
	}
	if len(shares) != 1 || strings.Contains(shares[0], "=") {
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
			return cpus, nodes, err
		}
	}
	if list == "" && err == nil {
		err = fmt.Errorf("container %s: expected one of %s", said.Annotations[name], strings.Join(shares, " "))
	}
	return list, nodes, err
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

// inside returns nil if this process, and so the container's program, can run only on the lane's CPUs and
// have memory only of its nodes. A partition needs no look of its own: without it the CPUs are others.
func inside(lane, list, nodes string) error {
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
		return outside("CPUs", allowed, lane, cpus)
	}
	if nodes == "" {
		return nil
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	return insideMemory(lane, nodes, string(status))
}

// insideMemory returns nil if a process with this status (proc_pid_status(5)) has memory only of nodes.
func insideMemory(lane, nodes, status string) error {
	_, after, _ := strings.Cut(status, "\nMems_allowed_list:")
	list, _, _ := strings.Cut(after, "\n")
	allowed, err := cpuset.Parse(strings.TrimSpace(list))
	if err != nil {
		return fmt.Errorf("/proc/self/status: Mems_allowed_list: %w", err)
	}
	of, err := cpuset.Parse(nodes)
	if err == nil && !allowed.IsSubsetOf(of) {
		err = outside("memory nodes", allowed, lane, of)
	}
	return err
}

func outside(what string, has cpuset.Set, lane string, of cpuset.Set) error {
	return fmt.Errorf("the container has %s %s, expected those of lane %s, %s: isolane-kube was not there to "+
		"bring the lane, look at its log", what, has, lane, of)
}
