package bed

import (
	"cmp"
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"isolane.dev/isolane/test/kube/fold"
	"isolane.dev/isolane/test/kube/image"
	"isolane.dev/isolane/test/kube/inside"
)

const journals = inside.Journals

// NodeOptions say how a node differs from the others.
type NodeOptions struct {
	// Kubelet has fields of a KubeletConfiguration that override those of the bed.
	Kubelet map[string]any
	// Topology is a folder of package topology: an invented machine, which the node takes for its own.
	// Containers get CPUs that exist; Node.Asked returns those that they were to get.
	Topology string
	// Disk is a folder with the disk of a node of an earlier bed, which becomes this one's: State/disk of a node
	// whose machine has booted since.
	Disk string
}

// Node is a node of a bed: its own namespaces, with containerd and a kubelet.
type Node struct {
	Name       string
	Address    string
	Kubeconfig string // a file with the node's own credentials
	Cgroup     string // below the mount point of each hierarchy; contains its kubepods
	State      string // a folder of the host with the node's disk

	bed     *Bed
	number  int
	options NodeOptions
	init    *process
	images  [][]string // the commands that import them, until it has been started
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i) }

// nodeProcess is the name of a node's first process in a record.
func nodeProcess(node string) string { return "node " + node }

// startNodes starts the nodes. They themselves wait for the API server.
func (b *Bed) startNodes() error {
	for i, o := range b.options.Nodes {
		name := nodeName(i)
		n := &Node{Name: name, Address: nodeAddress(b.number, i).String(), Kubeconfig: b.file(name + ".kubeconfig"),
			Cgroup: b.cgroup(name), State: b.file(name), bed: b, number: i, options: o}
		if err := n.configure(); err != nil {
			return err
		}
		if err := n.start(); err != nil {
			return err
		}
		b.Nodes = append(b.Nodes, n)
	}
	return nil
}

// configure writes the node's files.
func (n *Node) configure() error {
	if n.options.Disk != "" {
		err := os.MkdirAll(n.State, 0o755)
		if err = errors.Join(err, os.Rename(n.options.Disk, filepath.Join(n.State, "disk"))); err != nil {
			return err
		}
	}
	subject := pkix.Name{CommonName: "system:node:" + n.Name, Organization: []string{"system:nodes"}}
	p, err := n.bed.authority.issue(n.Name, subject, []net.IP{nodeAddress(n.bed.number, n.number)}, n.Name)
	if err == nil {
		err = n.bed.authority.kubeconfig(n.Kubeconfig, n.bed.server(), p)
	}
	if err != nil {
		return err
	}
	kubelet, err := json.MarshalIndent(n.kubelet(), "", "  ")
	if err != nil {
		return err
	}
	network, err := json.MarshalIndent(n.cni(), "", "  ")
	if err != nil {
		return err
	}
	runc, err := n.runc()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"var/lib/kubelet/config.json":    kubelet,
		"etc/cni/net.d/10-bed.conflist":  network,
		"etc/containerd/config.toml":     []byte(containerd(n.bed.programs, runc, n.bed.options.Systemd)),
		"var/lib/kubelet/README.kubebed": []byte("A node of a test bed: kubebed down removes it.\n"),
	} {
		file := filepath.Join(n.State, "disk", name)
		if err = os.MkdirAll(filepath.Dir(file), 0o755); err == nil {
			err = os.WriteFile(file, content, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return n.writeImages()
}

// writeImages writes the images that the node has from its start.
func (n *Node) writeImages() error {
	program := n.bed.options.Program
	own := image.Image{Name: Image, Programs: []string{program},
		Entrypoint: []string{"/" + filepath.Base(program), "report"}}
	for at, i := range append([]image.Image{own}, n.bed.options.Images...) {
		file, err := os.Create(filepath.Join(n.State, fmt.Sprintf("image-%d.tar", at)))
		if err != nil {
			return err
		}
		if err = errors.Join(image.Write(file, i), file.Close()); err != nil {
			return fmt.Errorf("image %s: %w", i.Name, err)
		}
		n.images = append(n.images, n.importing(file.Name()))
	}
	return nil
}

// importing returns the command that gives the node an image from a file; -: from its input.
func (n *Node) importing(file string) []string {
	return []string{filepath.Join(n.bed.programs, "ctr"), "--namespace=k8s.io", "images", "import", file}
}

// kubelet returns the kubelet's configuration. CPU and memory manager have Kubernetes' default, none.
func (n *Node) kubelet() map[string]any {
	pki := func(name string) string { return filepath.Join(n.bed.file("pki"), name) }
	c := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"failCgroupV1":             false,
		"cgroupDriver":             n.bed.driver(),
		"cgroupRoot":               cmp.Or(n.Cgroup, "/"), // keeps two nodes of a machine apart
		"containerRuntimeEndpoint": "unix://" + socket,
		"failSwapOn":               false,
		"oomScoreAdj":              0, // a value below its own needs CAP_SYS_RESOURCE, which not every root has
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false},
			"webhook": map[string]any{"enabled": true}, "x509": map[string]any{"clientCAFile": pki("ca.crt")}},
		"authorization":          map[string]any{"mode": "Webhook"},
		"tlsCertFile":            pki(n.Name + ".crt"),
		"tlsPrivateKeyFile":      pki(n.Name + ".key"),
		"makeIPTablesUtilChains": false, // there is no kube-proxy
		"resolvConf":             "",
		"evictionHard": map[string]any{"memory.available": "50Mi", "nodefs.available": "1%",
			"imagefs.available": "1%"},
		"imageGCHighThresholdPercent": 100, // nobody could pull an image again
		"nodeStatusUpdateFrequency":   "5s",
		// How soon it asks a driver again that was away, and restarts a container that has ended. By default that
		// takes a minute, and ten seconds and longer each time.
		"syncFrequency":    Patient(time.Second).String(),
		"crashLoopBackOff": map[string]any{"maxContainerRestartPeriod": Patient(time.Second).String()},
		"featureGates":     n.bed.options.Features,
	}
	maps.Copy(c, n.options.Kubelet)
	return c
}

