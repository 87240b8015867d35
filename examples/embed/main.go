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
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if did, err := lanes.Entry(ctx, lanes.Options{}, os.Args); did { // it was started to become the command
		log.Fatal(err)
	}
	cpus := flag.String("cpus", "", "CPUs that lanes may have; without it, those that this process may use")
	flag.Parse()
	if err := run(ctx, *cpus, flag.Args()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, list string, argv []string) (err error) {
	cpus, err := cpuset.Parse(list)
	if err != nil {
		return err
	}
	l, _, err := lanes.Open(ctx, lanes.Options{CPUs: cpus, Wait: func(h journal.Holder) { log.Print(h) }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	want := lane.Lane{Metadata: lane.Metadata{Name: "embedded"}, Spec: lane.Spec{CPUs: lane.CPUs{Count: 1}}}
	placement, _, err := l.Want([]lane.Lane{want}, false)
	if err != nil {
		return err // a *plan.Refusal says what would help
	}
	if _, err = l.Put(ctx, placement); err != nil {
		return err
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
