// Package pod runs programs of this host in pods of its node, for a scenario, by kubectl. Its caller must run
// on that node, in the host's namespaces, with a kubeconfig that may read nodes and make pods.
//
// A pod's root is an image that the node already has, with the host's own programs and libraries mounted over
// it, read-only. So nothing is pulled, and the measured program is the same as outside.
package pod

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"isolane.dev/isolane/journal"
)

// Kubectl is the program that is called. It finds the cluster by the environment, as usual.
const Kubectl = "kubectl"

// Cluster is a cluster, and the node of it that this process is on.
type Cluster struct {
	Node    string
	Version string // of its kubelet
	// Image is the smallest image that the node has. Only its root folder is used.
	Image string
}

// node is what is read of a Node (core/v1).
type node struct {
	Metadata struct{ Name string }
	Status   struct {
		NodeInfo  struct{ BootID, KubeletVersion string }
		Images    []image
		Addresses []struct{ Address string }
	}
}

type image struct {
	Names     []string
	SizeBytes int64
}

// Find finds the node by the kernel that its kubelet reports, and removes pods that a killed caller has left
// there. If static names a static node, it finds that too: another node on this kernel, as with nodes that
// are containers, whose kubelet assigns CPUs itself (policy static).
func Find(ctx context.Context, static string) (c Cluster, of *Cluster, err error) {
	var all struct{ Items []node }
	if err = get(ctx, &all, "nodes"); err != nil {
		return c, nil, err
	}
	boot, err := journal.BootID()
	if err != nil {
		return c, nil, err
	}
	if static != "" {
		if of, err = findStatic(ctx, &all.Items, static, boot); err != nil {
			return c, nil, fmt.Errorf("node %s: %w", static, err)
		}
	}
	name, err := os.Hostname()
	if err != nil {
		return c, nil, err
	}
	n, err := here(all.Items, boot, strings.ToLower(name))
	if err == nil && static != "" {
		err = n.outside()
	}
	if err == nil {
		c, err = n.take(ctx)
	}
	return c, of, err
}

// findStatic removes the static node from all and returns it.
func findStatic(ctx context.Context, all *[]node, name, boot string) (*Cluster, error) {
	i := slices.IndexFunc(*all, func(n node) bool {
		return n.Metadata.Name == name && n.Status.NodeInfo.BootID == boot
	})
	if i < 0 {
		return nil, errors.New("expected a second node of this machine, with its boot_id")
	}
	var z struct {
		KubeletConfig struct{ CPUManagerPolicy string }
	}
	out, err := kubectl(ctx, nil, "get", "--raw=/api/v1/nodes/"+name+"/proxy/configz")
	if err == nil {
		err = json.Unmarshal(out, &z)
	}
	if err != nil {
		return nil, err
	}
	if policy := z.KubeletConfig.CPUManagerPolicy; policy != "static" {
		return nil, fmt.Errorf("its kubelet has the CPU manager policy %q: expected static", policy)
	}
	n := (*all)[i]
	*all = slices.Delete(*all, i, i+1)
	if err = n.outside(); err != nil {
		return nil, err
	}
	c, err := n.take(ctx)
	return &c, err
}

// outside returns an error if this process is in the node's network, which has a shorter way to its own pods
// than to those of another node.
func (n node) outside() error {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range own {
		for _, b := range n.Status.Addresses {
			if text, _, _ := strings.Cut(a.String(), "/"); text == b.Address {
				return fmt.Errorf("node %s: its address %s is here: expected to be outside of both nodes' networks, so "+
					"that the way to their pods is alike", n.Metadata.Name, text)
			}
		}
	}
	return nil
}

// take makes the node ready for pods.
func (n node) take(ctx context.Context) (c Cluster, err error) {
	c = Cluster{Node: n.Metadata.Name, Version: n.Status.NodeInfo.KubeletVersion, Image: n.smallest()}
	if c.Image == "" {
		return c, fmt.Errorf("node %s: its status names no image: expected one that it has", c.Node)
	}
	_, err = kubectl(ctx, nil, "delete", "pods,resourceclaimtemplates", "--selector="+label+"="+c.Node, "--wait")
	return c, err
}

// here returns the node on this kernel: if there are several, as in tests, the one of this name.
func here(all []node, boot, name string) (node, error) {
	all = slices.DeleteFunc(slices.Clone(all), func(n node) bool { return n.Status.NodeInfo.BootID != boot })
	named := slices.IndexFunc(all, func(n node) bool { return n.Metadata.Name == name })
	switch {
	case named >= 0:
		return all[named], nil
	case len(all) == 1:
		return all[0], nil
	}
	return node{}, fmt.Errorf("%s get nodes: expected this machine, %s, once: %d nodes have its boot_id",
		Kubectl, name, len(all))
}

// smallest returns the name of the smallest image, with its tag if it has one.
func (n node) smallest() string {
	named := slices.DeleteFunc(slices.Clone(n.Status.Images), func(i image) bool { return len(i.Names) == 0 })
	if len(named) == 0 {
		return ""
	}
	names := slices.MinFunc(named, func(a, b image) int { return cmp.Compare(a.SizeBytes, b.SizeBytes) }).Names
	tagged := slices.IndexFunc(names, func(name string) bool { return !strings.Contains(name, "@") })
	return names[max(tagged, 0)]
}

// get reads objects of the API.
func get(ctx context.Context, into any, what ...string) error {
	out, err := kubectl(ctx, nil, append([]string{"get", "--output=json"}, what...)...)
	if err == nil {
		err = json.Unmarshal(out, into)
	}
	return err
}

// logged matches lines that kubectl's libraries log, in addition to its own messages.
var logged = regexp.MustCompile(`(?m)^[IWEF]\d{4} .*\n`)

// kubectl runs kubectl, which ends with this process.
func kubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, Kubectl, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stdin = bytes.NewReader(stdin)
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(logged.ReplaceAll(exit.Stderr, nil)))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", Kubectl, strings.Join(args, " "), err)
	}
	return out, nil
}
