package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"filippo.io/age"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"isolane.dev/isolane/hub/sites"
	"isolane.dev/isolane/hub/up"
	"isolane.dev/isolane/lanes"
)

// Several hubs that are one.

// list prints the hubs, or removes one.
func list(ctx context.Context, _ lanes.Options, args []string) error {
	var remove string
	_, c, o, err := admin("members", args, "", nil, func(f *flag.FlagSet) {
		f.StringVar(&remove, "remove", "", "a hub, ADDRESS:PORT, that is one no more")
	})
	if err == nil {
		err = locate(&o, c)
	}
	if err == nil && remove != "" {
		err = o.Remove(ctx, remove)
	}
	if err != nil {
		return err
	}
	all, _, err := o.Members(ctx)
	for _, m := range all {
		fmt.Println(m.Name + map[bool]string{true: " (has not all that the others have yet)"}[m.Learner])
	}
	return err
}

func invite(ctx context.Context, _ lanes.Options, args []string) error {
	var recipient, address string
	file, c, o, err := admin("invite", args, "a file", nil, func(f *flag.FlagSet) {
		f.StringVar(&address, "address", "", "of the other hub, ADDRESS:PORT")
		f.StringVar(&recipient, "recipient", "", "public key of age, age1…, whose identity is on its machine")
	})
	if err == nil {
		err = locate(&o, c)
	}
	if err != nil {
		return err
	}
	to, err := age.ParseX25519Recipient(recipient)
	if err != nil {
		return fmt.Errorf("--recipient: expected a public key of age, as age-keygen prints it: %w", err)
	}
	if err = written(file, func(w io.Writer) error { return o.Invite(ctx, w, address, to) }); err == nil {
		fmt.Printf("%s: on its machine isolane-hub accept, and then up --address, --port as here\n", file)
	}
	return err
}

func accept(_ context.Context, _ lanes.Options, args []string) error {
	return unsealed("accept", args, up.Options.Accept,
		"isolane-hub up starts it, with the address of its invitation")
}

// tend looks after the members of a hub, and tells hosts where they are, until the context ends.
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
			if err = sites.Announce(ctx, core, now); err == nil {
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

// How long a hub that is away leads, at most; when one that does not reach the store stops; and how often it
// says that it is there.
const (
	reign = 15 * time.Second
	doubt = 10 * time.Second
	claim = 2 * time.Second
)

// lead does something while this hub is the one of all that does it, until the context ends. A hub that is
// started again with the same name goes on at once.
func lead(ctx context.Context, core kubernetes.Interface, name string, do func(context.Context)) error {
	lock := &resourcelock.LeaseLock{Client: core.CoordinationV1(),
		LeaseMeta:  metav1.ObjectMeta{Namespace: sites.Own, Name: "isolane-hub"},
		LockConfig: resourcelock.ResourceLockConfig{Identity: name}}
	doing := make(chan struct{}, 1) // full while this hub leads
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { // another hub leads when this one has ended what it did
		doing <- struct{}{}
		stop()
		<-doing
	})()
	for ctx.Err() == nil {
		e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{Lock: lock,
			LeaseDuration: reign, RenewDeadline: doubt, RetryPeriod: claim, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStoppedLeading: func() {},
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
		doing <- struct{}{} // when what it did has ended
		<-doing
	}
	return nil
}
