// Package attached handles workloads that were already running when they came into their lanes: their record,
// the steps that brought them there, whether they have ended, and how they leave.
package attached

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/host/cgroup"
	"isolane.dev/isolane/host/task"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

// Workload is a workload that was already running when it came into its lane. Its steps are in a journal of
// its own, so that it can leave while the lane stays.
type Workload struct {
	Lane  string `json:"lane"`
	Group string `json:"group,omitempty"` // the cgroup that was attached as a whole
	// Own: the lane is in Group, and its processes stay there (cgroup v2).
	Own bool `json:"own,omitempty"`
	// Alone: if the lane's cgroup is no partition, the cpusets of others keep them off its CPUs, as with cgroup
	// v1 for all lanes.
	Alone bool `json:"alone,omitempty"`
	// NoQuota: no CPU quota limits Group, nor the cgroup above it, that of its pod.
	NoQuota bool `json:"noQuota,omitempty"`
	// Begun: the lane is moving into Group, and not all settings of the threads there are made yet.
	Begun bool `json:"begun,omitempty"`
	// Leaving: it is leaving the lane. The next process that changes the lanes completes that.
	Leaving bool `json:"leaving,omitempty"`
	// Declared: the declaration of the lane names Group (spec.cgroup.path).
	Declared bool `json:"declared,omitempty"`
	PID      int  `json:"pid,omitempty"` // the process, if there is no Group
	// Start is when that process started (task.StartTime), because its number may be reused.
	Start uint64 `json:"start,omitempty"`
	// Netns is the network namespace of the workload to which the lane's path leads (netdev.OfProcess); "" if
	// the path does not lead there.
	Netns string `json:"netns,omitempty"`
	// Tap is the name of the tap that a virtual machine, started in the host's namespace, has lent to the lane.
	Tap     string `json:"tap,omitempty"`
	Journal string `json:"journal"`
}

// Same reports whether two attachments are of the same workload and lane.
func (at Workload) Same(o Workload) bool {
	return at.Lane == o.Lane && at.Group == o.Group && at.PID == o.PID && at.Start == o.Start
}

// Name returns the workload's cgroup or process, for people.
func (at Workload) Name() string {
	if at.Group != "" {
		return at.Group
	}
	return fmt.Sprintf("process %d", at.PID)
}

// Gone reports whether the cgroup of a workload is empty, or its process has ended.
func (at Workload) Gone(root fs.FS) bool {
	if at.Group != "" {
		return !cgroup.Populated(root, at.Group)
	}
	start, err := task.StartTime(root, at.PID)
	return err != nil || start != at.Start
}

// Moving returns the workloads whose lane gets other CPUs, memory, scheduling or cgroup.
func Moving(all []Workload, was, next plan.Placement) []Workload {
	return slices.DeleteFunc(slices.Clone(all), func(at Workload) bool {
		a, had := was.Lane(at.Lane)
		b, has := next.Lane(at.Lane)
		return !had || !has || at.Leaving || a.CPUs == b.CPUs && a.MemoryNodes == b.MemoryNodes &&
			reflect.DeepEqual(a.Roles, b.Roles) && a.Spec.Scheduling == b.Spec.Scheduling &&
			a.Spec.Cgroup == b.Spec.Cgroup
	})
}

// Prefix begins the names of journals of attached workloads.
const Prefix = "attach-"

// MovedGroup returns the cgroup, within the lane's, to which the processes of an attachment are moved with
// cgroup v2.
func MovedGroup(lane string, at Workload) string {
	return path.Join(lane, change.GroupPrefix+at.Journal)
}

// Declared returns the cgroups that the declarations of lanes name, as workloads to attach.
func Declared(p plan.Placement) []Workload {
	var all []Workload
	for _, l := range p.Lanes {
		if group := l.Spec.Cgroup.Path; group != "" {
			all = append(all, Workload{Lane: l.Name, Group: group, Own: true, Declared: true})
		}
	}
	return all
}

// DeclaredOf reports whether all contains the cgroup that a lane's declaration names.
func DeclaredOf(lane string, all []Workload) bool {
	return slices.ContainsFunc(all, func(at Workload) bool { return at.Declared && at.Lane == lane })
}

// Journals are the journals with the steps of attached workloads.
type Journals struct {
	Dir  string
	Root fs.FS // of the host
	Ops  map[string]journal.Op
}

// Names returns the names of the existing journals.
func (j Journals) Names() ([]string, error) {
	const suffix = ".journal"
	names, err := filepath.Glob(filepath.Join(j.Dir, Prefix+"*"+suffix))
	for i, file := range names {
		names[i] = strings.TrimSuffix(filepath.Base(file), suffix)
	}
	return names, err
}

