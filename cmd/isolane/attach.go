package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/runtime/running"
)

func attachCommand() *cobra.Command {
	var at enforce.Attachment
	var move bool
	cmd := &cobra.Command{
		Use:   "attach --lane NAME {--pid N | --cgroup PATH}",
		Short: "Bring a workload that runs already into its lane",
		Long: "Takes a process with its descendants, or a cgroup (of a service, a container, or a virtual machine), into a lane.\n" +
			"The workload stays in its own cgroup, which gets the lane's CPUs: limits, statistics and stopping it work as\n" +
			"before. Where the kernel cannot (cgroup v2 before Linux 6.7, CPUs of isolcpus=) and with --move the processes move\n" +
			"to the lane's cgroup, and come back when the lane is released or the service ends. The threads of QEMU, DPDK and\n" +
			"VPP get the CPUs of their roles; a QEMU without thread names is asked by QMP. isolane release undoes it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := openLanes(cmd.Context(), cmd.ErrOrStderr(), "attach")
			if err != nil {
				return err
			}
			defer l.Close() //nolint:errcheck // what is in force is stored
			at.Own = !move
			n, warnings, err := attach(cmd, l, at)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d threads are in lane %s\n", n, at.Lane)
			for _, w := range warnings {
				fmt.Fprintln(cmd.OutOrStdout(), "note:", w)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&at.Lane, "lane", "", "lane that is in force")
	cmd.Flags().IntVar(&at.PID, "pid", 0, "process, with its descendants")
	cmd.Flags().StringVar(&at.Group, "cgroup", "", "cgroup below the one with the cpuset controller, such as docker/ID")
	cmd.Flags().BoolVar(&move, "move", false, "move the processes out of their cgroup into the lane's, also where the lane could be in theirs")
	cmd.MarkFlagsMutuallyExclusive("pid", "cgroup")
	cmd.MarkFlagsOneRequired("pid", "cgroup")
	if err := cmd.MarkFlagRequired("lane"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// attach returns how many threads are in the lane, and what the user should know.
func attach(cmd *cobra.Command, l *enforce.Lanes, at enforce.Attachment) (threads int, warnings []string, err error) {
	lane, err := l.Lane(at.Lane)
	if err != nil {
		return 0, nil, usage(fmt.Errorf("--lane: %w", err))
	}
	root := host.Live()
	h, err := host.Read(root)
	if err != nil {
		return 0, nil, fail(err)
	}
	if at, err = workload(h, root, at); err != nil {
		return 0, nil, usage(err)
	}
	if err = leaveOwn(cmd, l, h, at); err != nil {
		return 0, nil, fail(err)
	}
	wanted := at.Own
	seen := map[int]bool{}
	at, why, err := l.Attach(cmd.Context(), at, func(dir string, at enforce.Attachment) ([]journal.Step, error) {
		found, lerr := threadsOf(root, at)
		if errors.Is(lerr, running.ErrEmpty) || errors.Is(lerr, fs.ErrNotExist) {
			return nil, nil // all have moved, or ended
		}
		for _, t := range found {
			seen[t.TID] = true
		}
		steps, more, serr := running.Steps(h, root, lane, dir, at, found)
		for _, w := range more {
			if !slices.Contains(warnings, w) {
				warnings = append(warnings, w)
			}
		}
		return steps, errors.Join(lerr, serr)
	})
	var owned *enforce.OwnedError
	switch {
	case errors.As(err, &owned):
		return 0, nil, no(err)
	case err != nil:
		return 0, nil, fail(err)
	case wanted && !at.Own:
		warnings = append(warnings, "the lane is not in the workload's own cgroup: "+why)
	}
	return len(seen), warnings, nil
}

// workload says of what a user names which process or cgroup it is, and whether the lane can be in that cgroup: that of
// a process is its own where nobody else is in it.
func workload(h host.Host, root fs.FS, at enforce.Attachment) (enforce.Attachment, error) {
	own := at.Own && enforce.OwnGroups(h)
	at.Own = false
	var err error
	if at.Group == "" {
		start, serr := journal.StartTime(at.PID)
		if serr != nil || at.Start != 0 && start != at.Start {
			return at, fmt.Errorf("process %d: has ended, or there is none", at.PID)
		}
		if isKernelThread(root, at.PID) {
			return at, fmt.Errorf("process %d: a kernel thread cannot be attached", at.PID)
		}
		if at.Start = start; own {
			if group, ok := running.OwnGroup(h, root, at.PID); ok {
				at.Group, at.PID, at.Start = group, 0, 0
			}
		}
	} else if at.Group, err = running.Resolve(h, root, at.Group); err != nil {
		return at, err
	}
	at.Own = own && at.Group != ""
	_, err = threadsOf(root, at)
	return at, err
}

// leaveOwn lets a process that is to move out of the lane that is in its own cgroup until now.
func leaveOwn(cmd *cobra.Command, l *enforce.Lanes, h host.Host, at enforce.Attachment) error {
	if at.PID == 0 {
		return nil
	}
	group, alone := running.OwnGroup(h, host.Live(), at.PID)
	for _, o := range slices.Clone(l.Attached) {
		if alone && o.Own && o.Lane == at.Lane && o.Group == group {
			return l.Detach(cmd.Context(), o)
		}
	}
	return nil
}

func threadsOf(root fs.FS, at enforce.Attachment) ([]running.Thread, error) {
	if at.Group != "" {
		return running.Cgroup(root, at.Group)
	}
	return running.Tree(root, at.PID)
}

// isKernelThread is false also for a process that has just ended.
func isKernelThread(root fs.FS, pid int) bool {
	text, err := fs.ReadFile(root, fmt.Sprintf("proc/%d/stat", pid))
	if err != nil {
		return false
	}
	t, err := host.ParseStat(string(text))
	return err == nil && t.Kernel
}
