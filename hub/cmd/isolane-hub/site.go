package main

import (
	"context"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"isolane.dev/isolane/hub/agent"
	"isolane.dev/isolane/hub/pods"
	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/workload"
	"isolane.dev/isolane/lanes"
)

// The commands of a host.

func agentFlags(name string, lo lanes.Options) (*flag.FlagSet, *agent.Options) {
	o := &agent.Options{Lanes: lo, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
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
	f, o := agentFlags("join", lo)
	f.StringVar(&name, "name", name, "of this host at the hub")
	h, err := parseHub(f, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err = agent.Join(ctx, *o, h, name); err == nil {
		fmt.Printf("joined as %s: isolane-hub agent follows the hub\n", name)
	}
	return err
}

func rehome(ctx context.Context, lo lanes.Options, args []string) error {
	f, o := agentFlags("rehome", lo)
	h, err := parseHub(f, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	name, err := agent.Rehome(ctx, *o, h)
	if err == nil {
		fmt.Printf("%s is of %s from now on, and what runs goes on\n", name, h.URL)
	}
	return err
}

func parseHub(f *flag.FlagSet, args []string) (h agent.Hub, err error) {
	text := f.String("token", "", "what isolane-hub token has printed")
	f.Func("authority", "likewise, of a hub on a Kubernetes that was there", func(word string) (err error) {
		h.Authority, err = base64.RawURLEncoding.DecodeString(word)
		return err
	})
	if h.URL, err = parse(f, args, "https://HUB:PORT"); err == nil {
		h.Token, err = sites.ParseToken(*text)
	}
	return h, err
}

func follow(ctx context.Context, lo lanes.Options, args []string) error {
	f, o := agentFlags("agent", lo)
	o.Users = workload.Users{First: 0x70000000, Last: 0x7000ffff} // beyond those of containers of systemd
	f.Var(&o.Users, "users", "users of this host that nobody has, FIRST-LAST: each tenant gets one")
	f.Func("root", "a tenant, the namespace of its Apps, whose commands may be root here; may be given again",
		func(tenant string) error {
			o.Users.Root = append(o.Users.Root, tenant)
			return nil
		})
	var c pods.Cluster
	f.StringVar(&c.Node, "node", "", "this host is that node of a Kubernetes cluster: Instances are pods "+
		"there, with claims that isolane-kube answers")
	f.StringVar(&c.Namespace, "namespace", "isolane-hub", "of the cluster, where nobody else has pods")
	file := f.String("kubeconfig", "", "of the cluster; a pod of it needs none")
	if _, err := parse(f, args, ""); err != nil {
		return err
	}
	if c.Node == "" && *file != "" {
		return errors.New("--node: expected the name of this host in the cluster")
	}
	if c.Node != "" {
		config, err := clientcmd.BuildConfigFromFlags("", *file)
		if err != nil {
			return fmt.Errorf("--kubeconfig %s: %w", *file, err)
		}
		if c.Client, err = kubernetes.NewForConfig(config); err != nil {
			return err
		}
		o.Cluster = &c
	}
	return agent.Run(ctx, *o)
}

func status(ctx context.Context, lo lanes.Options, args []string) error {
	f, o := agentFlags("status", lo)
	if _, err := parse(f, args, ""); err != nil {
		return err
	}
	return agent.Status(ctx, *o, os.Stdout)
}

func hold(ctx context.Context, lo lanes.Options, args []string) error {
	f, o := agentFlags("hold", lo)
	reason := f.String("reason", "", "for those who ask why nothing changes")
	text, err := parse(f, args, "for how long, as 2h, or 0")
	if err != nil {
		return err
	}
	left, err := time.ParseDuration(text)
	if err != nil || left < 0 {
		return fmt.Errorf("hold: expected for how long, as 2h or 30m, or 0, found %q", text)
	}
	if left > 0 && *reason == "" {
		return fmt.Errorf("--reason: expected why changes are put off")
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	taken, err := agent.Hold(ctx, *o, left, *reason)
	switch {
	case err != nil:
		return err
	case left == 0:
		fmt.Println("changes are taken over again")
	default:
		fmt.Printf("changes are put off for %s in which the host runs\n", left)
	}
	if !taken {
		fmt.Println("no agent runs: it does so before anything else when it begins")
	}
	return nil
}
