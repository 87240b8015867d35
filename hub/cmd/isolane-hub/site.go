package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	local "isolane.dev/isolane/agent"
	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/hub/agent"
	"isolane.dev/isolane/hub/pods"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/workload"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/unit"
	"isolane.dev/isolane/version"
)

// The commands of a host.

// agentFlags adds the flags that all commands of a host have.
func agentFlags(cmd *cobra.Command, lo lanes.Options) *agent.Options {
	o := &agent.Options{Lanes: lo, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	cmd.Flags().StringVar(&o.Dir, "dir", "/var/lib/isolane-hub-agent",
		"folder of this host's key, certificates and state")
	return o
}

func joinCommand(lo lanes.Options) *cobra.Command {
	whole, unnamed := os.Hostname()
	name := hostName(whole)
	cmd := &cobra.Command{
		Use:   "join https://HUB:PORT --token T",
		Short: "Join a hub with this host",
		Args:  cobra.ExactArgs(1),
	}
	o, h := agentFlags(cmd, lo), hubFlags(cmd)
	start := true
	cmd.Flags().StringVar(&name, "name", name, "name of this host at the hub")
	cmd.Flags().BoolVar(&start, "start", start, "start "+agentUnit+" too, now and at each boot, if systemd "+
		"has it; not on a node of a cluster, whose agent is a pod")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if name == "" {
			return errors.Join(errors.New("--name: expected one for this host"), unnamed)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
		defer cancel()
		hub, err := h.read(args[0])
		if err != nil {
			return err
		}
		if err = agent.Join(ctx, *o, hub, name); err != nil {
			return err
		}
		next, err := "next: isolane-hub agent", error(nil)
		switch {
		case cmd.Flags().Changed("dir"): // not the folder of the unit
			next += " --dir " + o.Dir
		case start:
			var has bool
			if has, err = startAgent(cmd.Context()); has {
				next = "its agent runs, now and at each boot: " + agentUnit
			}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "joined as %s; %s\n", name, next)
		return err
	}
	return cmd
}

// agentUnit is the unit of the package isolane-hub, which starts the agent of a host that has joined.
const agentUnit = "isolane-hub-agent.service"

// startAgent starts the agent by its unit, and reports whether it runs. Where systemd is not process 1, or
// has no such unit, it does nothing.
func startAgent(ctx context.Context) (bool, error) {
	_, err := os.Stat("/run/systemd/system") // sd_booted(3)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	s, err := unit.Find(ctx, agentUnit)
	if _, none := errors.AsType[*unit.InputError](err); none {
		return false, nil
	}
	if err == nil {
		err = s.Enable(ctx)
	}
	if err != nil {
		return false, fmt.Errorf("the host has joined, and its agent was not started: %w", err)
	}
	return true, nil
}

// hostName returns the default name of a machine at its hub: its host name without the domain.
func hostName(whole string) string {
	name, _, _ := strings.Cut(strings.ToLower(whole), ".")
	return name
}

func rehomeCommand(lo lanes.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rehome https://HUB:PORT --token T",
		Short: "Move this host to another hub, or to a restored one; what runs goes on",
		Args:  cobra.ExactArgs(1),
	}
	o, h := agentFlags(cmd, lo), hubFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
		defer cancel()
		hub, err := h.read(args[0])
		if err != nil {
			return err
		}
		name, err := agent.Rehome(ctx, *o, hub)
		if err == nil {
			fmt.Fprintf(cmd.OutOrStdout(), "%s follows %s from now on, and what runs goes on\n", name, hub.URL)
		}
		return err
	}
	return cmd
}

// invitation is what a hub has printed for a host to join.
type invitation struct{ token, authority string }

func hubFlags(cmd *cobra.Command) *invitation {
	i := &invitation{}
	cmd.Flags().StringVar(&i.token, "token", "", "token that isolane-hub token has printed")
	cmd.Flags().StringVar(&i.authority, "authority", "",
		"certificate that isolane-hub token has printed, of a hub on an existing Kubernetes")
	return i
}

func (i *invitation) read(at string) (agent.Hub, error) {
	h := agent.Hub{URL: at}
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "https" || u.Port() == "" {
		return h, cli.Usage(fmt.Errorf("hub %q: expected https://ADDRESS:PORT", at))
	}
	if h.Authority, err = base64.RawURLEncoding.DecodeString(i.authority); err != nil {
		return h, cli.Usage(fmt.Errorf("--authority: expected what isolane-hub token has printed: %w", err))
	}
	h.Token, err = sites.ParseToken(i.token)
	return h, cli.Usage(err)
}

