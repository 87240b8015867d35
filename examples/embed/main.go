// Command embed makes a lane of one CPU, runs a command in it, and releases it: Isolane as a library.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/exec"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/netpath/drivers"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	o := lanes.Options{Paths: drivers.Paths(), Ops: drivers.Ops(), Wait: func(h journal.Holder) { log.Print(h) }}
	if did, err := lanes.Entry(ctx, o, os.Args); did { // it was started to become the command
		log.Fatal(err)
	}
	flag.TextVar(&o.CPUs, "cpus", cpuset.Set{}, "CPUs that lanes may have; none: those of this process")
	flag.Parse()
	if err := run(ctx, o, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, o lanes.Options, argv []string) (err error) {
	l, _, err := lanes.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	want := lane.Lane{Metadata: lane.Metadata{Name: "embedded"}, Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}}
	if _, err = l.PutLanes(ctx, []lane.Lane{want}, false); err != nil {
		return err // a *plan.Refusal says what would help
	}
	defer func() {
		_, rerr := l.Release(context.WithoutCancel(ctx), "embedded")
		err = errors.Join(err, rerr)
	}()
	cmd, err := l.Start(ctx, "embedded", argv, func(c *exec.Cmd) { c.Stdout, c.Stderr = os.Stdout, os.Stderr })
	if err != nil {
		return err
	}
	return cmd.Wait()
}
