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
	"isolane.dev/isolane/host"
	"isolane.dev/isolane/journal"
	"isolane.dev/isolane/quantity"
)

// recovered is the JSON of isolane recover.
type recovered struct {
	head
	Released   []string          `json:"released"` // lanes whose isolane run has ended without doing so
	Undone     []string          `json:"undone"`   // sessions that were cut off
	PutBack    []enforce.Drift   `json:"putBack"`  // what was not as the lanes in force want it
	Left       []left            `json:"left"`
	Adopted    []enforce.Adopted `json:"adopted"`
	Unrecorded []string          `json:"unrecorded"` // cgroups that --adopt would remove
}

func recoverCommand() *cobra.Command {
	var adopt bool
	var out output
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "End what a crash of isolane has left half done: the lanes that were in force stay, all else is undone",
		Long: "What a crash has left half done is undone, and the lanes that were in force are so again. Where somebody has\n" +
			"removed the record of lanes in force (/run/isolane), what was there before them is not known: --adopt removes\n" +
			"their cgroups, and gives what lanes change the kernel's defaults.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needCapabilities("recover"); err != nil {
				return err
			}
			// An undo that has begun is finished, whatever the user presses.
			r, err := recoverAll(context.WithoutCancel(cmd.Context()), adopt)
			if out.json() {
				err = errors.Join(err, printJSON(cmd.OutOrStdout(), r))
			} else {
				r.print(cmd.OutOrStdout())
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
	cmd.Flags().BoolVar(&adopt, "adopt", false, "take over lanes that nobody has a record of: back to the kernel's defaults")
	out.flags(cmd, "text", "json")
	return cmd
}

func recoverAll(ctx context.Context, adopt bool) (recovered, error) {
	r := recovered{head: document("Recovered"), Released: []string{}, Undone: []string{},
		PutBack: []enforce.Drift{}, Left: []left{}, Adopted: []enforce.Adopted{}, Unrecorded: []string{}}
	l, err := enforce.Open(journal.Dir, host.Live(), ops())
	if err != nil {
		return r, err
	}
	expired, err := l.Expire(ctx)
	r.Released = append(r.Released, expired...)
	if err == nil {
		var drift []enforce.Drift
		drift, err = l.Recover(ctx)
		r.PutBack = append(r.PutBack, drift...)
	}
	r.Left = leftAlone(l)
	keep := l.Journals()
	if err = errors.Join(err, l.Close()); err != nil {
		return r, err
	}
	found, err := journal.Recover(ctx, journal.Dir, ops(), keep...)
	r.Undone = append(r.Undone, found...)
	if err != nil {
		return r, err
	}
	return r, r.adopt(ctx, adopt)
}

// adopt comes last: journals that were cut off tell of cgroups too.
func (r *recovered) adopt(ctx context.Context, really bool) error {
	l, err := enforce.Open(journal.Dir, host.Live(), ops())
	if err != nil {
		return err
	}
	defer l.Close() //nolint:errcheck // nothing is recorded
	var alone []string
	if really {
		var did []enforce.Adopted
		did, err = l.Adopt(ctx)
		r.Adopted = append(r.Adopted, did...)
	}
	if err == nil {
		alone, err = l.Unrecorded()
		r.Unrecorded = append(r.Unrecorded, alone...)
	}
	return err
}

func (r recovered) print(w io.Writer) {
	for _, name := range r.Released {
		fmt.Fprintf(w, "lane %s is released: the isolane run that made it has ended\n", name)
	}
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
		fmt.Fprintf(w, "set: CPUs of %s (%s) to %s, from %s\n", quantity.Count(len(list), "interrupt"), cpuset.Of(list...), change[1], change[0])
	}
	for change, n := range threads {
		fmt.Fprintf(w, "set: CPUs of %s to %s, from %s\n", quantity.Count(n, "kernel thread"), change[1], change[0])
	}
}
