package lanes

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
	"isolane.dev/isolane/unit"
)

// Write prints the result for people; with verbose also what was restored and what the kernel refused.
func (a Applied) Write(w io.Writer, verbose bool) {
	for _, placed := range a.Placement.Lanes {
		fmt.Fprintf(w, "lane %s: CPUs %s, memory of NUMA node %s%s\n", placed.Name, placed.CPUs, placed.MemoryNodes,
			idle(placed))
	}
	for _, name := range a.Change.Removed {
		fmt.Fprintf(w, "lane %s: released\n", name)
	}
	fmt.Fprintf(w, "housekeeping: CPUs %s\nin force: %s of the host changed, isolane release takes them back\n"+
		"now: %s\n",
		a.Placement.Housekeeping, quantity.Count(a.Settings, "setting"), changes(a.Change))
	if verbose {
		printDrift(w, "put back", a.Change.PutBack)
	}
	a.WriteOutside(w)
	for _, warning := range a.Warnings {
		fmt.Fprintln(w, "note:", warning)
	}
	printRefused(w, a.Refused, verbose)
	printLeft(w, a.Left)
	printWaiting(w, a.Waiting)
	for _, name := range a.Untested {
		fmt.Fprintf(w, "untested on a real kernel: %s\n", name)
	}
	printUnits(w, a.Units)
}

// WriteOutside says which workloads are not in their lane, and why.
func (a Applied) WriteOutside(w io.Writer) {
	for _, o := range a.Change.Outside {
		fmt.Fprintf(w, "outside of lane %s: %s\n", o.Lane, o.Reason)
	}
}

// Write prints the result for people.
func (r Released) Write(w io.Writer) {
	are, stay := "are", "stay"
	if r.TakenBack == 1 {
		are = "is"
	}
	if r.Settings == 1 {
		stay = "stays"
	}
	fmt.Fprintf(w, "released: %s %s as before, %d %s changed\n", quantity.Count(r.TakenBack, "setting"), are,
		r.Settings, stay)
	printLeft(w, r.Left)
	printWaiting(w, r.Waiting)
}

// WriteExpired says which lanes Open has released, and why.
func WriteExpired(w io.Writer, names []string) {
	for _, name := range names {
		fmt.Fprintf(w, "lane %s is released: the isolane run that made it has ended\n", name)
	}
}

// Write prints the result for people.
func (r Recovered) Write(w io.Writer) {
	WriteExpired(w, r.Released)
	for _, name := range r.Undone {
		fmt.Fprintln(w, "undone:", name)
	}
	not := slices.DeleteFunc(slices.Clone(r.PutBack), func(d enforce.Drift) bool { return d.Repaired })
	back := slices.DeleteFunc(slices.Clone(r.PutBack), func(d enforce.Drift) bool { return !d.Repaired })
	if n := len(back); n > 0 {
		fmt.Fprintf(w, "lanes: %s put back to what was in force\n", quantity.Count(n, "setting"))
		printDrift(w, "put back", back)
	}
	printDrift(w, "not in force", not)
	printLeft(w, r.Left)
	printWaiting(w, r.Waiting)
	printAdopted(w, r.Adopted)
	if len(r.Released)+len(r.Undone)+len(r.PutBack)+len(r.Waiting)+len(r.Adopted)+len(r.Unrecorded) == 0 {
		fmt.Fprintln(w, "nothing to recover")
	}
}

// printAdopted prints one line for all interrupts, and one for all threads, that changed in the same way.
func printAdopted(w io.Writer, all []enforce.Adopted) {
	interrupts, threads := map[string][]int{}, map[string]int{}
	for _, a := range all {
		change := a.To + ", from " + a.From
		switch {
		case a.Kind == enforce.Unknown:
			fmt.Fprintf(w, "not known: %s: %s\n", a.Name, a.Note)
		case a.Kind == enforce.Kept:
			fmt.Fprintf(w, "left: %s is %s: %s\n", a.Name, a.From, a.Note)
		case a.Kind == enforce.Removed && a.Note != "":
			fmt.Fprintf(w, "removed: %s: %s\n", a.Name, a.Note)
		case a.Kind == enforce.Removed:
			fmt.Fprintf(w, "removed: %s\n", a.Name)
		case a.IRQ != nil:
			interrupts[change] = append(interrupts[change], *a.IRQ)
		case a.Subject == enforce.Thread:
			threads[change]++
		default:
			fmt.Fprintf(w, "set: %s to %s, it was %s\n", a.Name, cmp.Or(a.To, "nothing"), a.From)
		}
	}
	for _, change := range slices.Sorted(maps.Keys(interrupts)) {
		list := interrupts[change]
		fmt.Fprintf(w, "set: CPUs of %s (%s) to %s\n", quantity.Count(len(list), "interrupt"), cpuset.Of(list...),
			change)
	}
	for _, change := range slices.Sorted(maps.Keys(threads)) {
		fmt.Fprintf(w, "set: CPUs of %s to %s\n", quantity.Count(threads[change], "kernel thread"), change)
	}
}

// changes describes what was done this time.
func changes(c enforce.Change) string {
	var parts []string
	for _, n := range []struct {
		count int
		what  string
	}{{len(c.PutBack), "put back"}, {c.Changed, "changed"}, {c.TakenBack, "taken back"}} {
		if n.count > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n.count, n.what))
		}
	}
	for _, m := range c.Moved {
		part := fmt.Sprintf("lane %s moved from CPUs %s to %s", m.Lane, m.From, m.To)
		if m.Processes > 0 {
			part += " with " + quantity.Count(m.Processes, "process")
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return "nothing to do"
	}
	return strings.Join(parts, ", ")
}

func idle(l plan.Lane) string {
	if l.Idle.IsEmpty() {
		return ""
	}
	return fmt.Sprintf(", siblings %s idle", l.Idle)
}

func printLeft(w io.Writer, all []Left) {
	for _, a := range all {
		why := fmt.Sprintf("somebody changed it from %q to %q since", a.Set, a.Found)
		if a.NeededBy != "" {
			why = a.NeededBy + " needs it"
		}
		fmt.Fprintf(w, "left as it is: %s: %s, it was %q before\n", a.Name, why, a.Before)
	}
}

func printWaiting(w io.Writer, all []enforce.Waiting) {
	for _, a := range all {
		fmt.Fprintln(w, a)
	}
}

func printUnits(w io.Writer, units []unit.CPUs) {
	for _, u := range units {
		fmt.Fprintln(w, "note: unit", u)
	}
}

func printDrift(w io.Writer, what string, all []enforce.Drift) {
	for _, d := range all {
		fmt.Fprintf(w, "%s: %s: expected %q, found %q", what, d.Name, d.Expected, d.Found)
		if d.Note != "" {
			fmt.Fprintf(w, ": %s", d.Note)
		}
		fmt.Fprintln(w)
	}
}

// ConflictText says which CPUs the lanes in force have, and how to release them; "" if there are none, or
// they cannot be read.
func ConflictText(o Options) string {
	l, err := Look(o)
	if err != nil {
		return ""
	}
	var have, names []string
	for _, lane := range l.Placement.Lanes {
		cpus := "CPU "
		if lane.Owned().Len() > 1 {
			cpus = "CPUs "
		}
		have = append(have, "lane "+lane.Name+" has "+cpus+lane.Owned().String())
		names = append(names, lane.Name)
	}
	if len(names) == 0 {
		return ""
	}
	return strings.Join(have, ", ") + ": isolane release " + strings.Join(names, " ") + " first"
}
