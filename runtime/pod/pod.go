package pod

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
)

// Pod is a running pod.
type Pod struct {
	Name    string
	Address netip.Addr // in the pod network
	PID     int        // of its container's first process, as this process sees it
	Group   string     // the directory of its container's cgroup, in the cpuset hierarchy
}

// status is what is read of a Pod (core/v1).
type status struct {
	Status struct {
		Phase, PodIP      string
		Reason, Message   string
		Conditions        []struct{ Type, Status, Message string }
		ContainerStatuses []struct {
			ContainerID string
			State       struct {
				Running *struct{}
				Waiting *struct{ Reason, Message string }
			}
		}
	}
}

// patience is how long a pod may take until its programs can be used. The scheduler alone may take five
// seconds to look at a claim.
const patience = 90 * time.Second

// look is how often the state of a pod is read.
const look = 200 * time.Millisecond

// Start makes a pod and waits until its programs can be used. The pod may exist even if Start fails: call
// End.
func (c Cluster) Start(ctx context.Context, root fs.FS, w Workload) (p Pod, err error) {
	p = Pod{Name: w.Name}
	text, err := c.manifest(w, time.Now())
	if err != nil {
		return p, err
	}
	if _, err = kubectl(ctx, text, "create", "--filename=-"); err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	id, err := p.running(ctx)
	if err == nil {
		err = p.prints(ctx, w.Ready)
	}
	if errors.Is(err, errEnded) {
		said, _ := kubectl(ctx, nil, "logs", p.Name) // without them the error says less
		err = fmt.Errorf("%w: %s", err, last(said))
	}
	if err != nil {
		return p, fmt.Errorf("pod %s: %w", p.Name, err)
	}
	p.PID, p.Group, err = container(root, id)
	return p, err
}

// Stop asks the container's first process to end, as Ctrl-C does, and waits until it has ended.
func (p Pod) Stop(ctx context.Context, root fs.FS, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it did not end within %s", within))
	defer cancel()
	err := syscall.Kill(p.PID, syscall.SIGINT)
	for err == nil {
		if st, serr := task.ReadStat(root, task.Dir(p.PID)); serr != nil || st.Dead() {
			return nil
		}
		err = wait(ctx)
	}
	if errors.Is(err, syscall.ESRCH) { // it had ended
		return nil
	}
	return fmt.Errorf("pod %s: %w", p.Name, err)
}

// End removes the pod, with the template of its claim, and waits until it is gone.
func (p Pod) End(ctx context.Context) error {
	_, err := kubectl(ctx, nil, "delete", "pod/"+p.Name, "resourceclaimtemplate/"+p.Name, "--ignore-not-found",
		"--wait")
	return err
}

// running waits for the container, and returns its ID. If the container does not start in time, the error has
// the pod's last event, which says why.
func (p *Pod) running(ctx context.Context) (id string, err error) {
	for {
		var now status
		if err = get(ctx, &now, "pod", p.Name); err == nil {
			id, err = p.read(now)
		}
		if id != "" || errors.Is(err, errEnded) {
			return id, err
		}
		if werr := wait(ctx); werr != nil {
			said, _ := kubectl(context.WithoutCancel(ctx), nil, "get", "events", "--sort-by=.lastTimestamp",
				"--field-selector=involvedObject.name="+p.Name, "--output=jsonpath={.items[-1:].message}")
			return "", fmt.Errorf("it does not run: %w: %s", werr, cmp.Or(string(said), fmt.Sprint(err)))
		}
	}
}

var errEnded = errors.New("it has ended")

// read returns the ID of the container if it runs.
func (p *Pod) read(now status) (id string, err error) {
	s := now.Status
	if s.Phase == "Failed" || s.Phase == "Succeeded" {
		return "", fmt.Errorf("%w: %s %s", errEnded, cmp.Or(s.Reason, s.Phase), s.Message)
	}
	if len(s.ContainerStatuses) == 0 || s.ContainerStatuses[0].State.Running == nil {
		return "", nil
	}
	if p.Address, err = netip.ParseAddr(s.PodIP); err != nil {
		return "", err
	}
	_, id, _ = strings.Cut(s.ContainerStatuses[0].ContainerID, "://")
	return id, nil
}

// prints waits until the pod has printed all of these words.
func (p *Pod) prints(ctx context.Context, words []string) error {
	for {
		said, err := kubectl(ctx, nil, "logs", p.Name)
		missing := slices.IndexFunc(words, func(w string) bool { return !bytes.Contains(said, []byte(w)) })
		if err == nil && missing < 0 {
			return nil
		}
		var now status
		if gerr := get(ctx, &now, "pod", p.Name); gerr == nil {
			if _, err = p.read(now); errors.Is(err, errEnded) {
				return err
			}
		}
		if werr := wait(ctx); werr != nil {
			return fmt.Errorf("expected it to print %q, found %q: %w", words[max(missing, 0)], last(said), werr)
		}
	}
}

// last returns the last line.
func last(said []byte) []byte {
	said = bytes.TrimSpace(said)
	return said[bytes.LastIndexByte(said, '\n')+1:]
}

func wait(ctx context.Context) error {
	t := time.NewTimer(look)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// container finds the first process of a container and its cgroup, by the ID that container runtimes put into
// the cgroup's name.
func container(root fs.FS, id string) (pid int, group string, err error) {
	mounts, err := cgroup.Mounted(root)
	if err != nil {
		return 0, "", err
	}
	top, _ := mounts.Cpuset()
	h, err := cgroup.HierarchyOf(root, top)
	if err != nil {
		return 0, "", err
	}
	pids, err := task.Processes(root)
	if err != nil {
		return 0, "", err
	}
	in := map[int]bool{}
	var members []task.Stat
	for _, pid := range pids {
		if !strings.Contains(cgroup.PathOf(root, task.Dir(pid)), id) {
			continue
		}
		if st, serr := task.ReadStat(root, task.Dir(pid)); serr == nil { // else it has ended
			in[pid], members = true, append(members, st)
		}
	}
	first := slices.IndexFunc(members, func(st task.Stat) bool { return !in[st.Parent] })
	if id == "" || first < 0 {
		return 0, "", fmt.Errorf("container %s: none of its processes is seen: expected to run on its node, in "+
			"the host's PID namespace", id)
	}
	pid = members[first].ID
	group, err = h.Of(root, task.Dir(pid))
	return pid, group, err
}
