// Package guard finds what somebody else changes of the lanes in force, each time it is called. It names who
// did it, if the kernel tells, and restores it.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// Guard watches what is in force and restores it.
type Guard struct {
	dir      string
	root     fs.FS
	drivers  enforce.Drivers
	lanes    *enforce.Lanes // only read
	want     *enforce.Wanted
	groups   []enforce.LaneGroup
	writers  *writers
	contents *contents

	lastEvents      events
	wideBefore      []string                  // as events.wide, including cgroups that are new
	newlyWide       []string                  // of these, those that were not wide at the look before
	planned         []journal.Step            // what was wanted at the look before
	started         map[string]map[int]uint64 // by lane: its processes, and when each started
	reported        map[string]string         // what the last Check found, by the drift's name
	left            []enforce.Drift
	repairs         map[string][]time.Time
	failed          map[string]failure // what could not be put back, by the drift's name
	takeBackFailure failure            // what could not be taken back
}

// failure is a failed attempt to put something back or to take it back.
type failure struct {
	note string
	last time.Time
	wait time.Duration // until it is tried again
}

// failedAgain returns the failure after one more attempt.
func (f failure) failedAgain(note string) failure {
	return failure{note, time.Now(), min(max(2*f.wait, minRetryWait), maxRetryWait)}
}

// mustWait reports whether it is too early for the next attempt.
func (f failure) mustWait() bool { return time.Since(f.last) < f.wait }

// events changes when interrupts, threads, CPUs, lanes or workloads come or go.
type events struct {
	online                     cpuset.Set
	interrupts, applied, ended string // ended: attached cgroups in which nothing runs any more
	wide                       string // cgroups that have CPUs of lanes, and are no lanes
	tasks                      map[int]bool
}

// New returns a Guard of the lanes that are in force according to the state in dir.
func New(dir string, root fs.FS, d enforce.Drivers) (*Guard, error) {
	g := &Guard{dir: dir, root: root, drivers: d, writers: newWriters(), contents: newContents(root),
		started: map[string]map[int]uint64{}, reported: map[string]string{}, repairs: map[string][]time.Time{}}
	s, err := g.readEvents()
	if err != nil {
		return nil, err
	}
	return g, g.replan(s)
}

// Close ends the watch.
func (g *Guard) Close() error {
	g.contents.close()
	return g.writers.close()
}

// readEvents reads what shows whether there is something new to check.
func (g *Guard) readEvents() (events, error) {
	s := events{tasks: map[int]bool{}}
	var err error
	if s.online, err = host.Online(g.root); err != nil {
		return s, err
	}
	interrupts, err := fs.ReadDir(g.root, "proc/irq")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	var names strings.Builder
	for _, e := range interrupts {
		names.WriteString(e.Name() + " ")
	}
	for _, group := range g.groups { // the number of an interrupt may be given to another one
		for _, i := range group.Lane.Interrupts {
			actions, _ := fs.Glob(g.root, fmt.Sprintf("proc/irq/%d/*", i.IRQ)) // an error only of a bad pattern
			names.WriteString(strings.Join(actions, " "))
		}
	}
	s.interrupts = names.String()
	if s.applied, err = enforce.State(g.dir); err != nil {
		return s, err
	}
	if g.lanes != nil {
		for _, at := range g.lanes.Attached {
			if at.Own && !cgroup.Populated(g.root, at.Group) {
				s.ended += at.Group + " "
			}
		}
	}
	tasks, err := task.Processes(g.root)
	for _, pid := range tasks {
		s.tasks[pid] = true
	}
	return s, err
}

// replan plans again what is wanted. If that fails, the former plan stays.
func (g *Guard) replan(s events) error {
	l, err := enforce.Look(g.dir, g.root, g.drivers)
	if err != nil {
		return err
	}
	want, err := l.Wanted()
	if err != nil {
		return err
	}
	groups, err := l.Groups()
	if err != nil {
		return err
	}
	g.lanes, g.want, g.groups, g.failed, g.takeBackFailure = l, want, groups, map[string]failure{}, failure{}
	for _, s := range g.want.Steps() {
		if filepath.IsAbs(s.Target) {
			g.writers.watch(s.Target)
		}
	}
	g.lastEvents = s
	return nil
}

