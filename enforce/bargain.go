package enforce

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/journal"
)

// partitionName is the key in Levels of the partition that a file belongs to.
func (a Applied) partitionName(file string) string {
	dir := filepath.Dir(file)
	for _, at := range a.Attached {
		if at.Own && at.Group == dir {
			return at.Lane
		}
	}
	return strings.TrimPrefix(filepath.Base(dir), change.GroupPrefix)
}

func isPartition(file string) bool { return filepath.Base(file) == partitionFile }

func (a *Applied) grant(lane, level string) {
	if a.Levels == nil {
		a.Levels = map[string]string{}
	}
	a.Levels[lane] = level
}

// notExclusive is how the kernel says that another cgroup has CPUs of a partition.
const notExclusive = "not exclusive"

// partitionReason adds to the kernel's reason who has the CPUs of a partition.
func (l *Lanes) partitionReason(r journal.Refused) error {
	if !strings.Contains(r.Err.Error(), notExclusive) {
		return r.Err
	}
	file, theirs, others, err := l.overlapping(filepath.Dir(r.Step.Target))
	if err != nil || file == "" {
		return r.Err
	}
	if others.IsEmpty() {
		return fmt.Errorf("%w: %s is %s: give it other CPUs, and apply again", r.Err, file, theirs)
	}
	return fmt.Errorf("%w: %s is %s: write %s there, and apply again", r.Err, file, theirs, others)
}

// overlapping returns the cpuset.cpus of a cgroup beside a lane's, as LXC's are, that has CPUs of the lane:
// what is in it, and what may be. It is "" where there is none.
func (l *Lanes) overlapping(dir string) (file string, theirs, others cpuset.Set, err error) {
	text, err := fs.ReadFile(l.root, strings.TrimPrefix(dir, "/")+"/cpuset.cpus")
	if err != nil {
		return "", theirs, others, err
	}
	lane, err := cpuset.Parse(trim(text))
	if err != nil {
		return "", theirs, others, err
	}
	files, err := fs.Glob(l.root, strings.TrimPrefix(filepath.Dir(dir), "/")+"/*/cpuset.cpus")
	for _, file = range files {
		text, _ = fs.ReadFile(l.root, file) // removed meanwhile
		var perr error
		if theirs, perr = cpuset.Parse(trim(text)); perr == nil && filepath.Dir("/"+file) != dir &&
			theirs.Intersects(lane) {
			return "/" + file, theirs, theirs.Difference(lane), nil
		}
	}
	return "", cpuset.Set{}, others, err
}

// lowerRefusals are the refusals of partitions that are not asked for again.
func (a Applied) lowerRefusals() []Refusal {
	return slices.DeleteFunc(slices.Clone(a.Refused), func(r Refusal) bool {
		return !isPartition(r.Target) || a.Levels[a.partitionName(r.Target)] == ""
	})
}

// stillRefused says whether what the kernel refused of a lane's partition need not be asked for again.
func (l *Lanes) stillRefused(group string) bool {
	for _, r := range l.Refused {
		dir := filepath.Dir(r.Target)
		if filepath.Base(dir) == change.GroupPrefix+group && strings.Contains(r.Reason, notExclusive) {
			file, _, _, err := l.overlapping(dir)
			return file != "" || err != nil
		}
	}
	return true
}

// demotions returns the steps that make plain cpusets of partitions whose CPUs will change. Two partitions
// that change places would be invalid in between, and the kernel does not take back all that goes with that.
func (l *Lanes) demotions(want []journal.Step) []journal.Step {
	var steps []journal.Step
	for _, s := range want {
		if base := filepath.Base(s.Target); base != "cpuset.cpus" && base != exclusiveFile {
			continue
		}
		dir := filepath.Dir(s.Target)
		for _, done := range l.journal.Pending() {
			if done.Target == s.Target && done.After != s.After {
				for _, p := range l.journal.Pending() {
					if p.Target == filepath.Join(dir, partitionFile) {
						steps = append(steps, file(p.Target, member))
					}
				}
			}
		}
	}
	return steps
}

// noteUnsupported notes the partitions that this kernel is not asked for.
func (a *Applied) noteUnsupported(want []journal.Step) {
	for _, s := range want {
		if isPartition(s.Target) {
			a.Refused = append(a.Refused, Refusal{s.Target, isolated,
				"before Linux 5.11 a partition moves kernel threads off the CPUs that they are bound to, and the host " +
					"may hang"})
		}
	}
}

// lower asks for what a kernel grants that does not grant the kind of partition which a lane needs. Kernels
// before 6.0 know none that is isolated; others make only such of the CPUs of isolcpus=.
func (l *Lanes) lower(ctx context.Context, a *Applied, r journal.Refused) ([]Refusal, error) {
	s, name := r.Step, a.partitionName(r.Step.Target)
	if strings.Contains(r.Err.Error(), notExclusive) { // nor is another kind
		a.grant(name, member)
		return nil, nil
	}
	s.After = map[string]string{isolated: rootOnly, rootOnly: isolated}[s.After]
	refused, err := l.journal.Apply(ctx, []journal.Step{s})
	if len(refused) == 0 {
		a.grant(name, s.After)
		return nil, err
	}
	a.grant(name, member)
	return []Refusal{{s.Target, s.After, refused[0].Err.Error()}}, err
}
