package witness

import (
	"fmt"
	"io/fs"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// family follows a process with all its descendants. A descendant stays in the family when its parent dies.
type family struct {
	root    fs.FS
	sampled bool // without eBPF: /proc tells where they run
	head    taskID
	alive   bool
	members map[taskID]ticks // CPU time when last seen
	total   ticks
	spent   results.Nanoseconds
	seen    cpuset.Set
}

// newFamily returns a family that is empty if pid is 0.
func newFamily(root fs.FS, pid int, sampled bool) *family {
	f := &family{root: root, sampled: sampled, head: taskID{id: pid}, members: map[taskID]ticks{}}
	if pid == 0 {
		return f
	}
	if st, err := task.ReadStat(root, task.Dir(pid)); err == nil {
		f.head = taskOf(st)
	}
	f.look()
	f.spent, f.seen = 0, cpuset.Set{} // that was before the window
	return f
}

// look finds the members and what they have spent. The time of an ended child moves to the parent that waited
// for it, so the sum grows by what they ran. It falls when one ends for which nobody in the family waits.
func (f *family) look() {
	if f.head.id == 0 {
		return
	}
	now := f.living()
	head, ok := now[f.head.id]
	f.alive = ok && taskOf(head) == f.head && !head.Dead()
	var total ticks
	for _, st := range now {
		id, spent := taskOf(st), ticks(st.CPUTicks)
		total += spent
		if before, known := f.members[id]; f.sampled && (!known || spent > before) {
			f.where(st)
		}
		f.members[id] = spent
	}
	f.spent += total.since(f.total)
	f.total = total
}

// where records the CPUs of the threads of a member that has run: if there are several, of those that run
// now.
func (f *family) where(st task.Stat) {
	tids := task.Threads(f.root, st.ID)
	for _, tid := range tids {
		t, err := task.ReadStat(f.root, task.ThreadDir(st.ID, tid))
		if err == nil && (t.State == 'R' || len(tids) == 1) {
			f.seen = f.seen.Union(cpuset.Of(t.Processor))
		}
	}
}

// living returns the members that are in /proc, by process ID.
func (f *family) living() map[int]task.Stat {
	others, in := map[int]task.Stat{}, map[int]task.Stat{}
	pids, _ := task.Processes(f.root)
	for _, pid := range pids {
		st, err := task.ReadStat(f.root, task.Dir(pid))
		if err != nil {
			continue // it has ended
		}
		if _, known := f.members[taskOf(st)]; known || taskOf(st) == f.head {
			in[pid] = st
		} else {
			others[pid] = st
		}
	}
	for grown := true; grown; {
		grown = false
		for pid, st := range others {
			if _, ok := in[st.Parent]; ok {
				in[pid], grown = st, true
				delete(others, pid)
			}
		}
	}
	return in
}

// attribute adds the stays to the family, also those of members that came and went between two looks, and
// warns about those outside of the planned CPUs. Each of the two ways to measure CPU time may miss some, so
// the larger value counts.
func (f *family) attribute(stays []taskSource, planned cpuset.Set) (warnings []string) {
	members := f.lineage(stays)
	var ran results.Nanoseconds
	runs, took := map[int]uint64{}, map[int]results.Nanoseconds{}
	for _, st := range stays {
		if !members[st.process] {
			continue
		}
		f.seen = f.seen.Union(cpuset.Of(st.CPU))
		ran += value(st.Total)
		runs[st.CPU] += value(st.Count)
		took[st.CPU] += value(st.Total)
	}
	f.spent = max(f.spent, ran)
	for cpu := range f.seen.Difference(planned).All() {
		warnings = append(warnings, fmt.Sprintf("neighbours: %d times, %s on CPU %d, planned %s",
			runs[cpu], time.Duration(took[cpu]), cpu, named(planned)))
	}
	return warnings
}

// lineage returns the processes of the family, including those known only from stays.
func (f *family) lineage(stays []taskSource) map[taskID]bool {
	members := map[taskID]bool{}
	born := map[int]ticks{} // of the youngest member with an ID
	admit := func(t taskID) {
		members[t] = true
		born[t.id] = max(born[t.id], t.start)
	}
	for t := range f.members {
		admit(t)
	}
	for grown := true; grown; {
		grown = false
		for _, st := range stays {
			if since, ok := born[st.parent]; ok && st.process.start >= since && !members[st.process] {
				admit(st.process)
				grown = true
			}
		}
	}
	return members
}

func (f *family) found() results.Neighbours {
	return results.Neighbours{Alive: f.alive, CPUTime: f.spent, Seen: f.seen}
}
