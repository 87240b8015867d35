package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/history"
	"isolane.dev/isolane/history/diary"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lane"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/runtime/process"
)

func applyCommand() *cobra.Command {
	var files laneFiles
	var out output
	var dryRun, prune, each, verbose bool
	cmd := &cobra.Command{
		Use:   "apply [-f LANES]",
		Short: "Put lanes in force on this machine, or put back what drifted; running workloads go on",
		Long: "Places the lanes of a file beside those in force, and changes the host so that it is true.\n" +
			"Each change is recorded first and taken back by release. Lanes in force that the file does not\n" +
			"name stay (--prune releases them); those that it describes as they are, too. Without a file,\n" +
			"what somebody else has changed is put back.\n\n" +
			"With --each a file that is wrong, or whose lanes do not fit, is told and left out, and the lanes\n" +
			"of the others come in force: together, and where that cannot be, file by file. It ends with 3\n" +
			"where a file was left out. isolane.service does so with /etc/isolane/lanes.d at boot.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if prune && len(files.names) == 0 {
				return usage(errors.New("--prune: name with -f the lanes that stay"))
			}
			if each && len(files.names) == 0 {
				return usage(errors.New("--each: name with -f the files with lanes"))
			}
			if dryRun {
				_, err := showDifference(cmd, files, prune, out, lanes.WriteCommands)
				return err
			}
			did := newDiary()
			defer keep(cmd, did)
			var a lanes.Applied
			var left error
			l, err := openLanes(cmd, "apply", did)
			switch {
			case unable(err) && !each:
				a, err = askApply(cmd, err, files, prune)
			case err != nil:
				return err
			case each:
				defer l.Close()
				a, left = putEach(cmd, l, files, did)
			default:
				defer l.Close()
				a, err = putAll(cmd, l, files, prune, did)
			}
			if err == nil && a.Kind != "" { // something is in force
				err = out.printAs(cmd, a, func(w io.Writer) { a.Write(w, verbose) })
			}
			return errors.Join(err, left)
		},
	}
	files.flags(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "release the lanes in force that the file does not name")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false,
		"print the commands that a person would type, and change nothing")
	cmd.Flags().BoolVar(&each, "each", false, "leave out files that are wrong or do not fit, and go on")
	cmd.MarkFlagsMutuallyExclusive("each", "prune")
	cmd.MarkFlagsMutuallyExclusive("each", "dry-run")
	out.flags(cmd, "text", "json")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list what was put back and what the kernel refused")
	return cmd
}

// done says what came of a placement, and records it. Where it failed, the lanes in force before are.
func done(cmd *cobra.Command, did *diary.Diary, a lanes.Applied, err error) error {
	if err == nil {
		did.Applied(a)
	}
	if err != nil && !is[*lanes.TargetError](err) && !is[*plan.Refusal](err) { // else nothing was changed
		a.WriteOutside(cmd.ErrOrStderr())
		err = hint(err, "the lanes that were in force before are; isolane status shows them")
	}
	return err
}

// putAll puts the lanes of files in force, or none of them.
func putAll(cmd *cobra.Command, l *lanes.Lanes, f laneFiles, prune bool, d *diary.Diary) (a lanes.Applied,
	err error) {
	p, err := wanted(cmd, l, f, prune)
	if err == nil {
		a, err = l.Put(cmd.Context(), p)
		err = done(cmd, d, a, err)
	}
	return a, err
}

// putEach puts the lanes of those files in force that can be, and says why the others are not.
func putEach(cmd *cobra.Command, l *lanes.Lanes, from laneFiles, did *diary.Diary) (lanes.Applied, error) {
	if err := l.Recorded(); err != nil {
		return lanes.Applied{}, err
	}
	files, wrong := lane.ReadEach(from.names, cmd.InOrStdin())
	all := len(files) + len(wrong)
	last, left := l.PutEach(cmd.Context(), files, func(a lanes.Applied, err error) {
		_ = done(cmd, did, a, err) // left has it
	})
	left = append(wrong, left...)
	for _, err := range left {
		fmt.Fprintf(cmd.ErrOrStderr(), "isolane: left out: %v\n", err)
	}
	if len(left) > 0 {
		return last, no(fmt.Errorf("lanes of %d of %d files are not in force", len(left), all))
	}
	return last, nil
}

func diffCommand() *cobra.Command {
	var files laneFiles
	var out output
	var prune bool
	cmd := &cobra.Command{
		Use: "diff [-f LANES]",
		Short: "Show what apply would change: lanes, and settings with old and new value; exits with 3 where " +
			"there is any",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := showDifference(cmd, files, prune, out, lanes.WriteDifference)
			if err == nil && !d.None() {
				return &exitError{code: exitNo}
			}
			return err
		},
	}
	files.flags(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "as apply --prune does it")
	out.flags(cmd, "text", "json")
	return cmd
}

// openLanes takes the lanes in force to change them, and waits half a minute for others that do; lanes that
// an isolane run left behind are released.
func openLanes(cmd *cobra.Command, command string, did *diary.Diary) (*lanes.Lanes, error) {
	if err := needCapabilities(command); err != nil {
		return nil, err
	}
	o := options()
	o.Wait = func(h journal.Holder) {
		fmt.Fprintf(cmd.ErrOrStderr(), "waiting for %s, which changes this host\n", h)
	}
	l, names, err := lanes.OpenPatiently(cmd.Context(), o)
	lanes.WriteExpired(cmd.ErrOrStderr(), names)
	did.Released(names, diary.Expired)
	return l, err
}

