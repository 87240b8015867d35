package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/cpuset"
)

const (
	look    = 50 * time.Millisecond // between two looks at all threads
	fewest  = 10                    // of these looks at least, on a slow machine
	wanting = 5                     // a thread is busy if it wants a CPU for this part of the time (1/wanting)
)

// used is what a thread did during the count.
type used struct {
	thread
	run, wait time.Duration
	on        cpuset.Set // where it ran
}

// count is what threads did on their lane's CPUs.
type count struct {
	lane    cpuset.Set
	work    cpuset.Set // the CPUs of the lane that should be used
	window  time.Duration
	threads map[int]used
	perCPU  map[int]time.Duration
	waited  time.Duration
	looks   int
	beside  int // looks that found a CPU of the lane without a runnable thread, and two on another
}

// measure looks at the threads of processes and of all their descendants.
func measure(lane, work cpuset.Set, window time.Duration, pids ...int) (count, error) {
	c := count{lane: lane, work: work, threads: map[int]used{}, perCPU: map[int]time.Duration{}}
	var before map[int]thread
	for began := time.Now(); ; <-time.After(look) {
		all, err := tree(pids...)
		if err != nil {
			return c, err
		}
		now, err := threads(all)
		if err != nil {
			return c, err
		}
		if before != nil {
			c.add(before, now)
		}
		before = now
		if c.window = time.Since(began); c.window >= window && c.looks >= fewest {
			return c, nil
		}
	}
}

// add adds what happened between two looks.
func (c *count) add(before, now map[int]thread) {
	runnable := map[int]int{}
	for tid, t := range now {
		if t.running {
			runnable[t.cpu]++
		}
		b, known := before[tid]
		if !known {
			continue // counted from the next look on
		}
		u := c.threads[tid]
		run := t.run - b.run
		u.thread, u.run, u.wait = t, u.run+run, u.wait+t.wait-b.wait
		c.waited += t.wait - b.wait
		if run > 0 {
			u.on = u.on.Union(cpuset.Of(t.cpu))
			c.perCPU[t.cpu] += run
		}
		c.threads[tid] = u
	}
	c.looks++
	idle, queue := false, false
	for cpu := range c.work.All() {
		idle, queue = idle || runnable[cpu] == 0, queue || runnable[cpu] > 1
	}
	if idle && queue {
		c.beside++
	}
}

// busy returns how many threads wanted a CPU.
func (c count) busy() int {
	n := 0
	for _, u := range c.threads {
		if (u.run+u.wait)*wanting >= c.window {
			n++
		}
	}
	return n
}

// faults says what is not as in a lane in which so many threads should be busy.
func (c count) faults(busy int) []string {
	var found []string
	if c.busy() < busy {
		found = append(found, fmt.Sprintf("expected %d busy threads, found %d: it is not loaded", busy, c.busy()))
	}
	for _, tid := range slices.Sorted(maps.Keys(c.threads)) {
		u := c.threads[tid]
		if out := u.on.Difference(c.lane); !out.IsEmpty() {
			found = append(found,
				fmt.Sprintf("thread %d (%s) ran on CPUs %s, outside of the lane's", tid, u.comm, out))
		}
		list, err := allowed(u.thread)
		if gone(err) {
			continue
		}
		if cpus, perr := cpuset.Parse(list); err != nil || perr != nil || !cpus.IsSubsetOf(c.lane) {
			found = append(found,
				fmt.Sprintf("thread %d (%s) may use CPUs %s, outside of the lane's", tid, u.comm, list))
		}
	}
	least, most := c.window, time.Duration(0)
	for cpu := range c.work.All() {
		least, most = min(least, c.perCPU[cpu]), max(most, c.perCPU[cpu])
	}
	// A third: the kernel may take some milliseconds to move a thread to a CPU that has become idle. A tenth, if
	// one CPU does less than half of another's work.
	if c.beside*3 > c.looks || c.beside*10 > c.looks && least*2 < most {
		found = append(found, fmt.Sprintf(
			"a CPU of the lane was idle beside another with a queue at %d of %d looks", c.beside, c.looks))
	}
	return found
}

// write prints the figures: what each CPU, and each thread that ran, did.
func (c count) write(w io.Writer) {
	s := func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
	var cpus []string
	for _, cpu := range slices.Sorted(maps.Keys(c.perCPU)) {
		cpus = append(cpus, fmt.Sprintf("CPU %d %s", cpu, s(c.perCPU[cpu])))
	}
	fmt.Fprintf(w, "  in %s: %s; waited %s, idle beside a queue at %d of %d looks\n",
		s(c.window), strings.Join(cpus, ", "),
		s(c.waited), c.beside, c.looks)
	for _, tid := range slices.Sorted(maps.Keys(c.threads)) {
		if u := c.threads[tid]; u.run*100 >= c.window {
			fmt.Fprintf(w, "  thread %d (%s): ran %s on CPUs %s, waited %s\n", tid, u.comm, s(u.run), u.on, s(u.wait))
		}
	}
}