// cni returns the configuration of the pods' network.
func (n *Node) cni() map[string]any {
	own := pods(n.bed.number, n.number).String()
	return map[string]any{"cniVersion": "1.0.0", "name": "bed", "plugins": []any{map[string]any{
		"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
		"ipam": map[string]any{"type": "host-local", "ranges": []any{[]any{map[string]any{"subnet": own}}},
			"routes": []any{map[string]any{"dst": "0.0.0.0/0"}}},
	}}}
}

// socket is containerd's socket in each node.
const socket = "/run/containerd/containerd.sock"

// How long containerd waits for an NRI plugin: its defaults.
const (
	registering = 5 * time.Second
	answering   = 2 * time.Second
)

// containerd returns its configuration, with NRI and CDI in their usual places.
func containerd(programs, runc string, systemd bool) string {
	return fmt.Sprintf(`version = 3
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '%[2]s' # of the process that keeps a pod's namespaces
[plugins.'io.containerd.cri.v1.runtime']
  enable_cdi = true
  restrict_oom_score_adj = true # root without CAP_SYS_RESOURCE may not lower it
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = '%[3]s'
      SystemdCgroup = %[6]t
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['%[1]s/cni']
    conf_dir = '/etc/cni/net.d'
[plugins.'io.containerd.nri.v1.nri']
  disable = false
  socket_path = '/var/run/nri/nri.sock'
  plugin_registration_timeout = '%[4]s'
  plugin_request_timeout = '%[5]s'
`, programs, Image, runc, Patient(registering), Patient(answering), systemd)
}

// runc returns the program with which containerd starts containers.
func (n *Node) runc() (string, error) {
	real := filepath.Join(n.bed.programs, "runc")
	if n.options.Topology == "" {
		return real, nil
	}
	front := filepath.Join(n.State, fold.Runc)
	return front, errors.Join(os.MkdirAll(n.State, 0o755), os.Symlink(n.bed.options.Program, front),
		os.Symlink(real, filepath.Join(n.State, fold.Real)))
}

// Asked returns the CPUs and memory nodes that containers of a node with an invented topology were to get, in
// the order of the requests.
func (n *Node) Asked() (requests []fold.Request, err error) {
	data, err := os.ReadFile(filepath.Join(n.State, fold.Asked))
	for line := range strings.Lines(string(data)) {
		var r fold.Request
		err = errors.Join(err, json.Unmarshal([]byte(line), &r))
		requests = append(requests, r)
	}
	return requests, err
}