func agentCommand(lo lanes.Options) *cobra.Command {
	cmd := &cobra.Command{Use: "agent", Short: "Follow the hub that this host has joined; look after its lanes"}
	o := agentFlags(cmd, lo)
	o.Users = workload.Users{First: 0x70000000, Last: 0x7000ffff} // above those that systemd gives to containers
	var c pods.Cluster
	var file string
	f := cmd.Flags()
	f.Func("users", "user ids that nobody has on this host, `FIRST-LAST`: each tenant gets one (default "+
		o.Users.String()+")", o.Users.Set)
	f.StringArrayVar(&o.Users.Root, "root", nil,
		"tenant (namespace of its Apps) whose commands may run as root here; may be given again")
	f.StringVar(&c.Node, "node", "", "name of this host as a node of a Kubernetes cluster: its Instances are "+
		"then pods there, with claims that isolane-kube answers")
	f.StringVar(&c.Namespace, "namespace", "isolane-hub", "namespace of these pods, where nobody else has any")
	f.StringVar(&file, "kubeconfig", "", "file of the cluster; an agent in a pod of it needs none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if c.Node == "" && file != "" {
			return cli.Usage(errors.New("--node: expected the name of this host in the cluster"))
		}
		if c.Node != "" {
			config, err := clientcmd.BuildConfigFromFlags("", file)
			if err != nil {
				return cli.Usage(fmt.Errorf("--kubeconfig %s: %w", file, err))
			}
			if c.Client, err = kubernetes.NewForConfig(config); err != nil {
				return err
			}
			o.Cluster = &c
			h, err := host.Read(host.Live())
			if err != nil {
				return err
			}
			// As isolane-kube: its own container may be kept off the CPUs of lanes.
			o.Lanes.CPUs, o.Lanes.MemoryNodes = h.Online(), h.MemoryNodes()
			return agent.Run(cmd.Context(), *o)
		}
		return alone(cmd.Context(), *o)
	}
	return cmd
}

// alone runs the agent of a host whose Instances are processes. It also looks after all lanes of the host, as
// isolane agent does, if that does not run. A host whose lanes cannot be read follows its hub all the same.
func alone(ctx context.Context, o agent.Options) error {
	whole, err := local.Whole(o.Lanes)
	if err != nil {
		o.Log.WarnContext(ctx, "not done", "what", "looking after lanes", "error", err)
		return agent.Run(ctx, o)
	}
	o.Lanes = whole
	ctx, cancel := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() { lookAfter(ctx, o.Lanes, o.Log) })
	err = agent.Run(ctx, o)
	cancel()
	looks.Wait()
	return err
}

// agentStartTime is how long isolane agent has to start before this program looks after lanes instead: what
// people have configured for isolane agent comes first.
const agentStartTime = 10 * time.Second

func lookAfter(ctx context.Context, lo lanes.Options, log *slog.Logger) {
	o := local.Options{Lanes: lo.Complete(), Interval: local.Interval, Repair: true, Log: log,
		History: history.Place(), Version: version.Of().Version, Socket: local.Socket()}
	said := ""
	for wait := agentStartTime; ; wait = time.Minute {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		err := local.Run(ctx, o)
		_, other := errors.AsType[*local.ServedError](err)
		if err == nil || other || err.Error() == said {
			continue
		}
		said = err.Error()
		log.WarnContext(ctx, "not done", "what", "looking after lanes", "error", err)
	}
}

func statusCommand(lo lanes.Options) *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show what this host runs for its hub, which need not be there"}
	o := agentFlags(cmd, lo)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return agent.Status(cmd.Context(), *o, cmd.OutOrStdout())
	}
	return cmd
}

func holdCommand(lo lanes.Options) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "hold {DURATION | 0}",
		Short: "Postpone the hub's changes, such as 2h, in which downtime does not count; 0: no longer",
		Args:  cobra.ExactArgs(1),
	}
	o := agentFlags(cmd, lo)
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who see that nothing changes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		left, err := time.ParseDuration(args[0])
		if err != nil || left < 0 {
			return cli.Usage(fmt.Errorf("expected for how long, as 2h or 30m, or 0, found %q", args[0]))
		}
		if left > 0 && reason == "" {
			return cli.Usage(errors.New("--reason: expected why changes are put off"))
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 30*time.Second)
		defer cancel()
		taken, err := agent.Hold(ctx, *o, left, reason)
		out := cmd.OutOrStdout()
		switch {
		case err != nil:
			return err
		case left == 0:
			fmt.Fprintln(out, "changes are taken over again")
		default:
			fmt.Fprintf(out, "changes are put off for %s; time in which the host is down does not count\n", left)
		}
		if !taken {
			fmt.Fprintln(out, "no agent runs: it does so before anything else when it begins")
		}
		return nil
	}
	return cmd
}

// attachCommand is what the drop-ins of services run when a service begins.
func attachCommand(lo lanes.Options) *cobra.Command {
	return &cobra.Command{Use: "attach", Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return workload.Attach(cmd.Context(), lo, args) }}
}
