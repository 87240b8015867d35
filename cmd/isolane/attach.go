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
	cmd := &cobra.Command{
		Use:   "attach --lane NAME {--pid N | --cgroup PATH}",
		Short: "Bring a workload that runs already into its lane",
		Long: "Takes a process with its descendants, or a cgroup (of a container, or of a virtual machine), into a lane. The\n" +
			"threads of QEMU, DPDK and VPP get the CPUs of their roles; a QEMU without thread names is asked by QMP.\n" +
			"isolane release undoes it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := openLanes(cmd.Context(), cmd.ErrOrStderr(), "attach")
			if err != nil {
				return err
			}
			defer l.Close() //nolint:errcheck // what is in force is stored
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
	look := func() ([]running.Thread, error) { return running.Tree(root, at.PID) }
	if at.Group == "" {
		start, serr := journal.StartTime(at.PID)
		if serr != nil || at.Start != 0 && start != at.Start {
			return 0, nil, usage(fmt.Errorf("process %d: has ended, or there is none", at.PID))
		}
		if isKernelThread(root, at.PID) {
			return 0, nil, usage(fmt.Errorf("process %d: a kernel thread cannot be attached", at.PID))
		}
		at.Start = start
	} else {
		if at.Group, err = running.Resolve(h, root, at.Group); err != nil {
			return 0, nil, usage(err)
		}
		look = func() ([]running.Thread, error) { return running.Cgroup(root, at.Group) }
	}
	found, err := look()
	if err != nil {
		return 0, nil, usage(err)
	}
	seen := map[int]bool{}
	err = l.Attach(cmd.Context(), at, func() (_ []journal.Step, lerr error) {
		if len(seen) > 0 {
			if found, lerr = look(); errors.Is(lerr, running.ErrEmpty) || errors.Is(lerr, fs.ErrNotExist) {
				return nil, nil // all have moved, or ended
			}
		}
		for _, t := range found {
			seen[t.TID] = true
		}
		steps, more, serr := running.Steps(h, root, lane, found, at.Group)
		for _, w := range more {
			if !slices.Contains(warnings, w) {
				warnings = append(warnings, w)
			}
		}
		return steps, errors.Join(lerr, serr)
	})
	if err != nil {
		return 0, nil, fail(err)
	}
	return len(seen), warnings, nil
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