// wanted places the lanes of a file beside those in force; these alone without a file.
func wanted(cmd *cobra.Command, l *lanes.Lanes, files laneFiles, prune bool) (plan.Placement, error) {
	if err := l.Recorded(); err != nil {
		return plan.Placement{}, err
	}
	want, err := files.read(cmd)
	if err == nil && len(files.names)+len(l.Placement.Lanes) == 0 {
		err = usage(errors.New("no lanes are in force: name a file with lanes by -f"))
	}
	if err != nil {
		return plan.Placement{}, err
	}
	p, _, err := l.Want(want, prune)
	return p, plan.At(err, want)
}

// showDifference says what apply would do; also to a user who may not do it, as far as they may read it.
func showDifference(cmd *cobra.Command, files laneFiles, prune bool, out output,
	write func(io.Writer, enforce.Difference)) (d enforce.Difference, err error) {
	l, err := lanes.Look(options())
	if errors.Is(err, journal.ErrNeedsRoot) {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"needs root to see the lanes in force: %s\nwithout them, as if there were none:\n", sudo())
		l, err = lanes.Unseen(options()), nil
	}
	if err != nil {
		return d, err
	}
	p, err := wanted(cmd, l, files, prune)
	if err != nil {
		return d, err
	}
	if d, err = l.Diff(cmd.Context(), p); err != nil {
		return d, err
	}
	return d, out.printAs(cmd, d, func(w io.Writer) { write(w, d) })
}

func releaseCommand() *cobra.Command {
	var all bool
	var out output
	cmd := &cobra.Command{
		Use:   "release NAME... | --all",
		Short: "Take lanes back: their settings are undone, their processes go on outside",
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usage(errors.New("release: expected names of lanes, or --all"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			did := newDiary()
			defer keep(cmd, did)
			l, err := openLanes(cmd, "release", did)
			if unable(err) {
				r, aerr := askRelease(cmd, err, names, all)
				return out.print(cmd, r, aerr)
			}
			if err != nil {
				return err
			}
			defer l.Close()
			if all {
				names = l.Names()
			}
			r, err := l.Release(cmd.Context(), names...)
			if err == nil {
				did.Released(names, "taken back")
			}
			return out.print(cmd, r, err)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all lanes")
	out.flags(cmd, "text", "json")
	return cmd
}

func statusCommand() *cobra.Command {
	var out output
	var verbose bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the lanes in force, and what somebody else has changed since; exits with 3 where that is so",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s enforce.Status
			l, err := lanes.Look(options())
			if err == nil {
				s, err = l.Status(cmd.Context())
			} else if unable(err) {
				s, err = askStatus(cmd, err)
			}
			if err != nil {
				return err
			}
			err = out.printAs(cmd, s, func(w io.Writer) { lanes.WriteStatus(w, s, verbose) })
			return errors.Join(err, lanes.Unsettled(s))
		},
	}
	out.flags(cmd, "text", "json")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list what the kernel refused")
	return cmd
}

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
			"the CPUs of their roles; a QEMU without thread names is asked by QMP. release undoes it.\n\n" +
			"A network path of the lane leads into the network namespace of the workload then, which must be\n" +
			"its own and have no eth0, as that of a container without a network.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			did := newDiary()
			defer keep(cmd, did)
			l, err := openLanes(cmd, "attach", did)
			if err != nil {
				return err
			}
			defer l.Close()
			at.Own = !move
			a, err := l.Attach(cmd.Context(), at)
			if err == nil {
				a.Write(cmd.OutOrStdout(), at.Lane)
				did.Add(history.Event{Kind: history.Attached, Lane: at.Lane, What: quantity.Count(a.Threads, "thread")})
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
	must(cmd.MarkFlagRequired("lane"))
	return cmd
}

func recoverCommand() *cobra.Command {
	var adopt bool
	var out output
	cmd := &cobra.Command{
		Use: "recover",
		Short: "End what a crash of isolane has left half done: the lanes that were in force stay, all else is " +
			"undone",
		Long: "What a crash has left half done is undone, and the lanes that were in force are so again.\n" +
			"Where somebody has removed the record of lanes in force (/run/isolane), what was there before\n" +
			"them is not known: --adopt removes their cgroups, and gives what lanes change the kernel's\n" +
			"defaults.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needCapabilities("recover"); err != nil {
				return err
			}
			// An undo that has begun is finished, whatever the user presses.
			r, err := lanes.Recover(context.WithoutCancel(cmd.Context()), options(), adopt)
			did := newDiary()
			defer keep(cmd, did)
			did.Recovered(r)
			return errors.Join(err, out.print(cmd, r, nil))
		},
	}
	cmd.Flags().BoolVar(&adopt, "adopt", false,
		"take over lanes that nobody has a record of: back to the kernel's defaults")
	out.flags(cmd, "text", "json")
	return cmd
}

// needCapabilities says what a command lacks that changes the host.
func needCapabilities(command string) error {
	return process.Need(command+" changes cpusets, interrupts and tasks", "DAC_OVERRIDE", "SYS_ADMIN",
		"SYS_NICE")
}

// sudo is the command line that the user typed, as root.
func sudo() string { return "sudo " + typed() }

// typed is the command line of this process.
func typed() string {
	var words []string
	for _, a := range os.Args {
		words = append(words, change.Quote(a))
	}
	return strings.Join(words, " ")
}
