package witness

import (
	"io/fs"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/results"
)

// census is what each task of the machine had run at one moment. Without eBPF the sources are the difference
// of two of them.
type census map[taskID]tally

type tally struct {
	process taskID
	stat    task.Stat
	ran     results.Nanoseconds
	runs    uint64
	allowed cpuset.Set
}

// takeCensus reads all threads of the machine.
func takeCensus(root fs.FS) census {
	all := census{}
	pids, _ := task.Processes(root)
	for _, pid := range pids {
		process, err := task.ReadStat(root, task.Dir(pid))
		if err != nil {
			continue // it has ended
		}
		for _, tid := range task.Threads(root, pid) {
			if t, err := readTally(root, task.ThreadDir(pid, tid)); err == nil {
				t.process = taskOf(process)
				all[taskOf(t.stat)] = t
			}
		}
	}
	return all
}

func readTally(root fs.FS, dir string) (t tally, err error) {
	if t.stat, err = task.ReadStat(root, dir); err != nil {
		return t, err
	}
	ran, runs, err := task.RunTime(root, dir)
	if err != nil {
		return t, err
	}
	t.ran, t.runs = results.Nanoseconds(ran), runs
	t.allowed, err = task.ReadAllowed(root, dir)
	return t, err
}

// since returns the tasks that ran since an earlier census and were last on one of the CPUs. Count and time
// there are known only for tasks that cannot run elsewhere.
func (c census) since(before census, cpus cpuset.Set) []taskSource {
	var stays []taskSource
	for id, now := range c {
		was := before[id]
		if now.runs == was.runs && now.ran == was.ran || !cpus.Contains(now.stat.Processor) {
			continue
		}
		s := taskSource{start: id.start, process: now.process, parent: now.stat.Parent,
			Source: Source{CPU: now.stat.Processor, Kind: results.Task, Name: now.stat.Comm, PID: now.process.id,
				TID: id.id}}
		if now.stat.Kernel {
			s.Kind, s.PID = results.KernelThread, 0
		}
		runs, ran := now.runs-was.runs, now.ran-was.ran
		if now.allowed == cpuset.Of(now.stat.Processor) {
			s.Count, s.Total = &runs, &ran
		} else {
			s.AtMost = &ran
		}
		stays = append(stays, s)
	}
	return stays
}
