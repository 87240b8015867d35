// Command isolane-hub runs a hub of many hosts, and the agent on each host that follows it.
package main

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/hub/apps"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath/drivers"
	"isolane.dev/isolane/terminal"
	"isolane.dev/isolane/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	o := lanes.Options{Paths: drivers.Paths(), Ops: drivers.Ops()}
	did, err := lanes.Entry(ctx, o, os.Args) // if it was started to become a workload or a spreader
	if did {
		err = coded(nil, err)
	} else {
		root := command(o)
		root.SetArgs(os.Args[1:])
		err = root.ExecuteContext(ctx)
	}
	if err != nil {
		os.Exit(cli.Print(terminal.Folded(os.Stderr), "isolane-hub", err))
	}
}

// coded gives an error without an exit code the code for a tool that failed.
func coded(cmd *cobra.Command, err error) error {
	if _, has := errors.AsType[*cli.Error](err); err == nil || has {
		return err
	}
	hint := ""
	if errors.Is(err, syscall.ECONNREFUSED) && cmd != nil && cmd.Name() != "up" {
		hint = "no hub runs there: isolane-hub up, or systemctl status isolane-hub, on its machine"
	}
	if apierrors.IsUnauthorized(err) && cmd != nil && cmd.Flags().Lookup("kubeconfig") != nil {
		hint = "the hub does not know who asks: expected a --kubeconfig with a certificate or token that it takes"
	}
	return cli.Hint(err, hint)
}

func command(o lanes.Options) *cobra.Command {
	root := cli.Root(&cobra.Command{
		Use:     "isolane-hub",
		Short:   "One hub for many hosts, and the agent by which a host follows it",
		Version: version.Of().String(),
	})
	for _, group := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"A hub:", []*cobra.Command{upCommand(), tokenCommand(), whyCommand(), findingsCommand()}},
		{"The objects of a hub, by kubectl:", kubectlCommands()},
		{"Backups, and a hub of several machines:", []*cobra.Command{backupCommand(), restoreCommand(),
			inviteCommand(), acceptCommand(), membersCommand()}},
		{"A host of a hub:", []*cobra.Command{joinCommand(o), agentCommand(o), statusCommand(o), holdCommand(o),
			rehomeCommand(o)}},
		{"To measure a hub:", []*cobra.Command{simulateCommand(), attachCommand(o)}},
	} {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.title
			root.AddCommand(c)
		}
	}
	cli.Code(root, coded)
	return root
}

const hubDir = "/var/lib/isolane-hub"

// start has the flags of up.
type start struct {
	up.Options
	life, anew, answer time.Duration
	site, file         string
}

func upCommand() *cobra.Command {
	s := start{Options: up.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a hub on this machine, or on an existing Kubernetes, until it is stopped",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name, d := range map[string]time.Duration{"certificates": s.life, "anew": s.anew, "answer": s.answer} {
				if d <= 0 {
					return cli.Usage(fmt.Errorf("--%s: expected a time above 0, found %s", name, d))
				}
			}
			if wrong := validation.IsDNS1123Label(s.site); len(wrong) > 0 {
				return cli.Usage(fmt.Errorf("--site %q: %s", s.site, wrong[0]))
			}
			if s.file == "" {
				if err := s.Validate(); err != nil {
					return cli.Usage(err)
				}
			}
			debug.SetGCPercent(50) // as of its programs: it keeps a copy of each host
			return hub(cmd.Context(), s)
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.Dir, "dir", hubDir, "folder of the hub's store, certificates and logs")
	f.StringVar(&s.Programs, "programs", programs(), "folder with etcd and kube-apiserver")
	f.StringVar(&s.Host, "address", firstAddress(), "address by which hosts reach the hub")
	f.IntVar(&s.Port, "port", 6443, "port that hosts reach; the next two are used too, on loopback")
	f.StringVar(&s.Authentication, "authentication", "",
		"file of kind AuthenticationConfiguration: how people log in, by OpenID Connect")
	f.StringVar(&s.Audit, "audit", "",
		"file of kind Policy (audit.k8s.io): which requests are written to log/audit.log")
	f.BoolVar(&s.Shared, "shared", false,
		"let other machines be part of this hub (invite); its store is then at the second port after --port")
	f.DurationVar(&s.life, "certificates", sites.Certificates, "how long a host's certificate is valid")
	f.DurationVar(&s.anew, "anew", 180*24*time.Hour,
		"after which time the hub restarts itself, for new certificates of its own: they are for a year")
	f.DurationVar(&s.answer, "answer", 2*time.Second,
		"how long a host may take to put a lane in force and say so; no other App is placed meanwhile")
	f.StringVar(&s.site, "site", "default", "site that a host joins by the command that is printed")
	f.StringVar(&s.file, "kubeconfig", "",
		"file of an existing Kubernetes, on which the hub then is: no API server is started")
	return cmd
}

// packaged is where the package isolane-hub-programs installs the programs that this one starts.
const packaged = "/usr/lib/isolane-hub"

// programs returns the folder of etcd and kube-apiserver.
func programs() string {
	if at, err := cli.Program("kube-apiserver", packaged); err == nil {
		return filepath.Dir(at)
	}
	return packaged
}

func hub(ctx context.Context, s start) error {
	from := time.Now()
	if s.file != "" {
		return existing(ctx, s, from)
	}
	own, err := os.Executable()
	if err != nil {
		return err
	}
	until, cancel := context.WithTimeout(ctx, s.anew)
	defer cancel()
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	go untilDue(until, cancel, from.Round(0).Add(s.anew), ticker.C)
	if err = serve(until, s, from); err != nil || ctx.Err() != nil {
		return err
	}
	return syscall.Exec(own, os.Args, os.Environ())
}

