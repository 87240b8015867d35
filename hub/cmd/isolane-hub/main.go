// Command isolane-hub is a hub over many hosts, and the part of a host that follows it.
package main

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"isolane.dev/isolane/hub/apps"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
	"isolane.dev/isolane/hub/workload"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath/drivers"
)

const usage = `isolane-hub up                           a hub on this machine, until it is ended
isolane-hub up --kubeconfig FILE         a hub on a Kubernetes that is there
isolane-hub token SITE                   prints how a host joins a site
isolane-hub why APP                      why an App is where it is, NAMESPACE/NAME
isolane-hub findings                     what audits of all hosts have found, by rule

isolane-hub backup FILE --recipient age1…  all that the hub is, while it runs
isolane-hub restore FILE --identity KEY  the folder of a hub, of a backup
isolane-hub invite FILE --address HOST:PORT --recipient age1…  another machine is to be a hub too
isolane-hub accept FILE --identity KEY   the folder of that hub, on its machine
isolane-hub members [--remove HOST:PORT] the hubs that are one

isolane-hub simulate N --snapshot FILE   N hosts that are none, on this machine

isolane-hub join https://HUB --token T   makes this host one of a hub's
isolane-hub agent                        follows the hub that this host has joined
isolane-hub status                       what this host is to run, also without a hub
isolane-hub hold 2h --reason TEXT        puts changes off; hold 0 no longer
isolane-hub rehome https://HUB --token T brings this host to another hub as it runs
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
	if slices.Contains([]string{"help", "--help", "-h"}, args[0]) {
		fmt.Println(usage)
		return nil
	}
	command, is := map[string]func(context.Context, lanes.Options, []string) error{
		"up": hub, "token": token, "why": why, "findings": findings,
		"backup": backup, "restore": restore, "simulate": simulateHosts,
		"invite": invite, "accept": accept, "members": list,
		"join": join, "agent": follow, "status": status, "hold": hold, "rehome": rehome,
		"attach": workload.Attach, // of the drop-ins of services
	}[args[0]]
	if !is {
		return fmt.Errorf("%s: expected a command: isolane-hub --help lists them", args[0])
	}
	return command(ctx, o, args[1:])
}

// parse reads flags, and the one argument that a command has beside them, before or after.
func parse(f *flag.FlagSet, args []string, argument string) (string, error) {
	value := ""
	f.SetOutput(io.Discard) // else it writes all flags before an error, which is one line
	for len(args) > 0 {
		switch err := f.Parse(args); {
		case errors.Is(err, flag.ErrHelp):
			f.SetOutput(os.Stdout)
			f.Usage()
			return "", err
		case err != nil:
			return "", fmt.Errorf("%s: %w: isolane-hub %s --help says what it takes", f.Name(), err, f.Name())
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

func hub(ctx context.Context, _ lanes.Options, args []string) error {
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
	f.StringVar(&o.Authentication, "authentication", "",
		"file of kind AuthenticationConfiguration, for people with OpenID Connect")
	f.StringVar(&o.Audit, "audit", "", "file of kind Policy (audit.k8s.io); what is done goes to log/audit.log")
	f.BoolVar(&o.Shared, "shared", false, "other machines may be hubs too: the second port after it is for them")
	life := f.Duration("certificates", sites.Certificates, "how long the certificate of a host is valid")
	anew := f.Duration("anew", 180*24*time.Hour, "how long until it begins anew, for certificates of its own, "+
		"which are for a year")
	site := f.String("site", "default", "a site, for the command that is printed")
	file := f.String("kubeconfig", "", "of a Kubernetes that is there, on which the hub is then: nothing is "+
		"started")
	if _, err = parse(f, args, ""); err != nil {
		return err
	}
	for name, d := range map[string]time.Duration{"certificates": *life, "anew": *anew} {
		if d <= 0 {
			return fmt.Errorf("--%s: expected a time above 0, found %s", name, d)
		}
	}
	if wrong := validation.IsDNS1123Label(*site); len(wrong) > 0 {
		return fmt.Errorf("--site %q: %s", *site, wrong[0])
	}
	if *file != "" {
		return existing(ctx, *file, *site, *life, o.Log, from)
	}
	until, cancel := context.WithTimeout(ctx, *anew)
	defer cancel()
	if err = serve(until, o, *site, *life, from); err != nil || ctx.Err() != nil {
		return err
	}
	return syscall.Exec(own, os.Args, os.Environ())
}

// serve is a hub on this machine until the context ends.
func serve(ctx context.Context, o up.Options, site string, life time.Duration, from time.Time) error {
	h, err := up.Start(ctx, o)
	if err != nil {
		return err
	}
	controllers, err := control(ctx, h.Admin, net.JoinHostPort(o.Host, strconv.Itoa(o.Port)),
		sites.Signer{Sign: h.Authority.SignClient, Life: life, Log: o.Log})
	if err == nil {
		fmt.Printf("ready after %.1f s\nexport KUBECONFIG=%s\n", time.Since(from).Seconds(), h.Kubeconfig)
		err = printJoin(ctx, h.Admin, site, false)
	}
	if err == nil {
		err = controllers(func(leading context.Context, core kubernetes.Interface, client dynamic.Interface) {
			var both sync.WaitGroup
			both.Go(func() { sites.EndNamespaces(leading, core, client, o.Log) })
			tend(leading, core, o, o.Log)
			both.Wait()
		})
	}
	return errors.Join(err, h.End())
}

// existing is a hub on a Kubernetes that is there, which has a controller manager.
func existing(ctx context.Context, file, site string, life time.Duration, log *slog.Logger,
	from time.Time) error {
	c, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return fmt.Errorf("--kubeconfig %s: %w", file, err)
	}
	core, _, err := clients(c)
	if err == nil {
		err = sites.Check(ctx, core)
	}
	if err != nil {
		return err
	}
	controllers, err := control(ctx, c, rand.Text(), sites.Signer{Life: life, Log: log})
	if err != nil {
		return err
	}
	fmt.Printf("ready after %.1f s\n", time.Since(from).Seconds())
	if err = printJoin(ctx, c, site, true); err == nil {
		err = controllers(func(context.Context, kubernetes.Interface, dynamic.Interface) {})
	}
	return err
}

// control puts in place what Isolane adds, and returns what answers hosts until the context ends, beside what
// else is to be done, while no other hub does.
func control(ctx context.Context, c *rest.Config, name string, s sites.Signer) (
	func(beside func(context.Context, kubernetes.Interface, dynamic.Interface)) error, error) {
	c.QPS = -1 // the API server's own limits are enough
	core, client, err := clients(c)
	if err == nil {
		err = sites.Install(ctx, client)
	}
	s.Core, s.Client = core, client
	hosts, merr := metadata.NewForConfig(c)
	if err = errors.Join(err, merr); err != nil {
		return nil, err
	}
	return func(beside func(context.Context, kubernetes.Interface, dynamic.Interface)) error {
		return lead(ctx, core, name, func(leading context.Context) {
			var all sync.WaitGroup
			all.Go(func() { (&apps.Controller{Core: core, Client: client, Log: s.Log}).Run(leading) })
			all.Go(func() { sites.Revoker{Core: core, Hosts: hosts, Log: s.Log}.Run(leading) })
			all.Go(func() { beside(leading, core, client) })
			s.Run(leading)
			all.Wait()
		})
	}, nil
}

func clients(c *rest.Config) (*kubernetes.Clientset, *dynamic.DynamicClient, error) {
	core, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfig(c)
	return core, client, err
}

// printJoin prints how a host joins. whole: with the hub's authority, where its server may not show it.
func printJoin(ctx context.Context, c *rest.Config, site string, whole bool) error {
	core, client, err := clients(c)
	if err == nil {
		err = rest.LoadTLSFiles(c)
	}
	if err != nil {
		return err
	}
	block, _ := pem.Decode(c.CAData)
	if block == nil {
		return errors.New("--kubeconfig: expected the cluster's certificate-authority in it")
	}
	authority, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return fmt.Errorf("--kubeconfig: certificate-authority: %w", err)
	}
	at, err := url.Parse(c.Host)
	if err != nil {
		return err
	}
	if at.Port() == "" {
		at.Host = net.JoinHostPort(at.Hostname(), "443")
	}
	t, err := sites.NewToken(ctx, core, client, site, up.Digest(authority))
	if err != nil {
		return err
	}
	fmt.Printf("isolane-hub join %s --token %s", at, t)
	if whole {
		fmt.Printf(" --authority %s", base64.RawURLEncoding.EncodeToString(authority.Raw))
	}
	fmt.Println()
	return nil
}

func token(ctx context.Context, _ lanes.Options, args []string) error {
	var file string
	site, c, _, err := admin("token", args, "a site", &file)
	if err != nil {
		return err
	}
	return printJoin(ctx, c, site, file != "")
}

// admin reads the flags of a command that speaks with the hub of this machine, and how it does. Unless file
// is nil, the hub may also be one on a Kubernetes that is there: --kubeconfig is stored in it.
func admin(name string, args []string, argument string, file *string, more ...func(*flag.FlagSet)) (
	string, *rest.Config, up.Options, error) {
	var o up.Options
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.StringVar(&o.Dir, "dir", hubDir, "folder of the hub on this machine")
	if file != nil {
		f.StringVar(file, "kubeconfig", "", "of the Kubernetes on which the hub is, unless it has one of its own")
	}
	for _, add := range more {
		add(f)
	}
	value, err := parse(f, args, argument)
	if err != nil {
		return "", nil, o, err
	}
	at, expected := o.Kubeconfig(), "--dir: expected the folder of a hub"
	if file != nil && *file != "" {
		at, expected = *file, "--kubeconfig: expected that of a Kubernetes"
	}
	c, err := clientcmd.BuildConfigFromFlags("", at)
	if err != nil {
		err = fmt.Errorf("%s: %w", expected, err)
	}
	return value, c, o, err
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
