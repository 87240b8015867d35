package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/enforce/attached"
	"isolane.dev/isolane/history/diary"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/runtime/process"
)

func applyCommand() *cobra.Command {
	var files []string
	var dryRun, prune, each, verbose bool
	cmd := cli.Prints(&cobra.Command{
		Use:   "apply [-f LANES]",
		Short: "Put lanes in force on this machine, or put back what drifted; running workloads go on",
		Long: "Plans the lanes of a file beside those in force, and changes the host accordingly. Each change\n" +
			"is recorded first, and release undoes it. Lanes in force that the file does not name stay, or\n" +
			"are released with --prune. A lane that is in force as the file describes it is left as it is.\n" +
			"Without a file, apply puts back what somebody else has changed.\n\n" +
			"With --each, a file that is wrong or whose lanes do not fit is reported and left out, and the\n" +
			"lanes of the other files come in force: all together if that is possible, else file by file. The\n" +
			"exit code is 3 if a file was left out. isolane.service does this at boot with\n" +
			"/etc/isolane/lanes.d.",
	}, func(cmd *cobra.Command, _ []string) (cli.Document, error) {
		if prune && len(files) == 0 {
			return nil, cli.Usage(errors.New("--prune: name with -f the lanes that stay"))
		}
		if each && len(files) == 0 {
			return nil, cli.Usage(errors.New("--each: name with -f the files with lanes"))
		}
		if dryRun {
			d, err := difference(cmd, files, prune)
			return cli.Written{Document: d, Text: func(w io.Writer) { lanes.WriteCommands(w, d) }}, err
		}
		h := thisHost(cmd)
		var a lanes.Applied
		var err error
		if each {
			a, err = h.ApplyEach(cmd.Context(), files, cmd.InOrStdin())
		} else if a, err = h.Apply(cmd.Context(), files, cmd.InOrStdin(), prune); unable(err) {
			a, err = agentOf(cmd, err).ApplyFiles(cmd.Context(), files, cmd.InOrStdin(), prune)
		}
		if is[*diary.LeftOutError](err) && a.Kind != "" { // else nothing is in force
			err = cli.Beside(err)
		}
		return cli.Written{Document: a, Text: func(w io.Writer) { a.Write(w, verbose) }}, err
	})
	fileFlag(cmd, &files)
	cmd.Flags().BoolVar(&prune, "prune", false, "release the lanes in force that the file does not name")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false,
		"print the commands that a person would type, and change nothing")
	cmd.Flags().BoolVar(&each, "each", false, "leave out files that are wrong or do not fit, and go on")
	cli.Alone(cmd, "each", "prune", "dry-run")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list what was put back and what the kernel refused")
	return cmd
}

func diffCommand() *cobra.Command {
	var files []string
	var prune bool
	cmd := cli.Prints(&cobra.Command{
		Use: "diff [-f LANES]",
		Short: "Show what apply would change: lanes, and settings with old and new value; exits with 3 where " +
			"there is any",
	}, func(cmd *cobra.Command, _ []string) (cli.Document, error) {
		d, err := difference(cmd, files, prune)
		if err == nil && !d.None() {
			err = cli.Beside(&cli.Error{Code: cli.ExitNo})
		}
		return cli.Written{Document: d, Text: func(w io.Writer) { lanes.WriteDifference(w, d) }}, err
	})
	fileFlag(cmd, &files)
	cmd.Flags().BoolVar(&prune, "prune", false, "as apply --prune does it")
	return cmd
}

// difference is what apply would do; also for a user who may not do it, as far as they may read it.
func difference(cmd *cobra.Command, files []string, prune bool) (d enforce.Difference, err error) {
	l, err := lanes.Look(options())
	if errors.Is(err, journal.ErrNeedsRoot) {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"needs root to see the lanes in force: %s\nwithout them, as if there were none:\n", sudo())
		l, err = lanes.None(options()), nil
	}
	if err != nil {
		return d, err
	}
	return l.DiffFiles(cmd.Context(), files, cmd.InOrStdin(), prune)
}