// start starts the node's first process, and configures it when it has a network.
func (n *Node) start() error {
	const own = unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWNET
	cmd := exec.Command(n.bed.options.Program, "node")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: own | unix.CLONE_NEWPID}
	if n.bed.options.Systemd {
		cmd = inScope(n.bed.options.Program, "node")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: own}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if n.init, err = n.bed.starter.start(nodeProcess(n.Name), n.bed.log(n.Name), cmd); err != nil {
		return err
	}
	if err = n.bed.recordProcess(n.init); err != nil {
		return err
	}
	if err = n.bed.network.connect(n.PID(), n.number, len(n.bed.options.Nodes)); err != nil {
		return err
	}
	programs, images := n.bed.programs, n.images
	n.images = nil // its disk has them from now on
	err = json.NewEncoder(in).Encode(inside.Config{
		Hostname: n.Name, State: n.State, Topology: n.options.Topology, Systemd: n.bed.options.Systemd,
		Env: append(os.Environ(), "PATH="+programs+":/usr/sbin:/usr/bin:/sbin:/bin"),
		Daemons: []inside.Daemon{
			{Args: []string{programs + "/containerd", "--config=/etc/containerd/config.toml"},
				Log: n.bed.log(n.Name + "-containerd"), Ready: socket},
			{Args: []string{programs + "/kubelet", "--config=/var/lib/kubelet/config.json",
				"--kubeconfig=" + n.Kubeconfig, "--hostname-override=" + n.Name, "--node-ip=" + n.Address, "--v=2"},
				Log: n.bed.log(n.Name + "-kubelet"),
				// It lists images at its start and each half minute, and only then does the node say that it has them.
				First: images},
		}})
	return errors.Join(err, in.Close())
}

// stop ends everything of a node, as a power cut would.
func (n *Node) stop() error {
	if n.bed.options.Systemd { // its processes do not end with the first
		return errors.Join(endUnits(), n.init.kill())
	}
	return n.init.kill()
}

// PID returns the node's first process, whose namespaces are those of the node.
func (n *Node) PID() int { return n.init.cmd.Process.Pid }

// Path returns where processes of the host find a file of the node, such as the NRI socket.
func (n *Node) Path(file string) string { return fmt.Sprintf("/proc/%d/root%s", n.PID(), file) }

// Command returns a program that runs as a daemon of the node: with its files, network and host name and, as
// on a node that is a machine, with all processes of the host in /proc. It is killed when this process ends.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	all := append([]string{"enter", strconv.Itoa(os.Getpid()), strconv.Itoa(n.PID()), name}, args...)
	cmd := exec.CommandContext(ctx, n.bed.options.Program, all...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Signal sends a signal to a daemon of the node, kubelet or containerd. A daemon that ends is restarted a
// second later.
func (n *Node) Signal(daemon string, signal syscall.Signal) error {
	var children string
	// Any thread may be the parent.
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.PID()))
	for _, thread := range threads {
		data, gone := os.ReadFile(thread)
		if gone == nil {
			children += string(data)
		}
	}
	if err != nil {
		return err
	}
	for _, child := range strings.Fields(children) {
		name, err := os.ReadFile("/proc/" + child + "/comm")
		if err != nil || strings.TrimSpace(string(name)) != daemon {
			continue
		}
		pid, err := strconv.Atoi(child)
		return errors.Join(err, syscall.Kill(pid, signal))
	}
	return fmt.Errorf("node %s: no %s runs", n.Name, daemon)
}

// Reboot ends the whole node at once and restarts it: its disk stays, and /run is empty except for the
// journals of the host. The functions down run while the node is down.
func (n *Node) Reboot(ctx context.Context, down ...func() error) error {
	if err := n.stop(); err != nil {
		return err
	}
	for _, do := range down {
		if err := do(); err != nil {
			return err
		}
	}
	for _, top := range n.bed.record.Cgroups {
		pods := filepath.Join(top, n.Name, "kubepods")
		if err := removeCgroup(ctx, pods); err != nil {
			return err
		}
	}
	// Nobody has noticed yet, and the node would count as ready before it is.
	const unknown = `{"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}`
	_, err := n.bed.Kubectl(ctx, "", "patch", "node", n.Name, "--subresource=status", "--patch="+unknown)
	if err != nil {
		return err
	}
	if err = n.start(); err != nil {
		return err
	}
	return n.WaitReady(ctx)
}

// WaitReady waits until the kubelet reports that pods can run on the node.
func (n *Node) WaitReady(ctx context.Context) error {
	return n.bed.until(ctx, "node "+n.Name+" is ready", func() error {
		var node struct {
			Status struct {
				Conditions []struct{ Type, Status, Message string }
			}
		}
		if err := n.bed.get(ctx, "/api/v1/nodes/"+n.Name, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				return nil
			}
		}
		return fmt.Errorf("node %s is not ready: %+v", n.Name, node.Status.Conditions)
	})
}

// load gives the node an image.
func (n *Node) load(ctx context.Context, i image.Image) error {
	var archive strings.Builder
	if err := image.Write(&archive, i); err != nil {
		return err
	}
	from := n.importing("-")
	cmd := n.Command(ctx, from[0], from[1:]...)
	cmd.Stdin = strings.NewReader(archive.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("node %s: image %s: %w: %s", n.Name, i.Name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
