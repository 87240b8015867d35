// Package change has the kinds of change that Isolane makes to a host, as operations of the journal.
//
//	j, err := journal.Open(journal.Dir, "mine", change.Ops("/"))
//	s := journal.Step{Kind: change.KindTask, Target: change.TaskTarget(tid, start), After: "0-1"}
//	refused, err := j.Apply(ctx, []journal.Step{s})
//
// A kind is a file: its constant, what its steps mean, what they may name (Check: a journal is not
// trusted), how the value is read and written. To add one, copy task.go and add a line to Ops.
//
// An operation may have more methods, which the journal (see there) and package enforce ask for:
//
//	Shell(Step) string                            the command that a person would type
//	File(Step) string                             the file whose content is the value
//	Name(Step) string                             what is set, for people, where the target is no file
//	Describe(Step) (name, from, to string)        the change for people, where the values do not tell
//	Held(Step) error                              why it cannot be taken back now, as somebody uses it
//	DescribeDrift(Step) (expected, found string)  the same of a step that is not in force
package change

import (
	"maps"

	"isolane.dev/isolane/change/netdev"
	"isolane.dev/isolane/change/netdev/queues"
	"isolane.dev/isolane/change/systemd"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
)

// Values of kinds that make something.
const (
	Present = "present" // a cgroup or namespace that exists
	Running = "running" // processes
)

// Ops returns the operation of each kind; drivers add theirs. root is "/", or a directory that stands in for
// the kernel's files. files are patterns (path.Match) of what steps of KindFile may write outside of cgroups.
func Ops(root string, files ...string) map[string]journal.Op {
	k := kernel{root}
	ops := map[string]journal.Op{
		KindAffinities: affinities{k},
		KindAttribute:  attribute{file{kernel: k}},
		KindCgroup:     groupDir{k},
		KindController: controller{k},
		KindCpuset:     cpusetCPUs{file{kernel: k}},
		KindFile:       file{k, files},
		KindKeeper:     keeper{processes{k}},
		KindMember:     member{k},
		KindProcesses:  processes{k},
		KindScheduling: scheduling{},
		kindScratch:    scratch{},
		KindSysctl:     sysctl{k},
		KindTask:       taskCPUs{host.Live()},
		KindTasks:      tasks{k},
	}
	maps.Copy(ops, netdev.Ops())
	maps.Copy(ops, queues.Ops())
	maps.Copy(ops, systemd.Ops(root, file{kernel: k}))
	return ops
}
