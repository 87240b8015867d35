package enforce

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
)

// Drift is something that is not, or no longer, as the lanes want it.
type Drift struct {
	Target   string `json:"target"`
	Expected string `json:"expected"`
	Found    string `json:"found"`
	By       string `json:"by,omitempty"` // who wrote there last, if the kernel told
	Repaired bool   `json:"repaired"`
	Note     string `json:"note,omitempty"`

	step journal.Step // that would put it back; none where only its owner can
}

// Guard watches what is in force, and puts it back.
type Guard struct {
	dir      string
	root     fs.FS
	ops      operations
	lanes    *Lanes // to look at
	view     View
	want     []journal.Step
	attached []journal.Step // of attached workloads
	groups   []LaneGroup
	writers  *writers
	now      *contents

	seen     seen
	since    map[string]map[int]uint64 // the processes of each lane and when they started
	reported map[string]string         // what was found, by target
	left     []Drift
	repairs  map[string][]time.Time
}

// seen is what changes where interrupts, threads or CPUs come or go.
type seen struct {
	online                     cpuset.Set
	interrupts, applied, ended string // ended: attachments of which nothing runs any more
	tasks                      map[int]bool
}

// NewGuard watches the lanes that are in force by the state in dir.
func NewGuard(dir string, root fs.FS, ops map[string]journal.Op) (*Guard, error) {
	g := &Guard{dir: dir, root: root, ops: ops, writers: newWriters(), now: newContents(root),
		since:    map[string]map[int]uint64{},
		reported: map[string]string{}, repairs: map[string][]time.Time{}}
	s, err := g.look()
	if err != nil {
		return nil, err
	}
	return g, g.refresh(s)
}

// Close ends the watch.
func (g *Guard) Close() error {
	g.now.close()
	return g.writers.close()
}

