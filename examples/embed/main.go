// Command embed makes a lane of one CPU, runs a command in it, and releases it: Isolane as a library.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"time"

	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if did, err := lanes.Entry(ctx, os.Args); did { // this program was started again to become the command
		log.Fatal(err)
	}
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, argv []string) (err error) {
	wait := func(h journal.Holder) { log.Printf("waiting for %s, which changes the host", h) }
	l, _, err := lanes.Open(ctx, lanes.Options{Wait: wait})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	want := lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind, Metadata: lane.Metadata{Name: "embedded"},
		Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}}
	placement, _, err := l.Want([]lane.Lane{want}, false)
	if err != nil {
		return err // a *plan.Refusal says what would help
	}
	applied, err := l.Put(ctx, placement)
	if err != nil {
		return err
	}
	defer func() {
		_, rerr := l.Release(context.WithoutCancel(ctx), "embedded")
		err = errors.Join(err, rerr)
	}()
	fmt.Printf("%d settings changed\n", applied.Settings)
	cmd, err := l.Start(ctx, "embedded", argv, func(c *exec.Cmd) { c.Stdout, c.Stderr = os.Stdout, os.Stderr })
	if err != nil {
		return err
	}
	return cmd.Wait()
}
