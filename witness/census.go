package witness

import (
	"io/fs"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/results"
)

// census is what every task of the machine had run at one moment: without eBPF the sources come
// from two of them.
type census map[task]tally

type tally struct {
	process task
	stat    host.TaskStat
	ran     results.Nanoseconds
	runs    uint64
	allowed cpuset.Set
}

// takeCensus reads all threads of the machine.
func takeCensus(root fs.FS) census {
	all := census{}
	for _, pid := range ids(root, "proc") {
		process, err := readTask(root, processDir(pid))
		if err != nil {
			continue // it has ended
		}
		for _, tid := range ids(root, processDir(pid)+"/task") {
			if t, err := readTally(root, threadDir(pid, tid)); err == nil {
				t.process = taskOf(process)
				all[taskOf(t.stat)] = t
			}
		}
	}
	return all
}

func readTally(root fs.FS, dir string) (t tally, err error) {
	if t.stat, err = readTask(root, dir); err != nil {
		return t, err
	}
	text, err := fs.ReadFile(root, dir+"/schedstat")
	if err != nil {
		return t, err
	}
	if t.ran, t.runs, err = parseSchedstat(string(text)); err != nil {
		return t, err
	}
	status, err := readAs(root, dir+"/status", parseStatus)
	t.allowed = status.allowed
	return t, err
}

// since returns the tasks that ran since an earlier census and were last on one of the CPUs.
// How often and how long they were there is known only of those that may be nowhere else.
func (c census) since(before census, cpus cpuset.Set) []stay {
	var stays []stay
	for id, now := range c {
		was := before[id]
		if now.runs == was.runs && now.ran == was.ran || !cpus.Contains(now.stat.Processor) {
			continue
		}
		s := stay{start: id.start, process: now.process, parent: now.stat.Parent,
			Source: Source{CPU: now.stat.Processor, Kind: Task, Name: now.stat.Comm, PID: now.process.id, TID: id.id}}
		if now.stat.Kernel {
			s.Kind, s.PID = KernelThread, 0
		}
		if now.allowed == cpuset.Of(now.stat.Processor) {
			runs, ran := now.runs-was.runs, now.ran-was.ran
			s.Count, s.Total = &runs, &ran
		}
		stays = append(stays, s)
	}
	return stays
}