// look reads what tells that there are new things to look at.
func (g *Guard) look() (seen, error) {
	s := seen{tasks: map[int]bool{}}
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
	s.interrupts = names.String()
	state, err := journal.ReadState(g.dir, stateFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	s.applied = string(state)
	if g.lanes != nil {
		for _, at := range g.lanes.Attached {
			if at.Own && !populated(g.root, at.Group) {
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

// refresh plans anew what is wanted.
func (g *Guard) refresh(s seen) (err error) {
	if g.lanes, err = Look(g.dir, g.root, g.ops); err != nil {
		return err
	}
	if g.view, err = g.lanes.View(); err != nil {
		return err
	}
	if g.want, err = want(g.view, g.lanes.Placement); err != nil {
		return err
	}
	if g.attached, err = g.lanes.attachedSteps(g.lanes.Attached); err != nil {
		return err
	}
	if g.groups, err = g.lanes.Groups(); err != nil {
		return err
	}
	for _, s := range slices.Concat(g.want, g.attached) {
		if filepath.IsAbs(s.Target) {
			g.writers.watch(s.Target)
		}
	}
	g.seen = s
	return nil
}

// Check returns what is not in force and was so before, or differently. With repair it is put back, unless
// somebody else keeps changing it.
func (g *Guard) Check(ctx context.Context, repair bool) ([]Drift, error) {
	if _, err := g.writers.read(); err != nil {
		return nil, err
	}
	now, err := g.look()
	if err != nil {
		return nil, err
	}
	var found []Drift
	if gone := g.offline(now.online); gone != "" {
		found = append(found, Drift{Target: "/sys/devices/system/cpu/online",
			Expected: g.lanes.Placement.CPUs().String() + " online",
			Found:    now.online.String(), Note: gone})
	}
	if now.ended != "" && repair {
		if err = g.reap(ctx); err != nil {
			return nil, err
		}
		if now, err = g.look(); err != nil {
			return nil, err
		}
	}
	if now.online != g.seen.online || now.interrupts != g.seen.interrupts || now.applied != g.seen.applied ||
		now.ended != g.seen.ended {
		if err = g.refresh(now); err != nil {
			return nil, err
		}
	} else if err = g.newTasks(now); err != nil {
		return nil, err
	}
	steps, err := g.steps(ctx)
	if err != nil {
		return nil, err
	}
	if repair && len(steps) > 0 {
		if err = g.repair(ctx, steps); err != nil {
			return nil, err
		}
	}
	gone, err := g.processes()
	g.left = slices.DeleteFunc(slices.Concat(found, steps), func(d Drift) bool { return d.Repaired })
	return g.fresh(slices.Concat(found, steps, gone)), err
}

// reap makes lanes anew that were in the cgroups of workloads which have ended.
func (g *Guard) reap(ctx context.Context) error {
	l, err := Open(g.dir, g.root, g.ops)
	if errors.Is(err, journal.ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Close()
	return l.Apply(ctx, l.Placement)
}

// Left is what the last Check found and nobody has put back.
func (g *Guard) Left() []Drift { return g.left }

// offline names the lanes that have lost CPUs.
func (g *Guard) offline(online cpuset.Set) string {
	var lost []string
	for _, l := range g.lanes.Placement.Lanes {
		if gone := l.Owned().Difference(online); !gone.IsEmpty() {
			lost = append(lost, fmt.Sprintf("lane %s has lost CPUs %s, which are offline", l.Name, gone))
		}
	}
	return strings.Join(lost, "; ")
}

// newTasks adds what new kernel threads are to be told.
func (g *Guard) newTasks(now seen) error {
	cpus := g.lanes.Placement.CPUs()
	for pid := range now.tasks {
		if g.seen.tasks[pid] {
			continue
		}
		steps, err := g.view.kernelThread(pid, cpus)
		if err != nil {
			return err
		}
		g.want = append(g.want, steps...)
	}
	g.seen.tasks = now.tasks
	return nil
}

// steps returns the drift of settings.
func (g *Guard) steps(ctx context.Context) ([]Drift, error) {
	var found []Drift
	for _, s := range g.want {
		if file := g.ops.file(s); file != "" && g.now.has(file, s.After) {
			continue
		}
		inForce, now, err := g.lanes.journal.InForce(ctx, s)
		switch {
		case errors.Is(err, fs.ErrNotExist) && g.ops.ends(s), inForce: // the thread has ended
			continue
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%s %s: %w", s.Kind, s.Target, err)
		case slices.ContainsFunc(g.lanes.Refused, func(r Refusal) bool {
			return r.Target == s.Target &&
				r.Value == s.After
		}):
			continue
		}
		found = append(found, g.drift(s, now))
	}
	missing, err := g.lanes.stepsNotInForce(ctx, g.attached)
	for _, s := range missing {
		found = append(found, g.drift(s, s.Before))
	}
	return found, err
}

// drift is that a step is not in force, and who wrote there last.
func (g *Guard) drift(s journal.Step, now string) Drift {
	s.Before = now
	d := g.ops.drift(s)
	d.By = g.writers.of(s.Target)
	return d
}

// stubborn is how often within a minute somebody may change the same again before Isolane lets it be.
const stubborn = 3

// repair puts back what can be. Another isolane process that is at work has the first word.
func (g *Guard) repair(ctx context.Context, found []Drift) error {
	left := 0
	for i, d := range found {
		recent := slices.DeleteFunc(g.repairs[d.Target],
			func(t time.Time) bool { return time.Since(t) > time.Minute })
		g.repairs[d.Target] = recent
		if len(recent) >= stubborn {
			who := d.By
			if who == "" {
				who = "somebody whom the kernel does not name"
			}
			found[i].Note = fmt.Sprintf("%s has changed this %d times within a minute: left alone; end it, or keep "+
				"it off the lanes' CPUs", who, stubborn)
			left++
		}
	}
	if left == len(found) {
		return nil
	}
	l, err := Open(g.dir, g.root, g.ops)
	if errors.Is(err, journal.ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	defer l.Close()
	// The lanes may have changed since the look.
	if state, serr := journal.ReadState(g.dir, stateFile); serr != nil || string(state) != g.seen.applied {
		return nil
	}
	for i, d := range found {
		if d.Note != "" {
			continue
		}
		if err = l.redo(ctx, d.step); err != nil { // as the CPUs of a cpuset while they are offline
			found[i].Note = "cannot be put back: " + err.Error()
			continue
		}
		found[i].Repaired = true
		g.repairs[d.Target] = append(g.repairs[d.Target], time.Now())
	}
	return l.journal.Finish(ctx, g.want)
}

// processes reports lanes whose processes have ended, and processes that have left their lane.
func (g *Guard) processes() ([]Drift, error) {
	var found []Drift
	for _, group := range g.groups {
		pids, err := cgroup.Processes(g.root, group.Dir)
		if err != nil {
			return nil, err
		}
		before, now := g.since[group.Lane.Name], map[int]uint64{}
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
			attached := slices.ContainsFunc(g.attached, func(s journal.Step) bool { // of which steps tells already
				return s.Kind == change.KindMember && s.Target == change.TaskTarget(pid, before[pid])
			})
			if start, err := task.StartTime(g.root, pid); err == nil && start == before[pid] && !attached {
				found = append(found, Drift{Target: program(pid), Expected: "lane " + group.Lane.Name,
					Found: "another cgroup", Note: "it has left the lane"})
			}
		}
		if len(before) > 0 && len(now) == 0 {
			found = append(found, Drift{Target: "lane " + group.Lane.Name, Expected: "running", Found: "no process",
				Note: "its last process has ended or left"})
		}
		g.since[group.Lane.Name] = now
	}
	return found, nil
}

// fresh returns what was not found the last time, or otherwise.
func (g *Guard) fresh(found []Drift) []Drift {
	var fresh []Drift
	now := map[string]string{}
	for _, d := range found {
		text := fmt.Sprintf("%s %s %v %s", d.Expected, d.Found, d.Repaired, d.Note)
		if now[d.Target] = text; d.Repaired || g.reported[d.Target] != text {
			fresh = append(fresh, d)
		}
	}
	g.reported = now
	return fresh
}
