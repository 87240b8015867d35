package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"isolane.dev/isolane/hub/agent"
	"isolane.dev/isolane/hub/sites"
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
	url, t, err := parseToken(f, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err = agent.Join(ctx, *o, url, name, t); err == nil {
		fmt.Printf("joined as %s: isolane-hub agent follows the hub\n", name)
	}
	return err
}

func rehome(ctx context.Context, lo lanes.Options, args []string) error {
	f, o := agentFlags("rehome", lo)
	url, t, err := parseToken(f, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	name, err := agent.Rehome(ctx, *o, url, t)
	if err == nil {
		fmt.Printf("%s is of %s from now on, and what runs goes on\n", name, url)
	}
	return err
}

func parseToken(f *flag.FlagSet, args []string) (url string, t sites.Token, err error) {
	text := f.String("token", "", "what isolane-hub token has printed")
	if url, err = parse(f, args, "https://HUB:PORT"); err == nil {
		t, err = sites.ParseToken(*text)
	}
	return url, t, err
}

func follow(ctx context.Context, lo lanes.Options, args []string) error {
	f, o := agentFlags("agent", lo)
	if _, err := parse(f, args, ""); err != nil {
		return err
	}
	return agent.Run(ctx, *o)
}

func status(_ context.Context, lo lanes.Options, args []string) error {
	f, o := agentFlags("status", lo)
	if _, err := parse(f, args, ""); err != nil {
		return err
	}
	return agent.Status(*o, os.Stdout)
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