// Check returns what is not in force, if the last Check did not find it or found it otherwise. With repair it
// puts it back, unless somebody else changes it again and again.
func (g *Guard) Check(ctx context.Context, repair bool) ([]enforce.Drift, error) {
	if _, err := g.writers.read(); err != nil {
		return nil, err
	}
	now, err := g.readEvents()
	if err != nil {
		return nil, err
	}
	if now.ended != "" && repair {
		if err = g.moveOrphans(ctx); err != nil {
			return nil, err
		}
		if now, err = g.readEvents(); err != nil {
			return nil, err
		}
	}
	now.wide = g.wide()
	if last := g.lastEvents; now.online != last.online || now.interrupts != last.interrupts ||
		now.applied != last.applied || now.ended != last.ended || now.wide != last.wide {
		if err = g.replan(now); err != nil {
			return nil, err
		}
	} else if err = g.addNewTasks(now); err != nil {
		return nil, err
	}
	steps, err := g.want.Drift(ctx, g.contents.equals)
	if err != nil {
		return nil, err
	}
	steps = slices.DeleteFunc(steps, g.isOwnChoice)
	steps = slices.DeleteFunc(steps, g.isJustMade)
	g.planned = g.want.Steps()
	for i, d := range steps {
		steps[i].By = g.writers.lastWriter(d.Step.Target)
	}
	if repair {
		if err = g.repair(ctx, steps); err != nil {
			return nil, err
		}
	}
	gone, err := g.lostProcesses()
	g.left = slices.DeleteFunc(slices.Clone(steps), func(d enforce.Drift) bool { return d.Repaired })
	return g.newDrift(slices.Concat(steps, gone)), err
}

