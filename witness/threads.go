package witness

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// subjects follows the threads of the measured processes.
type subjects struct {
	root      fs.FS
	sampled   bool // without eBPF: /proc tells where they run
	processes []process
	threads   map[taskID]*thread
}

// process is a subject that was found. Its start is 0 if it had ended before the first look.
type process struct {
	Subject
	start ticks
	past  bool // it existed when the window began
	child bool // of another one
}

type thread struct {
	results.Thread
	base, last switches // at the start of the window, at the last look
}

// add adds a process. Threads of a process that existed when the window began have a past, which does not
// count.
func (s *subjects) add(subject Subject, past bool) {
	p := process{Subject: subject, past: past}
	if st, err := task.ReadStat(s.root, task.Dir(subject.PID)); err == nil {
		p.start = ticks(st.Start)
	}
	if !slices.Contains(s.processes, p) {
		s.processes = append(s.processes, p)
	}
	s.lookAt(p, past)
}

// look reads where the threads are now.
func (s *subjects) look() {
	s.children()
	for _, p := range s.processes {
		s.lookAt(p, false)
	}
}

// children adds the processes that descend from subjects, according to /proc.
func (s *subjects) children() {
	if !slices.ContainsFunc(s.processes, func(p process) bool { return p.Tree }) {
		return
	}
	var all []taskSource
	pids, _ := task.Processes(s.root)
	for _, pid := range pids {
		if st, err := task.ReadStat(s.root, task.Dir(pid)); err == nil { // else it has ended
			all = append(all, taskSource{process: taskOf(st), parent: st.Parent})
		}
	}
	s.descend(all)
}

// descend adds the processes among the stays that descend from subjects.
func (s *subjects) descend(stays []taskSource) {
	for i := 0; i < len(s.processes); i++ { // it grows
		p := s.processes[i]
		for _, st := range stays {
			child := process{Subject: p.Subject, start: st.process.start, child: true}
			child.PID = st.process.id
			if p.Tree && st.parent == p.PID && child.start >= p.start && !slices.Contains(s.processes, child) {
				s.processes = append(s.processes, child)
			}
		}
	}
}

func (s *subjects) lookAt(p process, past bool) {
	if st, err := task.ReadStat(s.root, task.Dir(p.PID)); err != nil || ticks(st.Start) != p.start {
		return // it has ended; the ID may be reused by now
	}
	for _, tid := range task.Threads(s.root, p.PID) {
		dir := task.ThreadDir(p.PID, tid)
		st, err := task.ReadStat(s.root, dir)
		if err != nil {
			continue // it has ended
		}
		t := s.thread(p, taskOf(st), st.Comm)
		if !s.sampled {
			continue
		}
		status, err := task.ReadStatus(s.root, dir)
		now, serr := switchesOf(status)
		if err != nil || serr != nil {
			continue
		}
		if past {
			t.base, t.last = now, now
		}
		if now != t.last || st.State == 'R' {
			t.Seen = t.Seen.Union(cpuset.Of(st.Processor))
		}
		t.last = now
		t.Voluntary, t.Involuntary = now.voluntary-t.base.voluntary, now.involuntary-t.base.involuntary
	}
}

// thread returns what is known of a thread, whose present name is comm.
func (s *subjects) thread(p process, id taskID, comm string) *thread {
	t := s.threads[id]
	if t == nil {
		t = &thread{Thread: results.Thread{Role: p.Role, PID: p.PID, TID: id.id, Planned: p.Planned}}
		s.threads[id] = t
	}
	t.Comm = comm
	return t
}

// find returns the subject that a source belongs to.
func (s *subjects) find(st taskSource) (process, bool) {
	at := slices.IndexFunc(s.processes, func(p process) bool {
		return p.PID == st.process.id && (p.start == 0 || p.start == st.process.start)
	})
	if at < 0 {
		return process{}, false
	}
	return s.processes[at], true
}

// role returns the role of the process that a source belongs to; "" if it belongs to none.
func (s *subjects) role(st taskSource) string {
	p, _ := s.find(st)
	return p.Role
}

// attribute adds the stays to the threads, and warns about those outside of the planned CPUs.
func (s *subjects) attribute(stays []taskSource) (warnings []string) {
	for _, st := range stays {
		p, ok := s.find(st)
		if !ok {
			continue
		}
		t := s.thread(p, st.task(), st.Name)
		t.Seen = t.Seen.Union(cpuset.Of(st.CPU))
		t.Ran += value(st.Total)
		t.Voluntary += st.voluntary
		t.Involuntary += st.involuntary
		if !p.Planned.Contains(st.CPU) {
			warnings = append(warnings, fmt.Sprintf("%s thread %d (%s): %d times, %s on CPU %d, planned %s",
				p.Role, st.TID, st.Name, value(st.Count), time.Duration(value(st.Total)), st.CPU, named(p.Planned)))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// missing warns about subjects of which nothing was seen, and about those that existed from the start of the
// window and ended.
func (s *subjects) missing() (warnings []string) {
	known := map[int]bool{}
	for _, t := range s.threads {
		known[t.PID] = true
	}
	for _, p := range s.processes {
		st, err := task.ReadStat(s.root, task.Dir(p.PID))
		gone := err != nil || ticks(st.Start) != p.start || st.Dead()
		switch {
		case p.child: // it may come and go
		case !known[p.PID]:
			warnings = append(warnings, fmt.Sprintf("%s process %d had ended before it was seen", p.Role, p.PID))
		case p.past && gone:
			warnings = append(warnings, fmt.Sprintf("%s process %d ended within the window", p.Role, p.PID))
		}
	}
	return warnings
}

// found returns the threads ordered by ID.
func (s *subjects) found() []results.Thread {
	order := slices.SortedFunc(maps.Keys(s.threads), func(a, b taskID) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.start, b.start))
	})
	var all []results.Thread
	for _, id := range order {
		all = append(all, s.threads[id].Thread)
	}
	return all
}

// named prints a set for a sentence.
func named(s cpuset.Set) string { return cmp.Or(s.String(), "none") }
