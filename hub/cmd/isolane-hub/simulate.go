package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isolane.dev/isolane/audit/rules"
	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/settings"
	"isolane.dev/isolane/host/snapshot"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/simulate"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
	"isolane.dev/isolane/lane"
)

// simulated is the namespace of the Apps of a simulation.
const simulated = "simulated"

// simulation is a hub with simulated hosts.
type simulation struct {
	core   kubernetes.Interface
	client dynamic.Interface
	signer *sites.Signer
	c      *rest.Config
	failed sync.Map // errors that were printed
	all    []*simulate.Host
}

func simulateCommand() *cobra.Command {
	var a admin
	var file string
	var of load
	cmd := &cobra.Command{
		Use:   "simulate N --snapshot FILE",
		Short: "Simulate N hosts of the hub on this machine, to measure it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil || n < 1 {
				return cli.Usage(fmt.Errorf("expected how many hosts, found %q", args[0]))
			}
			if err = of.checkRequests(); err != nil {
				return err
			}
			like, err := likeSnapshot(file)
			if err != nil {
				return err
			}
			c, err := a.config()
			if err != nil {
				return err
			}
			authority, err := up.LoadAuthority(a.PKI(), "hub")
			if err != nil {
				return err
			}
			return simulateHosts(cmd.Context(), c, authority, n, like, of)
		},
	}
	a.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&file, "snapshot", "", "archive of a machine (isolane host snapshot): all hosts are like it")
	f.IntVar(&of.apps, "apps", 20, "how many Apps of one CPU to declare, one after another")
	f.IntVar(&of.changes, "changes", 0, "how many Instances to declare one by one, each for another host")
	f.BoolVar(&of.change, "change", false, "declare an Instance for each host, all at once")
	f.IntVar(&of.requests, "requests", 0, "how many Apps of 1 to 12 CPUs to declare and delete, of "+
		"several tenants with quotas, while hosts change; each answer is judged")
	f.IntVar(&of.atOnce, "at-once", 20, "how many of these requests at a time")
	return cmd
}

// load is what the hosts are asked for.
type load struct {
	apps, changes, requests, atOnce int
	change                          bool
}

func simulateHosts(ctx context.Context, c *rest.Config, a *up.Authority, n int, like simulate.Like, l load) (
	err error) {
	c.QPS, c.Burst = 1000, 1000
	s := &simulation{c: c}
	if s.core, s.client, err = clients(c); err != nil {
		return err
	}
	s.signer = &sites.Signer{Core: s.core, Client: s.client, Sign: a.SignClient, Log: slog.Default()}
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	if err = s.hosts(ctx, &all, n, like); err != nil {
		return err
	}
	if err = s.someApps(ctx, l.apps); err == nil {
		err = s.changes(ctx, l.changes)
	}
	if err == nil && l.change {
		err = s.change(ctx)
	}
	if err == nil && l.requests > 0 {
		err = s.requests(ctx, l.requests, l.atOnce, like.Machine.Online().Len())
	}
	if err != nil {
		return err
	}
	fmt.Println("at rest until it is ended: look at the processes of the hub")
	s.rest(ctx)
	return nil
}

// likeSnapshot returns the machine of an archive. The findings are of this machine: an archive has few of the
// files that an audit reads.
func likeSnapshot(file string) (like simulate.Like, err error) {
	root, err := snapshot.Open(file, "")
	if err != nil {
		return like, cli.Usage(
			fmt.Errorf("--snapshot %q: expected an archive of isolane host snapshot: %w", file, err))
	}
	if like.Machine, err = host.Read(root); err != nil {
		return like, fmt.Errorf("--snapshot %s: %w", file, err)
	}
	here, err := host.Read(host.Live())
	if err != nil {
		return like, err
	}
	for _, f := range rules.Run(here, settings.Read(host.Live()), cpuset.Set{}, "").Findings {
		like.Findings = append(like.Findings, api.Finding{Rule: f.Rule, Severity: f.Severity.String(),
			Title: f.Title, CPUs: f.CPUs.String()})
	}
	return like, nil
}

// hosts joins n simulated hosts, and waits until all have reported.
func (s *simulation) hosts(ctx context.Context, all *sync.WaitGroup, n int, like simulate.Like) error {
	from := time.Now()
	ready := make(chan struct{}, n)
	for i := range n {
		h, err := simulate.Join(ctx, s.signer, s.c, fmt.Sprintf("simulated-%05d", i), "simulated", like)
		if err != nil {
			return err
		}
		s.all = append(s.all, h)
		all.Go(func() {
			h.Run(ctx, func() { ready <- struct{}{} }, s.warn)
		})
	}
	for range n {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ready:
		}
	}
	fmt.Printf("%d hosts have joined and reported after %.1f s\n", n, time.Since(from).Seconds())
	return nil
}

// warn prints an error, each text once.
func (s *simulation) warn(err error) {
	if _, said := s.failed.LoadOrStore(err.Error(), true); !said {
		fmt.Fprintln(os.Stderr, "isolane-hub:", err)
	}
}

