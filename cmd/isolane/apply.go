package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
)

func applyCommand() *cobra.Command {
	var files laneFiles
	var out output
	var dryRun, prune, verbose bool
	cmd := &cobra.Command{
		Use:   "apply [-f LANES]",
		Short: "Put lanes in force on this machine, or put back what drifted; running workloads go on",
		Long: "Places the lanes of a file beside those in force, and changes the host so that it is true.\n" +
			"Each change is recorded first and taken back by release. Lanes in force that the file does not\n" +
			"name stay (--prune releases them); those that it describes as they are, too. Without a file,\n" +
			"what somebody else has changed is put back.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if prune && len(files.names) == 0 {
				return usage(errors.New("--prune: name with -f the lanes that stay"))
			}
			if dryRun {
				return showDifference(cmd, files, prune, out, printCommands)
			}
			l, err := openLanes(cmd, "apply")
			if err != nil {
				return err
			}
			defer l.Close()
			p, err := wanted(cmd, l, files, prune)
			if err != nil {
				return err
			}
			a, err := l.Put(cmd.Context(), p)
			if err != nil {
				for _, o := range a.Change.Outside {
					fmt.Fprintf(cmd.ErrOrStderr(), "no longer in lane %s: %s\n", o.Lane, o.Reason)
				}
				return hint(err, "the lanes that were in force before are; isolane status shows them")
			}
			if out.json() {
				return printJSON(cmd.OutOrStdout(), a)
			}
			printApplied(cmd.OutOrStdout(), a, verbose)
			return nil
		},
	}
	files.flags(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "release the lanes in force that the file does not name")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false,
		"print the commands that a person would type, and change nothing")
	out.flags(cmd, "text", "json")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list what was put back and what the kernel refused")
	return cmd
}

func diffCommand() *cobra.Command {
	var files laneFiles
	var out output
	var prune bool
	cmd := &cobra.Command{
		Use: "diff [-f LANES]",
		Short: "Show what apply would change: lanes, and settings with old and new value; exits with 3 where " +
			"there is any",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showDifference(cmd, files, prune, out, printDifference)
		},
	}
	files.flags(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "as apply --prune does it")
	out.flags(cmd, "text", "json")
	return cmd
}

// openLanes takes the lanes in force to change them, and waits half a minute for others that do; lanes that
// an isolane run left behind are released.
func openLanes(cmd *cobra.Command, command string) (*lanes.Lanes, error) {
	if err := needCapabilities(command); err != nil {
		return nil, err
	}
	o := options()
	o.Wait = func(h journal.Holder) {
		fmt.Fprintf(cmd.ErrOrStderr(), "waiting for %s, which changes this host\n",
			h)
	}
	l, expired, err := lanes.OpenPatiently(cmd.Context(), o)
	printExpired(cmd.ErrOrStderr(), expired)
	if err != nil {
		return nil, fail(err)
	}
	return l, nil
}

func printExpired(w io.Writer, names []string) {
	for _, name := range names {
		fmt.Fprintf(w, "lane %s is released: the isolane run that made it has ended\n", name)
	}
}

// wanted places the lanes of a file beside those in force; these alone without a file.
func wanted(cmd *cobra.Command, l *lanes.Lanes, files laneFiles, prune bool) (plan.Placement, error) {
	if err := l.Recorded(); err != nil {
		return plan.Placement{}, withoutRecord(err)
	}
	want, err := files.read(cmd)
	if err == nil && len(files.names)+len(l.Placement.Lanes) == 0 {
		err = usage(errors.New("no lanes are in force: name a file with lanes by -f"))
	}
	if err != nil {
		return plan.Placement{}, err
	}
	p, _, err := l.Want(want, prune)
	return p, refused(err, files.String())
}

// notInForce gives the error of a lane that could not be put in force its exit code.
func notInForce(err error, file string) error {
	var alone *enforce.NoRecordError
	if errors.As(err, &alone) {
		return withoutRecord(err)
	}
	return refused(err, file)
}

// refused gives the planner's error its exit code.
func refused(err error, file string) error {
	var refusal *plan.Refusal
	var lost *plan.Mismatch
	switch {
	case errors.As(err, &refusal) && file == "":
		return no(err)
	case errors.As(err, &refusal):
		return no(fmt.Errorf("%s: %w", file, err))
	case errors.As(err, &lost):
		return &exitError{code: exitNo, err: err,
			hint: "bring the CPUs back online, or isolane release the lanes that have lost them"}
	case err != nil:
		return fail(err)
	}
	return nil
}

// withoutRecord says how to get out of lanes that nobody has a record of.
func withoutRecord(err error) error {
	var alone *enforce.NoRecordError
	if errors.As(err, &alone) {
		return &exitError{code: exitNo, err: err,
			hint: "isolane recover --adopt gives what lanes change the kernel's defaults, and removes the cgroups"}
	}
	return fail(err)
}

// showDifference says what apply would do; also to a user who may not do it, as far as they may read it.
func showDifference(cmd *cobra.Command, files laneFiles, prune bool, out output,
	print func(io.Writer, enforce.Difference)) error {
	l, err := lanes.Look(options())
	if errors.Is(err, journal.ErrNeedsRoot) {
		fmt.Fprintf(cmd.ErrOrStderr(),
			"needs root to see the lanes in force: %s\nwithout them, as if there were none:\n", sudo())
		l, err = lanes.Unseen(options()), nil
	}
	if err != nil {
		return fail(err)
	}
	p, err := wanted(cmd, l, files, prune)
	if err != nil {
		return err
	}
	d, err := l.Diff(cmd.Context(), p)
	if err != nil {
		return fail(err)
	}
	if out.json() {
		err = printJSON(cmd.OutOrStdout(), d)
	} else {
		print(cmd.OutOrStdout(), d)
	}
	if err == nil && cmd.Name() == "diff" && !d.None() {
		return &exitError{code: exitNo}
	}
	return err
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
			l, err := openLanes(cmd, "release")
			if err != nil {
				return err
			}
			defer l.Close()
			if all {
				for _, placed := range l.Placement.Lanes {
					names = append(names, placed.Name)
				}
			}
			for _, name := range names {
				if _, err = l.Lane(name); err != nil {
					return usage(err)
				}
			}
			r, err := l.Release(cmd.Context(), names...)
			switch {
			case err != nil:
				return fail(err)
			case out.json():
				return printJSON(cmd.OutOrStdout(), r)
			}
			printReleased(cmd.OutOrStdout(), r)
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all lanes")
	out.flags(cmd, "text", "json")
	return cmd
}
