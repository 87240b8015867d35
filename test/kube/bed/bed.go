// Package bed starts a real Kubernetes for tests on one machine: a control plane, and nodes that are
// namespaces.
package bed

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netns"

	"isolane.dev/isolane/test/kube"
	"isolane.dev/isolane/test/kube/image"
)

// Image is an image that each node has. It logs what its container may use, and waits to be ended.
const Image = "kubebed.test/bed:1"

// Options say what a bed is like. Zero, except for Program, is a cluster of one node.
type Options struct {
	Program  string          // the static program kubebed
	Nodes    []NodeOptions   // none: one with the defaults
	Images   []image.Image   // that each node has from its start, beside Image
	Features map[string]bool // feature gates of all Kubernetes programs, beside their defaults
	Log      io.Writer       // nil: no log

	Detached bool // it is to outlive its creator, until Down

	// Machine is for a cluster whose nodes are in a virtual machine. The bed then has no nodes, but the device
	// Tap in the network of the control plane, for the machine's card.
	Machine bool
	// Systemd makes the systemd of this machine, which must have cgroup v2, create the cgroups of pods. The bed
	// then has one node, in the machine's own PID namespace, because systemd is given processes by their ids.
	Systemd bool
	// Join is, in that machine, a copy of the folder pki of such a bed. The nodes here then belong to its
	// cluster.
	Join string
}

// Bed is a running cluster. It ends with the process that started it.
type Bed struct {
	Kubeconfig string // a file for an administrator
	Nodes      []*Node
	Dir        string // its files; log has the output of the programs

	options   Options
	number    int
	from      time.Time
	lock      *os.File
	programs  string
	starter   *starter
	network   *network
	authority *authority
	control   []*process
	client    *http.Client
	kubectls  net.Listener // for a machine that joins; nil if none can
	record    record
}

// limit is how long a start may take. A machine that is busy with many other things needs a minute.
const limit = 4 * time.Minute

// Patient lengthens a time limit, or an observation, on a slow machine by the factor $ISOLANE_KUBE_SLOW: 10
// is for an emulated processor.
func Patient(d time.Duration) time.Duration {
	if slow, err := strconv.Atoi(os.Getenv("ISOLANE_KUBE_SLOW")); err == nil && slow > 1 {
		return d * time.Duration(slow)
	}
	return d
}

// Start starts a bed, and returns when pods can run in it. It needs root. It first clears what killed beds
// have left on this host.
func Start(ctx context.Context, o Options) (*Bed, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("a bed needs root: it makes namespaces and cgroups")
	}
	if len(o.Nodes) == 0 && !o.Machine {
		o.Nodes = make([]NodeOptions, 1)
	}
	if len(o.Nodes) > mostNodes {
		return nil, fmt.Errorf("%d nodes: a bed has at most %d", len(o.Nodes), mostNodes)
	}
	if o.Log == nil {
		o.Log = io.Discard
	}
	ctx, cancel := context.WithTimeout(ctx, Patient(limit))
	defer cancel()
	programs, err := kube.Programs()
	if err != nil {
		return nil, err
	}
	b := &Bed{options: o, from: time.Now(), programs: programs}
	if err = b.claim(ctx); err != nil {
		if b.lock != nil {
			err = errors.Join(err, b.lock.Close())
		}
		return nil, err
	}
	if err = b.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w; logs are in %s", err, b.KeepLogs()), b.Close())
	}
	return b, nil
}

func (b *Bed) say(format string, args ...any) {
	fmt.Fprintf(b.options.Log, "%5.1f s  %s\n", time.Since(b.from).Seconds(), fmt.Sprintf(format, args...))
}

func (b *Bed) start(ctx context.Context) error {
	for _, step := range []struct {
		do      func() error
		control bool // the control plane's, which another machine may have
	}{
		{b.prepare, false},
		{b.credentials, false},
		{b.startControl, true},
		{b.startNodes, false},
		{func() error { return b.waitControl(ctx) }, false},
		{b.startControllers, true},
		{func() error { return b.waitNodes(ctx) }, false},
	} {
		if step.control && b.options.Join != "" {
			continue
		}
		if err := step.do(); err != nil {
			return err
		}
	}
	b.say("pods can run")
	if b.options.Machine {
		return b.serveKubectl()
	}
	return nil
}

// prepare makes the bed's things on the host: cgroups, and a network namespace with a link into it.
func (b *Bed) prepare() error {
	if !b.options.Machine {
		if err := b.prepareNodes(); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(b.logs(), 0o755); err != nil {
		return err
	}
	b.starter = newStarter()
	if err := b.starter.unshare(); err != nil {
		return fmt.Errorf("a network namespace: %w", err)
	}
	var ns netns.NsHandle
	err := b.starter.do(func() (err error) { ns, err = netns.Get(); return err })
	if err == nil {
		b.network, err = newNetwork(b.number, ns, b.options.Join != "")
	}
	if err == nil && b.options.Machine {
		err = b.starter.do(b.network.addTap)
	}
	return err
}

// prepareNodes makes the cgroups of the nodes.
func (b *Bed) prepareNodes() error {
	var names []string
	for i := range b.options.Nodes {
		names = append(names, nodeName(i))
	}
	cgroups, err := cgroupsOf(link(b.number))
	if err != nil {
		return err
	}
	_, missing := os.Stat(journals)
	b.record.Journals = missing != nil
	if b.options.Systemd {
		return errors.Join(b.prepareSystemd(len(cgroups)), os.MkdirAll(journals, 0o700))
	}
	b.record.Cgroups = cgroups
	if b.record.Enabled, err = disabled(cgroups); err != nil {
		return err
	}
	if err = b.record.write(b.Dir); err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(journals, 0o700), pass("+", cgroups, b.record.Enabled),
		makeCgroups(cgroups, names))
}