// moveOrphans gives lanes a cgroup again if they were in the cgroup of a workload that has ended.
func (g *Guard) moveOrphans(ctx context.Context) error {
	l, err := enforce.Open(g.dir, g.root, g.drivers)
	if errors.Is(err, journal.ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Apply(ctx, l.Placement)
}

// Left returns what the last Check found and did not put back.
func (g *Guard) Left() []enforce.Drift { return g.left }

// addNewTasks adds what is wanted of new kernel threads.
func (g *Guard) addNewTasks(now events) error {
	for pid := range now.tasks {
		if g.lastEvents.tasks[pid] {
			continue
		}
		if err := g.want.AddThread(pid); err != nil {
			return err
		}
	}
	g.lastEvents.tasks = now.tasks
	return nil
}

// maxRepairs is how often the same drift is put back within a minute. After a failed attempt the wait
// doubles: from minRetryWait, because a later step may have been in the way, to maxRetryWait.
const (
	maxRepairs   = 3
	minRetryWait = 500 * time.Millisecond
	maxRetryWait = time.Minute
)

// repair puts back what it can, and takes back what had to wait. It does nothing while another isolane
// process changes the host.
func (g *Guard) repair(ctx context.Context, found []enforce.Drift) error {
	maps.DeleteFunc(g.failed, func(name string, _ failure) bool {
		return !slices.ContainsFunc(found, func(d enforce.Drift) bool { return d.Name == name })
	})
	var todo []*enforce.Drift
	for i := range found {
		if d := &found[i]; d.Note == "" && !g.isContested(d) && !g.mustWait(d) { // a note says who is to act
			todo = append(todo, d)
		}
	}
	var unfinished []journal.Step
	if !g.takeBackFailure.mustWait() {
		unfinished = g.want.Unfinished()
	}
	if len(todo)+len(unfinished) == 0 {
		return nil
	}
	l, err := enforce.Open(g.dir, g.root, g.drivers)
	if errors.Is(err, journal.ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Close()
	// The lanes may have changed since they were read.
	if state, serr := enforce.State(g.dir); serr != nil || state != g.lastEvents.applied {
		return nil
	}
	if len(unfinished) > 0 {
		g.takeBackFailure = g.takeBackFailure.failedAgain("")
		if err = l.TakeBack(ctx, unfinished); err == nil && len(l.Waiting()) == 0 {
			err = g.replan(g.lastEvents)
		}
	}
	err = errors.Join(err, l.PutBack(ctx, g.want, todo))
	for _, d := range todo {
		if d.Repaired {
			g.repairs[d.Name] = append(g.repairs[d.Name], time.Now())
			continue
		}
		g.failed[d.Name] = g.failed[d.Name].failedAgain(d.Note)
	}
	return err
}

// mustWait reports whether a drift could not be put back and must wait, and writes the reason into its note.
func (g *Guard) mustWait(d *enforce.Drift) bool {
	f, is := g.failed[d.Name]
	if !is || !f.mustWait() {
		return false
	}
	d.Note = f.note
	return true
}

// isContested reports whether somebody changes a setting so often that it is left alone, and notes that.
func (g *Guard) isContested(d *enforce.Drift) bool {
	recent := slices.DeleteFunc(g.repairs[d.Name],
		func(t time.Time) bool { return time.Since(t) > time.Minute })
	if g.repairs[d.Name] = recent; len(recent) < maxRepairs {
		return false
	}
	who := cmp.Or(d.By, "somebody whom the kernel does not name")
	d.Note = fmt.Sprintf("%s has changed this %d times within a minute: left alone; end it, or keep it off the "+
		"lanes' CPUs", who, maxRepairs)
	return true
}

// isOwnChoice reports whether a drift is a program's thread with fewer of the CPUs that it may have: programs
// pin their own threads.
func (g *Guard) isOwnChoice(d enforce.Drift) bool {
	if d.Step.Kind != change.KindTask {
		return false
	}
	id, _, _ := strings.Cut(d.Step.Target, ":")
	tid, err := strconv.Atoi(id)
	has, herr := cpuset.Parse(d.Step.Before)
	may, merr := cpuset.Parse(d.Step.After)
	if errors.Join(err, herr, merr) != nil || has.IsEmpty() || !has.IsSubsetOf(may) {
		return false
	}
	stat, err := task.ReadThread(g.root, tid)
	return err == nil && !stat.Kernel
}

// lostProcesses returns lanes whose processes have ended, and processes that have left their lane.
func (g *Guard) lostProcesses() ([]enforce.Drift, error) {
	var found []enforce.Drift
	for _, group := range g.groups {
		pids, err := cgroup.Processes(g.root, group.Dir)
		if err != nil {
			return nil, err
		}
		before, now := g.started[group.Lane.Name], map[int]uint64{}
		for _, pid := range pids {
			if start, known := before[pid]; known {
				now[pid] = start
			} else if start, err := task.StartTime(g.root, pid); err == nil {
				now[pid] = start
			}
		}
		for _, pid := range slices.Sorted(maps.Keys(before)) {
			if _, still := now[pid]; still {
				continue
			}
			start, err := task.StartTime(g.root, pid)
			if err == nil && start == before[pid] && !g.want.Member(pid, start) { // else a step's drift says it
				found = append(found, enforce.Drift{Name: describeProcess(pid), Expected: "lane " + group.Lane.Name,
					Found: "another cgroup", Note: "it has left the lane"})
			}
		}
		if len(before) > 0 && len(now) == 0 {
			found = append(found, enforce.Drift{Name: "lane " + group.Lane.Name, Expected: "running",
				Found: "no process", Note: "its last process has ended or left"})
		}
		g.started[group.Lane.Name] = now
	}
	return found, nil
}

// newDrift returns what the last Check did not find, or found otherwise, and all repairs.
func (g *Guard) newDrift(found []enforce.Drift) []enforce.Drift {
	var news []enforce.Drift
	now := map[string]string{}
	for _, d := range found {
		text := fmt.Sprintf("%s %s %v %s", d.Expected, d.Found, d.Repaired, d.Note)
		if now[d.Name] = text; d.Repaired || g.reported[d.Name] != text {
			news = append(news, d)
		}
	}
	g.reported = now
	return news
}
