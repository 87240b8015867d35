package enforce

import (
	"context"
	"maps"

	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/plan"
)

// Run is the process of an isolane run that made a lane for its command, and releases it when that ends.
type Run struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // task.StartTime, because the number may be reused
}

// SetOwner notes that a lane, which Put is about to make, lives as long as a process.
func (l *Lanes) SetOwner(lane string, pid int) error {
	start, err := task.StartTime(l.root, pid)
	if err != nil {
		return err
	}
	runs := map[string]Run{}
	maps.Copy(runs, l.Runs)
	runs[lane] = Run{pid, start}
	l.Runs = runs
	return nil
}

// runsOf returns the runs whose lanes are in a placement.
func (a Applied) runsOf(p plan.Placement) map[string]Run {
	runs := maps.Clone(a.Runs)
	maps.DeleteFunc(runs, func(name string, _ Run) bool {
		_, stays := p.Lane(name)
		return !stays
	})
	return runs
}

// isAbandoned reports whether the isolane run that made a lane for its command has ended.
func (l *Lanes) isAbandoned(name string) bool {
	r, owned := l.Runs[name]
	if !owned {
		return false
	}
	t, err := task.ReadStat(l.root, task.Dir(r.PID))
	return err != nil || t.Start != r.Start || t.Dead()
}

// Expire releases the lanes whose isolane run has ended without releasing them, and returns their names.
func (l *Lanes) Expire(ctx context.Context) ([]string, error) {
	var names []string
	for _, lane := range l.Placement.Lanes {
		if l.isAbandoned(lane.Name) {
			names = append(names, lane.Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	p, err := l.Without(names...)
	if err != nil {
		return nil, err
	}
	return names, l.Apply(ctx, p)
}