func (b *Bed) logs() string            { return filepath.Join(b.Dir, "log") }
func (b *Bed) log(name string) string  { return filepath.Join(b.logs(), name+".log") }
func (b *Bed) file(name string) string { return filepath.Join(b.Dir, name) }
func (b *Bed) server() string          { return fmt.Sprintf("https://%s:%d", address(b.number, 1), apiPort) }

// HostAddress returns the address by which nodes and pods reach this machine.
func (b *Bed) HostAddress() string { return address(b.number, hostNumber).String() }

// credentials makes certificates and kubeconfigs for all clients of the API server.
func (b *Bed) credentials() error {
	if err := os.MkdirAll(b.file("pki"), 0o700); err != nil {
		return err
	}
	a, err := readAuthority(b.options.Join, b.file("pki"))
	if b.options.Join == "" {
		a, err = newAuthority(b.file("pki"))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(b.file("pki"), numberFile), []byte(strconv.Itoa(b.number)), 0o644)
	}
	if err != nil {
		return err
	}
	b.authority = a
	masters := []string{"system:masters"}
	for _, c := range []struct {
		name    string
		subject pkix.Name
		ips     []net.IP
		names   []string
	}{
		{"apiserver", pkix.Name{CommonName: "kube-apiserver"},
			[]net.IP{address(b.number, 1), net.ParseIP(apiService), net.IPv4(127, 0, 0, 1)},
			[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"}},
		{"sa", pkix.Name{CommonName: "service-accounts"}, nil, nil},
		{"kubelet-client", pkix.Name{CommonName: "apiserver", Organization: masters}, nil, nil},
		{"admin", pkix.Name{CommonName: "admin", Organization: masters}, nil, nil},
		{"controller-manager", pkix.Name{CommonName: "system:kube-controller-manager"}, nil, nil},
		{"scheduler", pkix.Name{CommonName: "system:kube-scheduler"}, nil, nil},
	} {
		p, err := a.issue(c.name, c.subject, c.ips, c.names...)
		if err == nil {
			err = a.kubeconfig(b.file(c.name+".kubeconfig"), b.server(), p)
		}
		if err != nil {
			return err
		}
		if c.name == "admin" {
			var settings *tls.Config
			if settings, err = a.client(p); err != nil {
				return err
			}
			b.client = &http.Client{Transport: &http.Transport{TLSClientConfig: settings},
				Timeout: Patient(10 * time.Second)}
		}
	}
	b.Kubeconfig = b.file("admin.kubeconfig")
	b.record.Kubeconfig = b.Kubeconfig
	return nil
}

// Kubectl runs kubectl of the cluster's version as administrator, and returns what it prints.
func (b *Bed) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return b.kubectl(ctx, strings.NewReader(stdin), args...)
}

func (b *Bed) kubectl(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	if b.options.Join != "" {
		return b.askKubectl(ctx, stdin, args)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.programs, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+b.Kubeconfig)
	cmd.Stdin = stdin
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(said.String()))
	}
	return string(out), err
}

// Load gives an image to all nodes. Pods need imagePullPolicy: Never, or a tag other than latest.
func (b *Bed) Load(ctx context.Context, i image.Image) error {
	for _, n := range b.Nodes {
		if err := n.load(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// KeepLogs copies the output of the programs to a folder that stays, and returns its name.
func (b *Bed) KeepLogs() string {
	dir, err := os.MkdirTemp("", "kubebed-log-")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(b.logs()))
	}
	if err != nil {
		return err.Error()
	}
	return dir
}

// Run runs a command in the network of the control plane, and returns when it has ended. It is killed when
// this process ends.
func (b *Bed) Run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.starter.do(cmd.Start); err != nil {
		return err
	}
	return cmd.Wait()
}

// leave removes what the nodes had from the cluster of another machine, for the next bed that joins it.
func (b *Bed) leave(ctx context.Context) error {
	_, err := b.Kubectl(ctx, "", "delete", "pods,resourceclaims,resourceclaimtemplates", "--all", "--force",
		"--grace-period=0", "--wait=false")
	_, nerr := b.Kubectl(ctx, "", "delete", "nodes", "--all", "--wait=false")
	return errors.Join(err, nerr)
}

// Close ends everything of a bed, and leaves the host as before.
func (b *Bed) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), Patient(time.Minute))
	defer cancel()
	var err error
	if b.options.Join != "" {
		err = b.leave(ctx)
	}
	for _, n := range b.Nodes {
		err = errors.Join(err, n.stop())
	}
	if b.kubectls != nil {
		err = errors.Join(err, b.kubectls.Close())
	}
	for i := len(b.control) - 1; i >= 0; i-- {
		err = errors.Join(err, b.control[i].kill())
	}
	if b.starter != nil {
		b.starter.end()
	}
	if b.network != nil {
		err = errors.Join(err, b.network.close())
	}
	return errors.Join(err, b.record.clear(ctx, b.number), b.lock.Close())
}
