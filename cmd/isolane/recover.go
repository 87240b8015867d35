package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/quantity"
)

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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needCapabilities("recover"); err != nil {
				return err
			}
			// An undo that has begun is finished, whatever the user presses.
			r, err := lanes.Recover(context.WithoutCancel(cmd.Context()), options(), adopt)
			if out.json() {
				err = errors.Join(err, printJSON(cmd.OutOrStdout(), r))
			} else {
				printRecovered(cmd.OutOrStdout(), r)
			}
			switch {
			case err != nil:
				return fail(err)
			case len(r.Unrecorded) > 0:
				return withoutRecord(&enforce.NoRecordError{Groups: r.Unrecorded})
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&adopt, "adopt", false,
		"take over lanes that nobody has a record of: back to the kernel's defaults")
	out.flags(cmd, "text", "json")
	return cmd
}

func printRecovered(w io.Writer, r lanes.Recovered) {
	printExpired(w, r.Released)
	for _, name := range r.Undone {
		fmt.Fprintln(w, "undone:", name)
	}
	if n := len(r.PutBack); n > 0 {
		fmt.Fprintf(w, "lanes: %s put back to what was in force\n", quantity.Count(n, "setting"))
		printDrift(w, "put back", r.PutBack)
	}
	printLeft(w, r.Left)
	printAdopted(w, r.Adopted)
	if len(r.Released)+len(r.Undone)+len(r.PutBack)+len(r.Adopted)+len(r.Unrecorded) == 0 {
		fmt.Fprintln(w, "nothing to recover")
	}
}

// printAdopted has a line for all interrupts, and one for all threads, that were and are the same.
func printAdopted(w io.Writer, all []enforce.Adopted) {
	interrupts, threads := map[[2]string][]int{}, map[[2]string]int{}
	for _, a := range all {
		var irq int
		change := [2]string{a.From, a.To}
		_, is := fmt.Sscanf(a.Name, "/proc/irq/%d/", &irq)
		switch {
		case a.Kind == enforce.Unknown:
			fmt.Fprintf(w, "not known: %s: %s\n", a.Name, a.Note)
		case a.Kind == enforce.Kept:
			fmt.Fprintf(w, "left: %s is %s: %s\n", a.Name, a.From, a.Note)
		case a.Kind == enforce.Removed && a.Note != "":
			fmt.Fprintf(w, "removed: %s: %s\n", a.Name, a.Note)
		case a.Kind == enforce.Removed:
			fmt.Fprintf(w, "removed: %s\n", a.Name)
		case is == nil:
			interrupts[change] = append(interrupts[change], irq)
		case strings.HasPrefix(a.Name, "CPUs of thread"):
			threads[change]++
		default:
			fmt.Fprintf(w, "set: %s to %s, it was %s\n", a.Name, cmp.Or(a.To, "nothing"), a.From)
		}
	}
	for change, list := range interrupts {
		fmt.Fprintf(w, "set: CPUs of %s (%s) to %s, from %s\n", quantity.Count(len(list), "interrupt"),
			cpuset.Of(list...), change[1], change[0])
	}
	for change, n := range threads {
		fmt.Fprintf(w, "set: CPUs of %s to %s, from %s\n", quantity.Count(n, "kernel thread"), change[1], change[0])
	}
}
