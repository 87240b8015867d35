package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
)

func runCommand() *cobra.Command {
	var name string
	var with lanes.With
	want := lane.Lane{APIVersion: lane.APIVersion, Kind: lane.Kind,
		Metadata: lane.Metadata{Name: fmt.Sprintf("run-%d", os.Getpid())}, At: "run --cpus"}
	var node int
	cmd := &cobra.Command{
		Use:   "run {--lane NAME | --cpus N} -- COMMAND [ARG...]",
		Short: "Start a workload in its lane, or in one that lives as long as it does",
		Long: "Starts the command in the lane: in its cpuset, with its memory policy and scheduling policy, and\n" +
			"without the capabilities that only administration needs. The environment describes the lane:\n" +
			"ISOLANE_CPUS, ISOLANE_CPUS_RELATIVE (numbered within the cpuset), ISOLANE_CPUS_ROLE for each\n" +
			"role, ISOLANE_MEMORY_NODES, and ISOLANE_HUGEPAGES_2MI (where pages of that size are mounted).\n" +
			"With ovs-dpdk it has ISOLANE_VHOST_SOCKET, ISOLANE_MAC and ISOLANE_MTU, with vfio-pci\n" +
			"ISOLANE_PCI.\n\n" +
			"--cpus makes a lane for the command, run-PID, and releases it when the command ends. Signals are\n" +
			"passed on. The exit code is that of the command (128 plus the number of the signal that ended\n" +
			"it), 126 if it cannot be executed, 127 if it does not exist.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, argv []string) error {
			if err := lanes.Need("run"); err != nil {
				return err
			}
			if node >= 0 {
				want.Spec.Near.NUMANode = &node
			}
			if name == "" {
				if err := want.Validate(); err != nil {
					return cli.Usage(fmt.Errorf("%s: %w", want.At, err))
				}
				code, err := thisHost(cmd).Run(cmd.Context(), want, with, argv)
				if err == nil && code != 0 {
					return &cli.Error{Code: code}
				}
				return notStarted(err)
			}
			return notStarted(lanes.Become(cmd.Context(), options(), name, with, argv, func(warning string) {
				fmt.Fprintln(cmd.ErrOrStderr(), "isolane:", warning)
			}))
		},
	}
	cmd.Flags().StringVar(&name, "lane", "", "lane that is in force")
	cmd.Flags().StringVar(&with.Netns, "netns", "", "network namespace to enter (a name under /run/netns)")
	cmd.Flags().StringSliceVar(&with.Capabilities, "cap-add", nil,
		"capabilities to leave to the command beside the usual ones, such as NET_ADMIN,SYS_RAWIO")
	cmd.Flags().IntVar(&want.Spec.CPUs.Count, "cpus", 0, "make a lane of so many CPUs for the command")
	cmd.Flags().StringVar(&want.Spec.CPUs.SMT, "smt", "",
		"with --cpus: isolate (siblings stay idle), pack (whole cores) or any")
	cmd.Flags().IntVar(&node, "numa-node", -1, "with --cpus: the NUMA node to be near to")
	cmd.Flags().StringVar((*string)(&want.Spec.Scheduling.Policy), "policy", "",
		"with --cpus: scheduling policy fifo, rr or other")
	cmd.Flags().IntVar(&want.Spec.Scheduling.Priority, "priority", 0, "with --cpus: its priority")
	cli.Alone(cmd, "lane", "cpus", "smt", "numa-node", "policy", "priority")
	cmd.MarkFlagsOneRequired("lane", "cpus")
	return cmd
}
