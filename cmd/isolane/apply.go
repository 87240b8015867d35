package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/plan"
)

func applyCommand() *cobra.Command {
	var files laneFiles
	var out output
	var dryRun, prune, verbose bool
	cmd := &cobra.Command{
		Use:   "apply [-f LANES]",
		Short: "Put lanes in force on this machine, or put back what drifted; running workloads go on",
		Long: "Places the lanes of a file beside those in force, and changes the host so that it is true. Each change is\n" +
			"recorded first and taken back by release. Lanes in force that the file does not name stay (--prune releases\n" +
			"them); those that it describes as they are, too. Without a file, what somebody else has changed is put back.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if prune && len(files.names) == 0 {
				return usage(errors.New("--prune: name with -f the lanes that stay"))
			}
			if dryRun {
				return showDifference(cmd, files, prune, out, printCommands)
			}
			l, err := openLanes(cmd.Context(), cmd.ErrOrStderr(), "apply")
			if err != nil {
				return err
			}
			defer l.Close() //nolint:errcheck // what is in force is stored
			p, err := wanted(cmd, l, files, prune)
			if err != nil {
				return err
			}
			result, err := putInForce(cmd, l, p)
			if err != nil {
				return err
			}
			return result.show(cmd.OutOrStdout(), out, verbose)
		},
	}
	files.flags(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "release the lanes in force that the file does not name")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print the commands that a person would type, and change nothing")
	out.flags(cmd, "text", "json")
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "list what was put back and what the kernel refused")
	return cmd
}

func diffCommand() *cobra.Command {
	var files laneFiles
	var out output
	var prune bool
	cmd := &cobra.Command{
		Use:   "diff [-f LANES]",
		Short: "Show what apply would change: lanes, and settings with old and new value; exits with 3 where there is any",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showDifference(cmd, files, prune, out, printDifference)
		},
	}
	files.flags(cmd)
	cmd.Flags().BoolVar(&prune, "prune", false, "as apply --prune does it")
	out.flags(cmd, "text", "json")
	return cmd
}

// openLanes takes the lanes in force to change them, without those that an isolane run left behind.
func openLanes(ctx context.Context, w io.Writer, command string) (*enforce.Lanes, error) {
	if err := needCapabilities(command); err != nil {
		return nil, err
	}
	l, err := enforce.Open(journal.Dir, host.Live(), ops())
	if err != nil {
		return nil, fail(err)
	}
	if err = expire(ctx, w, l); err != nil {
		return nil, fail(errors.Join(err, l.Close()))
	}
	return l, nil
}

func expire(ctx context.Context, w io.Writer, l *enforce.Lanes) error {
	expired, err := l.Expire(ctx)
	for _, name := range expired {
		fmt.Fprintf(w, "lane %s is released: the isolane run that made it has ended\n", name)
	}
	return err
}

// wanted places the lanes of a file beside those in force; these alone without a file.
func wanted(cmd *cobra.Command, l *enforce.Lanes, files laneFiles, prune bool) (plan.Placement, error) {
	if err := l.Recorded(); err != nil {
		return plan.Placement{}, withoutRecord(err)
	}
	lanes, err := files.read(cmd)
	if err == nil && len(files.names)+len(l.Placement.Lanes) == 0 {
		err = usage(errors.New("no lanes are in force: name a file with lanes by -f"))
	}
	if err != nil {
		return plan.Placement{}, err
	}
	p, _, err := l.Want(lanes, prune)
	return p, refused(err, files.String())
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
		return &exitError{code: exitNo, err: err, hint: "bring the CPUs back online, or isolane release the lanes that have lost them"}
	case err != nil:
		return fail(err)
	}
	return nil
}

// putInForce changes the host.
func putInForce(cmd *cobra.Command, l *enforce.Lanes, p plan.Placement) (applied, error) {
	c, err := l.Put(cmd.Context(), p, func(at enforce.Attachment) error {
		_, _, aerr := attach(cmd, l, at)
		return aerr
	})
	if err != nil {
		for _, o := range c.Outside {
			fmt.Fprintf(cmd.ErrOrStderr(), "no longer in lane %s: %s\n", o.Lane, o.Reason)
		}
		return applied{}, hint(err, "the lanes that were in force before are; isolane status shows them")
	}
	return newApplied(l, p, c)
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
func showDifference(cmd *cobra.Command, files laneFiles, prune bool, out output, print func(io.Writer, enforce.Difference)) error {
	l, err := enforce.Look(journal.Dir, host.Live(), ops())
	if errors.Is(err, journal.ErrNeedsRoot) {
		fmt.Fprintf(cmd.ErrOrStderr(), "needs root to see the lanes in force: %s\nwithout them, as if there were none:\n", sudo())
		l, err = enforce.Unseen(host.Live(), ops()), nil
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
			l, err := openLanes(cmd.Context(), cmd.ErrOrStderr(), "release")
			if err != nil {
				return err
			}
			defer l.Close() //nolint:errcheck // what is in force is stored
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
			r, err := releaseLanes(cmd, l, names)
			if err != nil {
				return fail(err)
			}
			return r.show(cmd.OutOrStdout(), out)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all lanes")
	out.flags(cmd, "text", "json")
	return cmd
}