// space makes a namespace, unless it is there.
func (s *simulation) space(ctx context.Context, name string) error {
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := s.core.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// someApps places Apps one after another, and prints how long each took to run.
func (s *simulation) someApps(ctx context.Context, n int) error {
	if err := s.space(ctx, simulated); err != nil {
		return err
	}
	var asked, took []time.Duration
	for i := range n {
		first, runs, err := s.app(ctx, fmt.Sprintf("app-%d-%d", os.Getpid(), i))
		if err != nil {
			return err
		}
		asked, took = append(asked, first), append(took, runs)
	}
	say(asked, "Apps, from declared to a host asked")
	say(took, "Apps, from declared to said to run (nothing is started)")
	return nil
}

// say prints the distribution of durations.
func say(took []time.Duration, what string) {
	n := len(took)
	if n == 0 {
		return
	}
	slices.Sort(took)
	p99 := ""
	if n >= 100 { // nearest rank
		p99 = fmt.Sprintf("P99 %d ms, ", took[(n*99+99)/100-1].Milliseconds())
	}
	fmt.Printf("%d %s: P50 %d ms, %sat most %d ms\n", n, what, took[(n+1)/2-1].Milliseconds(), p99,
		took[n-1].Milliseconds())
}

// rest prints, each time that the hub was away, how long it took until all hosts heard it again.
func (s *simulation) rest(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	var from time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		hear := 0
		for _, h := range s.all {
			if h.Listens() {
				hear++
			}
		}
		switch gone := len(s.all) - hear; {
		case gone > len(s.all)/2 && from.IsZero():
			from = time.Now()
		case gone == 0 && !from.IsZero():
			fmt.Printf("all hosts hear the hub again, %.1f s after they did not\n", time.Since(from).Seconds())
			from = time.Time{}
		}
	}
}

// change declares a change for each host, and prints when all have taken it over.
func (s *simulation) change(ctx context.Context) error {
	name, from := fmt.Sprintf("change-%d", os.Getpid()), time.Now()
	var some sync.WaitGroup
	for n := range 20 {
		some.Go(func() {
			for i := n; i < len(s.all); i += 20 {
				if err := s.declare(ctx, s.all[i], name); err != nil {
					s.warn(err)
				}
			}
		})
	}
	some.Wait()
	declared := time.Since(from)
	if err := taken(ctx, name, s.all...); err != nil {
		return err
	}
	fmt.Printf("a change for each of %d hosts: declared after %.1f s, taken over by all after %.1f s\n",
		len(s.all), declared.Seconds(), time.Since(from).Seconds())
	return nil
}

// changes declares a change for one host after another, spread over all hosts. It prints how long each took
// until the host had reported that it has taken the change over.
func (s *simulation) changes(ctx context.Context, n int) error {
	var took []time.Duration
	for i := range n {
		h, name, from := s.all[i*len(s.all)/n], fmt.Sprintf("change-%d-%d", os.Getpid(), i), time.Now()
		err := s.declare(ctx, h, name)
		if err == nil {
			err = taken(ctx, name, h)
		}
		if err != nil {
			return err
		}
		took = append(took, time.Since(from))
	}
	say(took, fmt.Sprintf("changes for one of %d hosts each, from declared to taken over", len(s.all)))
	return nil
}

// taken waits until hosts have taken an Instance over.
func taken(ctx context.Context, instance string, by ...*simulate.Host) error {
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(5 * time.Minute); len(by) > 0; {
		for len(by) > 0 && by[0].Runs(instance) {
			by = by[1:]
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case now := <-ticker.C:
			if now.After(end) {
				return fmt.Errorf("host %s has not taken Instance %s over", by[0].Name, instance)
			}
		}
	}
	return nil
}

func (s *simulation) instances() dynamic.NamespaceableResourceInterface {
	return s.client.Resource(api.Resource("instances"))
}

// declare makes an Instance on a host.
func (s *simulation) declare(ctx context.Context, h *simulate.Host, name string) error {
	u, err := api.To(map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": "Instance",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"command": []string{"true"},
			"lane": map[string]any{"cpus": map[string]any{"count": 1}}}})
	if err == nil {
		_, err = s.instances().Namespace(api.Namespace(h.Name)).Create(ctx, u, metav1.CreateOptions{})
	}
	return err
}

func (s *simulation) apps(space string) dynamic.ResourceInterface {
	return s.client.Resource(api.Resource("apps")).Namespace(space)
}

// make declares an App with one Instance.
func (s *simulation) make(ctx context.Context, space, name string, cpus lane.CPUs) error {
	u, err := api.To(map[string]any{"apiVersion": api.Group + "/" + api.Version, "kind": "App",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{
			"lane": map[string]any{"cpus": cpus}, "command": []string{"true"},
			"where": map[string]any{"sites": []string{"simulated"}}}})
	if err == nil {
		_, err = s.apps(space).Create(ctx, u, metav1.CreateOptions{})
	}
	return err
}

// app declares an App, and waits until it runs. It returns how long after its declaration a host was asked,
// as a client sees that watches, and how long after it ran.
func (s *simulation) app(ctx context.Context, name string) (asked, runs time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	by := metav1.ListOptions{LabelSelector: api.AppOf + "=" + simulated + "." + name}
	instances, err := s.instances().Watch(ctx, by)
	if err != nil {
		return 0, 0, err
	}
	defer instances.Stop()
	apps, err := s.apps(simulated).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return 0, 0, err
	}
	defer apps.Stop()
	from := time.Now()
	if err = s.make(ctx, simulated, name, lane.CPUs{Count: 1}); err != nil {
		return 0, 0, err
	}
	last := ""
	for {
		select {
		case <-instances.ResultChan():
			if asked == 0 {
				asked = time.Since(from)
			}
		case event, open := <-apps.ResultChan():
			if !open {
				return 0, 0, errors.New("app " + name + " does not run: " + strings.TrimSpace(last))
			}
			a, err := appOf(event.Object)
			if err != nil {
				return 0, 0, err
			}
			if last = a.Status.Phase + " " + a.Status.Message; a.Status.Phase == "Running" {
				return asked, time.Since(from), nil
			}
		}
	}
}

func appOf(o runtime.Object) (api.App, error) {
	u, err := api.To(o)
	if err != nil {
		return api.App{}, err
	}
	return api.From[api.App](u)
}
