// Programs tries lanes with real programs: it has one table of them, starts each by isolane run or takes it
// into a lane by isolane attach, loads it so that it has more busy threads than the lane has CPUs, and counts
// where each thread ran.
//
//	programs run --lane web [--for 10s] [--threads 4] [nginx ...]
//	programs attach --lane web [nginx ...]
//	programs check --lane web [--cpus 4-5] --busy 4 PID...
//
// Exit code 0: all as in a lane. 1: it is not, or could not be tried.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"isolane.dev/isolane/cpuset"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "programs:", err)
		os.Exit(1)
	}
}

func command(args []string) error {
	if len(args) == 0 {
		return errors.New("expected run, attach or check")
	}
	switch args[0] {
	case "spin", "http", "memcache":
		return load(args[0], args[1:])
	}
	var t trial
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	flags.StringVar(&t.lane, "lane", "", "lane that is in force")
	cpus := flags.String("cpus", "", "those to be used; all of the lane")
	flags.DurationVar(&t.window, "for", 10*time.Second, "how long to count")
	flags.IntVar(&t.threads, "threads", 0, "how many are busy; one more than CPUs")
	busy := flags.Int("busy", 0, "check: how many threads must be busy")
	_ = flags.Parse(args[1:]) // it exits
	var err error
	if t.cpus, err = laneCPUs(t.lane); err != nil {
		return err
	}
	t.work = t.cpus
	if *cpus != "" {
		if t.work, err = cpuset.Parse(*cpus); err != nil {
			return err
		}
	}
	if t.threads == 0 {
		t.threads = t.work.Len() + 1
	}
	switch args[0] {
	case "run", "attach":
		t.attach = args[0] == "attach"
		return t.all(flags.Args())
	case "check":
		return t.check(*busy, flags.Args())
	}
	return fmt.Errorf("%s: expected run, attach or check", args[0])
}

// load runs the loads that are programs of the table, or load these.
func load(what string, args []string) error {
	var numbers []int
	for _, a := range args {
		n, err := strconv.Atoi(a)
		if err != nil {
			return err
		}
		numbers = append(numbers, n)
	}
	switch {
	case what == "spin" && len(numbers) == 1:
		spin(numbers[0])
	case what == "http" && len(numbers) == 2:
		client(numbers[0], numbers[1], askHTTP())
	case what == "memcache" && len(numbers) == 2:
		client(numbers[0], numbers[1], askMemcache)
	}
	return fmt.Errorf("%s: expected its numbers", what)
}

// all tries the named programs, or the whole table. Each is tried, whatever came before.
func (t trial) all(names []string) error {
	var errs []error
	known := 0
	for _, p := range table() {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		known++
		if err := t.try(p); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	if known < max(1, len(names)) {
		errs = append(errs, fmt.Errorf("%v: expected programs of the table", names))
	}
	return errors.Join(errs...)
}

// check counts programs that already run.
func (t trial) check(busy int, args []string) error {
	var pids []int
	for _, a := range args {
		pid, err := strconv.Atoi(a)
		if err != nil {
			return err
		}
		pids = append(pids, pid)
	}
	if err := t.loaded(busy, pids...); err != nil {
		return err
	}
	return t.count("processes", busy, pids...)
}
