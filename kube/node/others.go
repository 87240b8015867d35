package node

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
)

// findOtherDriver finds another driver of dynamic resource allocation that gives CPUs to containers
// (kubernetes-sigs/dra-driver-cpu), by the sockets on which the kubelet calls it.
func (n *Node) findOtherDriver() string {
	sockets, _ := filepath.Glob(filepath.Join(n.Kubelet, "plugins", "dra.cpu", "dra*.sock"))
	for _, s := range sockets {
		if c, err := net.DialTimeout("unix", s, time.Second); err == nil { // else the socket was left behind
			_ = c.Close()
			return fmt.Sprintf("%s: the driver dra.cpu gives CPUs to containers too: no lanes are offered: keep "+
				"one of both from this node", s)
		}
	}
	return ""
}

// policyPrefix begins the names of the programs of nri-plugins that set the CPUs of containers (balloons,
// topology-aware). The runtime tells plugins what containers run, but not which other plugins there are.
const policyPrefix = "nri-resource-policy-"

// findOtherPlugin returns why another plugin of the container runtime keeps lanes away: it runs in a
// container, or has set the CPUs of one. The order is fixed, because a change is an event: plugins first,
// then by id.
func (n *Node) findOtherPlugin() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	first := ""
	for _, id := range slices.Sorted(maps.Keys(n.cpuSetters)) {
		why := n.cpuSetters[id]
		if first == "" || strings.Contains(why, policyPrefix) && !strings.Contains(first, policyPrefix) {
			first = why
		}
	}
	return first
}

// recordOtherPlugin records a container that starts or runs, if it is such a plugin or if one has set its
// CPUs. ours says that this program has set them. The kubelet sets none without its CPU manager.
func (r *runtime) recordOtherPlugin(pod *api.PodSandbox, c *api.Container, ours bool) {
	why, cpus := "", c.GetLinux().GetResources().GetCpu().GetCpus()
	if len(c.Args) > 0 && strings.HasPrefix(path.Base(c.Args[0]), policyPrefix) && r.hasNRISocket(c) {
		why = fmt.Sprintf("container %s/%s: %s gives CPUs to containers too: no lanes are offered: keep one of "+
			"both from this node", podName(pod), c.Name, path.Base(c.Args[0]))
	} else if cpus != "" && !ours {
		why = fmt.Sprintf("container %s/%s: another plugin of the container runtime has set its CPUs (%s): no "+
			"lanes are offered: keep that from this node, and delete the pods whose CPUs it has set",
			podName(pod), c.Name, cpus)
	}
	if why != "" {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cpuSetters[c.Id] = why
		r.wakeWatch()
	}
}

// hasNRISocket reports whether a container has the runtime's socket for plugins. Without it, it has only the
// name of a plugin.
func (r *runtime) hasNRISocket(c *api.Container) bool {
	socket := strings.TrimPrefix(r.NRI, "/var")
	return slices.ContainsFunc(c.Mounts, func(m *api.Mount) bool {
		from := strings.TrimSuffix(strings.TrimPrefix(m.Source, "/var"), "/")
		return from == socket || strings.HasPrefix(socket, from+"/")
	})
}

// StopContainer forgets a container, also one that has ended by itself.
func (r *runtime) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (
	[]*api.ContainerUpdate, error,
) {
	return nil, r.RemoveContainer(ctx, pod, c)
}

// RemoveContainer forgets a container that has never run.
func (r *runtime) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.untouched, c.Id)
	delete(r.keptOff, c.Id)
	if _, is := r.cpuSetters[c.Id]; is {
		delete(r.cpuSetters, c.Id)
		r.wakeWatch()
	}
	return nil
}
