// Command isolane-hub is a hub over many hosts, and the part of a host that follows it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"isolane.dev/isolane/hub/agent"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath/drivers"
)

const usage = `isolane-hub up                           a hub on this machine, until it is ended
isolane-hub token SITE                   prints how a host joins a site
isolane-hub join https://HUB --token T   makes this host one of a hub's
isolane-hub agent                        follows the hub that this host has joined
Each has --help.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	o := lanes.Options{Paths: drivers.Paths(), Ops: drivers.Ops()}
	did, err := lanes.Entry(ctx, o, os.Args) // it was started to become a workload, or to spread threads
	if !did {
		err = run(ctx, o, os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "isolane-hub:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o lanes.Options, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("expected a command:\n%s", usage)
	}
	switch args[0] {
	case "up":
		return hub(ctx, args[1:])
	case "token":
		return token(ctx, args[1:])
	case "join":
		return join(ctx, o, args[1:])
	case "agent":
		return follow(ctx, o, args[1:])
	}
	return fmt.Errorf("%s: expected a command:\n%s", args[0], usage)
}

// parse reads flags, and the one argument that a command has beside them, before or after.
func parse(f *flag.FlagSet, args []string, argument string) (string, error) {
	value := ""
	for len(args) > 0 {
		if err := f.Parse(args); err != nil {
			return "", err
		}
		if f.NArg() == 0 {
			break
		}
		if argument == "" || value != "" {
			return "", fmt.Errorf("%s: unexpected argument %q", f.Name(), f.Arg(0))
		}
		value, args = f.Arg(0), f.Args()[1:]
	}
	if argument != "" && value == "" {
		return "", fmt.Errorf("%s: expected %s", f.Name(), argument)
	}
	return value, nil
}

const hubDir = "/var/lib/isolane-hub"

func hub(ctx context.Context, args []string) error {
	from := time.Now()
	own, err := os.Executable()
	if err != nil {
		return err
	}
	o := up.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	f := flag.NewFlagSet("up", flag.ContinueOnError)
	f.StringVar(&o.Dir, "dir", hubDir, "folder of its store, certificates and logs")
	f.StringVar(&o.Programs, "programs", filepath.Dir(own), "folder with etcd and kube-apiserver")
	f.StringVar(&o.Host, "address", firstAddress(), "by which hosts reach it")
	f.IntVar(&o.Port, "port", 6443, "that hosts reach; the two after it are used on loopback")
	site := f.String("site", "default", "a site, for the command that is printed")
	if _, err = parse(f, args, ""); err != nil {
		return err
	}
	h, err := up.Start(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, h, o, *site, from), h.End())
}

// serve puts in place what Isolane adds, and answers hosts until the context ends.
func serve(ctx context.Context, h *up.Hub, o up.Options, site string, from time.Time) error {
	core, client, err := clients(h.Admin)
	if err == nil {
		err = sites.Install(ctx, client)
	}
	if err != nil {
		return err
	}
	fmt.Printf("ready after %.1f s\nexport KUBECONFIG=%s\n", time.Since(from).Seconds(), h.Kubeconfig)
	if err = printJoin(ctx, core, client, o.URL(), site, h.Authority); err != nil {
		return err
	}
	(&sites.Signer{Core: core, Client: client, Sign: h.Authority.SignClient, Log: o.Log}).Run(ctx)
	return nil
}

func clients(c *rest.Config) (*kubernetes.Clientset, *dynamic.DynamicClient, error) {
	core, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfig(c)
	return core, client, err
}

func printJoin(ctx context.Context, core kubernetes.Interface, client dynamic.Interface, url, site string,
	a *up.Authority) error {
	t, err := sites.NewToken(ctx, core, client, site, up.Digest(a.Cert))
	if err == nil {
		fmt.Printf("isolane-hub join %s --token %s\n", url, t)
	}
	return err
}

func token(ctx context.Context, args []string) error {
	var o up.Options
	f := flag.NewFlagSet("token", flag.ContinueOnError)
	f.StringVar(&o.Dir, "dir", hubDir, "folder of the hub on this machine")
	site, err := parse(f, args, "a site")
	if err != nil {
		return err
	}
	c, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig())
	if err != nil {
		return fmt.Errorf("--dir: expected the folder of a hub: %w", err)
	}
	a, err := up.LoadAuthority(o.PKI(), "hub")
	if err != nil {
		return err
	}
	core, client, err := clients(c)
	if err != nil {
		return err
	}
	return printJoin(ctx, core, client, c.Host, site, a)
}

func agentFlags(name string) (*flag.FlagSet, *agent.Options) {
	o := &agent.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.StringVar(&o.Dir, "dir", "/var/lib/isolane-hub-agent",
		"folder of this host's key, certificate and state")
	return f, o
}

func join(ctx context.Context, lo lanes.Options, args []string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	f, o := agentFlags("join")
	o.Lanes = lo
	f.StringVar(&name, "name", name, "of this host at the hub")
	text := f.String("token", "", "what isolane-hub token has printed")
	url, err := parse(f, args, "https://HUB:PORT")
	if err != nil {
		return err
	}
	t, err := sites.ParseToken(*text)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err = agent.Join(ctx, *o, url, name, t); err != nil {
		return err
	}
	fmt.Printf("joined as %s: isolane-hub agent follows the hub\n", name)
	return nil
}

func follow(ctx context.Context, lo lanes.Options, args []string) error {
	f, o := agentFlags("agent")
	if _, err := parse(f, args, ""); err != nil {
		return err
	}
	o.Lanes = lo
	return agent.Run(ctx, *o)
}

// firstAddress is the first of this machine's that is not of loopback.
func firstAddress() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	for _, a := range addresses {
		if n, is := a.(*net.IPNet); is && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}