// untilDue ends a context once the wall clock has passed a moment, which the context's own clock does not
// see: a hub that began by a clock that was far behind has certificates that are not valid when the clock is
// right.
func untilDue(ctx context.Context, end func(), due time.Time, ticks <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks:
			if now.Round(0).After(due) {
				end()
				return
			}
		}
	}
}

// serve runs a hub on this machine until the context ends.
func serve(ctx context.Context, s start, from time.Time) error {
	o := s.Options
	h, err := up.Start(ctx, o)
	if err != nil {
		return err
	}
	controllers, err := control(ctx, h.Admin, net.JoinHostPort(o.Host, strconv.Itoa(o.Port)), s.answer,
		sites.Signer{Sign: h.Authority.SignClient, Life: s.life, Log: o.Log})
	if err == nil {
		fmt.Printf("ready after %.1f s\nexport KUBECONFIG=%s\n", time.Since(from).Seconds(), h.Kubeconfig)
		err = printJoin(ctx, h.Admin, s.site, false)
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

// existing runs a hub on an existing Kubernetes, which has a controller manager.
func existing(ctx context.Context, s start, from time.Time) error {
	c, err := clientcmd.BuildConfigFromFlags("", s.file)
	if err != nil {
		return cli.Usage(fmt.Errorf("--kubeconfig %s: %w", s.file, err))
	}
	core, _, err := clients(c)
	if err == nil {
		err = sites.Check(ctx, core)
	}
	if err != nil {
		return err
	}
	controllers, err := control(ctx, c, rand.Text(), s.answer, sites.Signer{Life: s.life, Log: s.Log})
	if err != nil {
		return err
	}
	fmt.Printf("ready after %.1f s\n", time.Since(from).Seconds())
	if err = printJoin(ctx, c, s.site, true); err == nil {
		err = controllers(func(context.Context, kubernetes.Interface, dynamic.Interface) {})
	}
	return err
}

// control installs what Isolane adds. It returns a function that runs the controllers, and beside, until the
// context ends, while no other hub does.
func control(ctx context.Context, c *rest.Config, name string, answer time.Duration, s sites.Signer) (
	func(beside func(context.Context, kubernetes.Interface, dynamic.Interface)) error, error) {
	c.QPS = -1 // the limits of the API server suffice
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
			announcer := sites.Announcer{Core: core, Log: s.Log}
			controller := apps.Controller{Core: core, Client: client, Log: s.Log, Answer: answer,
				Count: announcer.Hosts}
			all.Go(func() { controller.Run(leading) })
			all.Go(func() { sites.Revoker{Core: core, Hosts: hosts, Log: s.Log}.Run(leading) })
			all.Go(func() { beside(leading, core, client) })
			s.Run(leading)
			all.Wait()
		})
	}, nil
}

func clients(c *rest.Config) (*kubernetes.Clientset, *dynamic.DynamicClient, error) {
	compact := rest.CopyConfig(c)
	compact.ContentType = runtime.ContentTypeProtobuf // only Kubernetes' own kinds have it
	core, err := kubernetes.NewForConfig(compact)
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfig(c)
	return core, client, err
}

// printJoin prints how a host joins. With whole it includes the hub's authority, which its server may not
// show.
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
	fmt.Printf("isolane agent join %s --token %s", at, t)
	if whole {
		fmt.Printf(" --authority %s", base64.RawURLEncoding.EncodeToString(authority.Raw))
	}
	fmt.Println()
	return nil
}

func tokenCommand() *cobra.Command {
	a := admin{anywhere: true}
	cmd := &cobra.Command{
		Use:   "token SITE",
		Short: "Print the command by which a host joins a site",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if wrong := validation.IsDNS1123Label(args[0]); len(wrong) > 0 {
				return cli.Usage(fmt.Errorf("site %q: %s", args[0], wrong[0]))
			}
			c, err := a.config()
			if err != nil {
				return err
			}
			return printJoin(cmd.Context(), c, args[0], a.file != "")
		},
	}
	a.flags(cmd)
	return cmd
}

// admin is how a command reaches the hub of this machine. With anywhere, the hub may also be on an existing
// Kubernetes, which file says how to reach.
type admin struct {
	up.Options
	anywhere bool
	file     string
}

func (a *admin) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.Dir, "dir", hubDir, "folder of the hub on this machine")
	if a.anywhere {
		cmd.Flags().StringVar(&a.file, "kubeconfig", "",
			"file of the Kubernetes on which the hub is, where it has no API server of its own")
	}
}

// config is called after the flags are parsed. It also locates the hub of this machine.
func (a *admin) config() (*rest.Config, error) {
	at, expected := a.Kubeconfig(), "--dir: expected the folder of a hub"
	if a.file != "" {
		at, expected = a.file, "--kubeconfig: expected that of a Kubernetes"
	}
	c, err := clientcmd.BuildConfigFromFlags("", at)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("%s: %w", expected, err))
	}
	if a.anywhere {
		return c, nil
	}
	here, err := url.Parse(c.Host)
	if err == nil {
		a.Host = here.Hostname()
		a.Port, err = strconv.Atoi(here.Port())
	}
	return c, err
}

// firstAddress returns the first non-loopback address of this machine, or "" if there is none, for example
// before its network is up.
func firstAddress() string {
	addresses, _ := net.InterfaceAddrs() // on error: none
	for _, a := range addresses {
		if n, is := a.(*net.IPNet); is && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return ""
}
