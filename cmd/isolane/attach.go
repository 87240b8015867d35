package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/lanes"
)

func attachCommand() *cobra.Command {
	var at enforce.Attachment
	var move bool
	cmd := &cobra.Command{
		Use:   "attach --lane NAME {--pid N | --cgroup PATH}",
		Short: "Bring a workload that runs already into its lane",
		Long: "Takes a process with its descendants, or a cgroup (of a service, a container, or a virtual\n" +
			"machine), into a lane. The workload stays in its own cgroup, which gets the lane's CPUs:\n" +
			"limits, statistics and stopping it work as before. Where the kernel cannot (cgroup v2 before\n" +
			"Linux 6.7, CPUs of isolcpus=) and with --move the processes move to the lane's cgroup, and\n" +
			"come back when the lane is released or the service ends. The threads of QEMU, DPDK and VPP get\n" +
			"the CPUs of their roles; a QEMU without thread names is asked by QMP. isolane release undoes\n" +
			"it.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := openLanes(cmd, "attach")
			if err != nil {
				return err
			}
			defer l.Close()
			at.Own = !move
			a, err := l.Attach(cmd.Context(), at)
			if err != nil {
				return ofLane(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d threads are in lane %s\n", a.Threads, at.Lane)
			for _, w := range a.Warnings {
				fmt.Fprintln(cmd.OutOrStdout(), "note:", w)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&at.Lane, "lane", "", "lane that is in force")
	cmd.Flags().IntVar(&at.PID, "pid", 0, "process, with its descendants")
	cmd.Flags().StringVar(&at.Group, "cgroup", "",
		"cgroup below the one with the cpuset controller, such as docker/ID")
	cmd.Flags().BoolVar(&move, "move", false,
		"move the processes out of their cgroup into the lane's, also where the lane could be in theirs")
	cmd.MarkFlagsMutuallyExclusive("pid", "cgroup")
	cmd.MarkFlagsOneRequired("pid", "cgroup")
	if err := cmd.MarkFlagRequired("lane"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// ofLane gives an error about a lane, or about what is to be in it, its exit code.
func ofLane(err error) error {
	var none *enforce.NoLaneError
	var target *lanes.TargetError
	var owned *enforce.OwnedError
	switch {
	case errors.As(err, &none):
		return usage(fmt.Errorf("--lane: %w", err))
	case errors.As(err, &target):
		return usage(err)
	case errors.As(err, &owned):
		return no(err)
	}
	return fail(err)
}