func releaseCommand() *cobra.Command {
	var all bool
	cmd := cli.Prints(&cobra.Command{
		Use:   "release NAME... | --all",
		Short: "Take lanes back: their settings are undone, their processes go on outside",
		Args:  cobra.ArbitraryArgs,
	}, func(cmd *cobra.Command, names []string) (cli.Document, error) {
		if all == (len(names) > 0) {
			return nil, cli.Usage(errors.New("release: expected names of lanes, or --all"))
		}
		r, err := thisHost(cmd).Release(cmd.Context(), names, all)
		if unable(err) {
			r, err = agentOf(cmd, err).Release(cmd.Context(), names, all)
		}
		return r, cmp.Or(err, cli.Beside(r.Unfinished()))
	})
	cmd.Flags().BoolVar(&all, "all", false, "all lanes")
	return cmd
}

func statusCommand() *cobra.Command {
	var verbose bool
	cmd := cli.Prints(&cobra.Command{
		Use:   "status",
		Short: "Show the lanes in force, and what somebody else has changed since; exits with 3 where that is so",
	}, func(cmd *cobra.Command, _ []string) (cli.Document, error) {
		s, err := lanes.StatusOf(cmd.Context(), options())
		if unable(err) {
			s, err = agentOf(cmd, err).Status(cmd.Context())
		}
		return cli.Written{Document: s, Text: func(w io.Writer) { lanes.WriteStatus(w, s, verbose) }},
			cmp.Or(err, cli.Beside(lanes.Unsettled(s)))
	})
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list what the kernel refused")
	return cmd
}

func attachCommand() *cobra.Command {
	var at attached.Workload
	var move bool
	cmd := &cobra.Command{
		Use:   "attach --lane NAME {--pid N | --cgroup PATH}",
		Short: "Bring a workload that runs already into its lane",
		Long: "Brings a process with its descendants, or a cgroup (of a service, a container or a virtual\n" +
			"machine), into a lane. The workload stays in its own cgroup, which gets the lane's CPUs; its\n" +
			"limits, its statistics and the way to stop it do not change. If the kernel cannot do that (cgroup\n" +
			"v2 before Linux 6.7, CPUs of isolcpus=), and with --move, the processes move to the lane's\n" +
			"cgroup. They come back when the lane is released or the service ends. The threads of QEMU, DPDK\n" +
			"and VPP get the CPUs of their roles; the threads of a QEMU that does not name them are looked up\n" +
			"by QMP. release undoes it.\n\n" +
			"If the lane has a network path, the path leads into the network namespace of the workload. That\n" +
			"namespace must be its own and have no eth0, such as that of a container without a network.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if at.Own = !move; at.PID == 0 && at.Group == "" { // as of a variable that is not set
				return cli.Usage(errors.New("expected the number of a process for --pid, or the path of a cgroup for " +
					"--cgroup"))
			}
			a, err := thisHost(cmd).Attach(cmd.Context(), at)
			if err == nil {
				a.Write(cmd.OutOrStdout(), at.Lane)
			}
			return err
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
	cli.Must(cmd.MarkFlagRequired("lane"))
	return cmd
}

func recoverCommand() *cobra.Command {
	var adopt bool
	cmd := cli.Prints(&cobra.Command{
		Use: "recover",
		Short: "End what a crash of isolane has left half done: the lanes that were in force stay, all else is " +
			"undone",
		Long: "Undoes what a crash of isolane has left half done, and puts the lanes that were in force before\n" +
			"in force again. If somebody has removed the record of lanes in force (/run/isolane), nobody knows the\n" +
			"settings before them: --adopt removes the cgroups of these lanes, and sets what lanes change to\n" +
			"the kernel's defaults.",
	}, func(cmd *cobra.Command, _ []string) (cli.Document, error) {
		r, err := thisHost(cmd).Recover(cmd.Context(), adopt)
		if !is[*process.CapabilityError](err) && !errors.Is(err, journal.ErrBusy) {
			err = cli.Beside(err)
		}
		return r, err
	})
	cmd.Flags().BoolVar(&adopt, "adopt", false,
		"take over lanes that nobody has a record of: back to the kernel's defaults")
	return cmd
}
