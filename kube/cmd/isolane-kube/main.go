// Command isolane-kube gives pods lanes: it is the driver of dynamic resource allocation isolane.dev of one
// node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
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
	if did, err := lanes.Entry(ctx, options(), os.Args); did { // it was started to spread threads
		fail(err)
		return
	}
	if len(os.Args) < 2 || os.Args[1] != "node" {
		fail(errors.New("expected isolane-kube node, and its flags"))
		return
	}
	fail(serve(ctx, os.Args[2:]))
}

func fail(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "isolane-kube:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, args []string) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	c := node.Config{Lanes: options(), Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	f := flag.NewFlagSet("isolane-kube node", flag.ContinueOnError)
	f.StringVar(&c.Name, "node", os.Getenv("NODE_NAME"), "name of this node")
	config := f.String("kubeconfig", "", "file; without it, the service account of this pod")
	f.StringVar(&c.Kubelet, "kubelet", "/var/lib/kubelet", "directory of the kubelet")
	f.StringVar(&c.CDI, "cdi", "/var/run/cdi", "directory that the container runtime reads devices from")
	f.StringVar(&c.NRI, "nri", "/var/run/nri/nri.sock", "socket of the container runtime for plugins")
	f.StringVar(&c.Hook, "hook", filepath.Join(filepath.Dir(own), "isolane-kube-hook"), "the hook of containers")
	f.BoolVar(&c.Answers, "answer", true, "answer each claim before its pod is bound: a pod that does not fit "+
		"goes to another node, and each that fits begins 5 seconds later")
	cpus := f.String("cpus", "", "CPUs that lanes may have; without it, all that are online")
	if err = f.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
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
	if c.Lanes.CPUs.IsEmpty() { // and not those of the cgroup in which this program is
		c.Lanes.CPUs = h.Online()
	}
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
