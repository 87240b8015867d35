package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/lanes"
)

func runCommand() *cobra.Command {
	var name string
	var with lanes.With
	var fresh temporary
	cmd := &cobra.Command{
		Use:   "run {--lane NAME | --cpus N} -- COMMAND [ARG...]",
		Short: "Start a workload in its lane, or in one that lives as long as it does",
		Long: "Becomes the command, inside the lane's cpuset, with its memory policy and scheduling, and\n" +
			"without the capabilities that only administration needs. It is told of its lane in\n" +
			"ISOLANE_CPUS, ISOLANE_CPUS_RELATIVE (as numbers in the cpuset), ISOLANE_CPUS_ROLE for each\n" +
			"role, ISOLANE_MEMORY_NODES, and ISOLANE_HUGEPAGES_2MI (where pages of that size are mounted).\n\n" +
			"With --cpus it makes a lane for the command, run-PID, passes signals on, and releases the lane\n" +
			"when the command ends. The exit code is the command's (128 and more: it was ended by a\n" +
			"signal), 126 where it cannot be executed, 127 where there is none.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, argv []string) error {
			if err := needCapabilities("run"); err != nil {
				return err
			}
			if name == "" {
				return fresh.run(cmd, with, argv)
			}
			return become(cmd, name, with, argv)
		},
	}
	cmd.Flags().StringVar(&name, "lane", "", "lane that is in force")
	cmd.Flags().StringVar(&with.Netns, "netns", "", "network namespace to enter (a name under /run/netns)")
	cmd.Flags().StringSliceVar(&with.Capabilities, "cap-add", nil,
		"capabilities to leave to the command beside the usual ones, such as NET_ADMIN,SYS_RAWIO")
	cmd.Flags().IntVar(&with.Parent, "parent", 0, "the process that the command does not outlive")
	if err := cmd.Flags().MarkHidden("parent"); err != nil {
		panic(err) // the flag is defined above
	}
	fresh.flags(cmd)
	cmd.MarkFlagsMutuallyExclusive("lane", "cpus")
	cmd.MarkFlagsOneRequired("lane", "cpus")
	return cmd
}

// become replaces this process by a command in a lane that is in force.
func become(cmd *cobra.Command, name string, with lanes.With, argv []string) error {
	return notStarted(lanes.Become(cmd.Context(), options(), name, with, argv, func(warning string) {
		fmt.Fprintln(cmd.ErrOrStderr(), "isolane:", warning)
	}))
}

// What env(1) and others that start programs exit with where there is none to start.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// notStarted gives the error of a program that could not be started the exit code that env(1) gives.
func notStarted(err error) error {
	var e *exec.Error
	switch {
	case !errors.As(err, &e):
		return ofLane(err)
	case errors.Is(err, exec.ErrNotFound) && !inPath(e.Name), errors.Is(err, fs.ErrNotExist):
		return &exitError{code: exitNotFound, err: err}
	}
	return &exitError{code: exitNotExecutable, err: err}
}

// inPath says whether there is a file of that name, which is then no program (execvp(3), EACCES).
func inPath(name string) bool {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil && !info.IsDir() {
			return true
		}
	}
	return false
}
