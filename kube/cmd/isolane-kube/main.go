// Command isolane-kube gives lanes to pods. It is the driver isolane.dev of dynamic resource allocation on
// one node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/kube/node"
	"isolane.dev/isolane/lanes"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	did, err := lanes.Entry(ctx, options(), os.Args) // did: package lanes started this process again
	if !did {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "isolane-kube:", err)
		os.Exit(1)
	}
}

const help = `isolane-kube node gives pods of this node lanes. It is the driver isolane.dev of dynamic
resource allocation. isolane-kube leave removes what that has left on the node, once no pod has a lane.

Usage: isolane-kube node [flags]
       isolane-kube leave [--kubelet directory] [--cdi directory]

`

// run runs the program with these arguments. It writes help to out.
func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 0:
	case args[0] == "node":
		return serve(ctx, args[1:], out)
	case args[0] == "leave":
		return leave(ctx, args[1:], out)
	case slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]):
		return serve(ctx, []string{"--help"}, out)
	}
	return errors.New("expected isolane-kube node or leave, and flags: isolane-kube --help lists them")
}

// flags returns the flags of a command. Those that node and leave share set fields of c.
func flags(name string, c *node.Config) *flag.FlagSet {
	f := flag.NewFlagSet("isolane-kube "+name, flag.ContinueOnError)
	f.SetOutput(io.Discard) // an error is printed once, by main
	f.StringVar(&c.Kubelet, "kubelet", "/var/lib/kubelet", "directory of the kubelet")
	f.StringVar(&c.CDI, "cdi", "/var/run/cdi", "directory that the container runtime reads devices from")
	return f
}

func leave(ctx context.Context, args []string, out io.Writer) error {
	c := node.Config{Lanes: options()}
	f := flags("leave", &c)
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return serve(ctx, []string{"--help"}, out)
	case err != nil:
		return err
	case f.NArg() > 0:
		return fmt.Errorf("isolane-kube leave: expected flags only, found %q", f.Args())
	}
	return node.Leave(ctx, c)
}

func serve(ctx context.Context, args []string, out io.Writer) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	c := node.Config{Lanes: options(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	f := flags("node", &c)
	f.StringVar(&c.Name, "node", os.Getenv("NODE_NAME"), "name of this node")
	config := f.String("kubeconfig", "", "file; without it, the service account of this pod")
	f.StringVar(&c.NRI, "nri", "/var/run/nri/nri.sock", "socket of the container runtime for plugins")
	f.StringVar(&c.Hook, "hook", filepath.Join(filepath.Dir(own), "isolane-kube-hook"), "the hook of containers")
	f.BoolVar(&c.Answers, "answer", true, "answer each claim before its pod is bound: a pod that does not fit "+
		"goes to another node, and each that fits begins 5 seconds later")
	cpus := f.String("cpus", "", "CPUs that lanes may have; without it, all that are online")
	if err = f.Parse(args); errors.Is(err, flag.ErrHelp) {
		f.SetOutput(out)
		_, err = io.WriteString(out, help)
		f.PrintDefaults()
		return err
	}
	if err != nil {
		return err
	}
	if c.Name == "" || f.NArg() > 0 {
		return fmt.Errorf("--node: expected the name of this node, found %q and arguments %q", c.Name, f.Args())
	}
	if c.Lanes.CPUs, err = cpuset.Parse(*cpus); err != nil {
		return fmt.Errorf("--cpus: %w", err)
	}
	h, err := host.Read(host.Live())
	if err != nil {
		return err
	}
	if gone := c.Lanes.CPUs.Difference(h.Online()); !gone.IsEmpty() {
		return fmt.Errorf("--cpus: %s: expected CPUs that are online, of %s", gone, h.Online())
	}
	if c.Lanes.CPUs.IsEmpty() { // not only those of this program's own cgroup
		c.Lanes.CPUs = h.Online()
	}
	c.Lanes.Others = h.Online().Difference(c.Lanes.CPUs)
	c.Lanes.MemoryNodes = h.MemoryNodes()
	rest, err := clientcmd.BuildConfigFromFlags("", *config)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	rest.UserAgent = "isolane-kube"
	if c.Client, err = kubernetes.NewForConfig(rest); err != nil {
		return err
	}
	return node.Run(ctx, c)
}