// StepsOf returns the steps that brought workloads into their lanes, without workloads that are leaving.
func (j Journals) StepsOf(all ...Workload) ([]journal.Step, error) {
	var steps []journal.Step
	for _, at := range all {
		if at.Leaving {
			continue
		}
		own, err := journal.Look(j.Dir, at.Journal, j.Ops)
		if err != nil {
			return nil, err
		}
		for _, s := range own.Pending() {
			if s.Kind != change.KindCgroup && s.Kind != change.KindKeeper { // these two end with their scope
				steps = append(steps, s)
			}
		}
	}
	return steps, nil
}

// Ended reports whether nothing of an attached workload runs any more.
func (j Journals) Ended(ctx context.Context, at Workload) (bool, error) {
	if at.Netns != "" && at.Group != "" && at.inOtherNamespace(j.Root) {
		return true, nil
	}
	if at.Own {
		return at.Gone(j.Root), nil
	}
	own, err := journal.Look(j.Dir, at.Journal, j.Ops)
	if err != nil {
		return false, err
	}
	steps := 0
	for _, s := range own.Pending() {
		switch s.Kind {
		case change.KindCgroup:
			if !change.IsKeeperGroup(s.Target) && cgroup.Populated(j.Root, s.Target) {
				return false, nil
			}
		case change.KindKeeper:
		default:
			steps++
			if _, _, err := own.InForce(ctx, s); !errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
		}
	}
	return steps > 0 || at.Gone(j.Root), nil // without steps it already had all that the lane wants
}

// inOtherNamespace reports whether a container was restarted in its cgroup: what runs there is in another
// network namespace than the workload that was attached.
func (at Workload) inOtherNamespace(root fs.FS) bool {
	pids, _ := cgroup.Processes(root, at.Group) // none if the cgroup is gone
	return len(pids) > 0 && !slices.ContainsFunc(pids, func(pid int) bool {
		has, err := netdev.OfProcess(root, pid)
		return err == nil && netdev.Inode(has) == netdev.Inode(at.Netns)
	})
}

// Widen returns a step that gives cpus to the threaded cgroup of a thread, if somebody has taken from that
// cgroup all CPUs that s wants, as libvirt does when it pins a vCPU. Otherwise it returns no steps.
func Widen(root fs.FS, s journal.Step, cpus cpuset.Set) []journal.Step {
	if s.Kind != change.KindTask {
		return nil
	}
	tid, _, _ := strings.Cut(s.Target, ":")
	mounted, err := cgroup.Mounted(root)
	top, v2 := mounted.Cpuset()
	if err != nil || !v2 {
		return nil
	}
	h, err := cgroup.HierarchyOf(root, top)
	group, gerr := h.Of(root, "proc/"+tid)
	all, cerr := h.CPUs(root, group)
	kind, kerr := fs.ReadFile(root, path.Join(group, "cgroup.type")[1:])
	want, perr := cpuset.Parse(s.After)
	if errors.Join(err, gerr, cerr, kerr, perr) != nil || want.Intersects(all) ||
		strings.TrimSpace(string(kind)) != "threaded" {
		return nil
	}
	return []journal.Step{{Kind: change.KindFile, Target: path.Join(group, "cpuset.cpus"), After: cpus.String()}}
}

// rounds is how often UntilNone searches for processes that have started meanwhile.
const rounds = 20

// UntilNone does the steps that next returns until there are none. It gives up after some rounds.
func UntilNone(ctx context.Context, j *journal.Journal, next func() ([]journal.Step, error)) error {
	var last journal.Step
	for range rounds {
		steps, err := next()
		if err != nil || len(steps) == 0 {
			return err
		}
		last = steps[0]
		refused, err := j.Apply(ctx, steps)
		for _, r := range refused {
			if !errors.Is(r.Err, fs.ErrNotExist) { // else the task has ended
				err = errors.Join(err, r.Err)
			}
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("processes are born there faster than they can be attached, or somebody else sets what "+
		"the lane wants, such as %s %s: try again", last.Kind, last.Target)
}

// Redo does steps of a workload for which somebody else has set other values since, or for the first time.
// These values, in Before, become those to restore. beside is the open journal of the lanes.
func Redo(ctx context.Context, beside *journal.Journal, at Workload, steps []journal.Step) error {
	j, err := beside.Beside(at.Journal)
	if err != nil {
		return err
	}
	for _, s := range steps {
		if slices.ContainsFunc(j.Pending(), s.Same) {
			err = errors.Join(err, j.Adopt(s))
		}
	}
	if err == nil {
		_, err = j.Apply(ctx, steps)
	}
	return errors.Join(err, j.Close())
}
