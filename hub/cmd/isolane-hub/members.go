package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
)

// A hub of several machines.

func membersCommand() *cobra.Command {
	var a admin
	var remove string
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the machines of a hub, or remove one",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := a.config()
			if err == nil && remove != "" {
				err = a.Remove(cmd.Context(), remove)
			}
			if err != nil {
				return err
			}
			all, _, err := a.Members(cmd.Context())
			for _, m := range all {
				fmt.Fprintln(cmd.OutOrStdout(),
					m.Name+map[bool]string{true: " (does not have all of the store yet)"}[m.Learner])
			}
			return err
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&remove, "remove", "", "machine that is no longer part of the hub, `ADDRESS:PORT`")
	return cmd
}

func inviteCommand() *cobra.Command {
	var a admin
	var recipient, address string
	cmd := &cobra.Command{
		Use:   "invite FILE --address HOST:PORT --recipient age1…",
		Short: "Write the encrypted file by which another machine becomes part of this hub",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := a.config(); err != nil {
				return err
			}
			to, err := sealedFor(recipient)
			if err != nil {
				return err
			}
			err = written(args[0], func(w io.Writer) error { return a.Invite(cmd.Context(), w, address, to) })
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(),
					"%s: next, on %s: isolane-hub accept, then isolane-hub up with that --address and --port\n",
					args[0], address)
			}
			return err
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&address, "address", "", "by which hosts will reach the other machine, `ADDRESS:PORT`")
	cmd.Flags().StringVar(&recipient, "recipient", "",
		"public key of age, age1…, whose identity is on that machine")
	return cmd
}

func acceptCommand() *cobra.Command {
	return unsealed("accept", "Make the hub's folder on a machine that was invited", up.Options.Accept,
		"isolane-hub up starts it, with the --address and --port of its invitation")
}

// tend looks after the members of a hub, and tells hosts their addresses, until the context ends.
func tend(ctx context.Context, core kubernetes.Interface, o up.Options, log *slog.Logger) {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	said := ""
	for {
		all, err := o.Tend(ctx)
		var urls []string
		for _, m := range all {
			if !m.Learner {
				urls = append(urls, "https://"+m.Name)
			}
		}
		if now := strings.Join(urls, ","); err == nil && now != said {
			if err = sites.AnnounceURLs(ctx, core, now); err == nil {
				said = now
			}
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "hosts do not hear of other hubs", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// leaseDuration is how long a hub that is away still leads, at most. A leader that does not reach the store
// stops after renewDeadline. A leader renews its lead each retryPeriod.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// lead runs do while this hub leads, until the context ends. A hub that restarts under the same name goes on
// at once.
func lead(ctx context.Context, core kubernetes.Interface, name string, do func(context.Context)) error {
	lock := &resourcelock.LeaseLock{Client: core.CoordinationV1(),
		LeaseMeta:  metav1.ObjectMeta{Namespace: sites.Own, Name: "isolane-hub"},
		LockConfig: resourcelock.ResourceLockConfig{Identity: name}}
	doing := make(chan struct{}, 1) // full while this hub leads
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { // another hub leads after do has returned here
		doing <- struct{}{}
		stop()
		<-doing
	})()
	for ctx.Err() == nil {
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{Lock: lock,
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
			ReleaseOnCancel: true, Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {},
				OnStartedLeading: func(leading context.Context) {
					doing <- struct{}{}
					defer func() { <-doing }()
					leading, end := context.WithCancel(leading)
					defer end()
					defer context.AfterFunc(ctx, end)()
					if ctx.Err() == nil {
						do(leading)
					}
				}}})
		if err != nil {
			return err
		}
		e.Run(electing)
		doing <- struct{}{} // once do has returned
		<-doing
	}
	return nil
}
