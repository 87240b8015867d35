package main

import (
	"fmt"
	"io"
	"strings"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/lanes"
	"isolane.dev/isolane/plan"
	"isolane.dev/isolane/quantity"
)

func printApplied(w io.Writer, a lanes.Applied, verbose bool) {
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
	for _, o := range a.Change.Outside {
		fmt.Fprintf(w, "no longer in lane %s: %s\n", o.Lane, o.Reason)
	}
	printRefused(w, a.Refused, verbose)
	printLeft(w, a.Left)
	for _, name := range a.Untested {
		fmt.Fprintf(w, "untested on a real kernel: %s\n", name)
	}
	printUnits(w, a.Units)
}

// changes is what was done this time.
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

func printLeft(w io.Writer, all []lanes.Left) {
	for _, a := range all {
		fmt.Fprintf(w, "left as it is: %s: somebody changed it from %q to %q since, it was %q before\n", a.Target,
			a.Set, a.Found, a.Before)
	}
}

func printUnits(w io.Writer, units []enforce.UnitCPUs) {
	for _, u := range units {
		fmt.Fprintln(w, "note: unit", u)
	}
}

func printDrift(w io.Writer, what string, all []enforce.Drift) {
	for _, d := range all {
		fmt.Fprintf(w, "%s: %s: expected %q, found %q", what, d.Target, d.Expected, d.Found)
		if d.Note != "" {
			fmt.Fprintf(w, ": %s", d.Note)
		}
		fmt.Fprintln(w)
	}
}

// printRefused says in a line each what the kernel keeps for a reason that is known, and lists it with
// verbose.
func printRefused(w io.Writer, refused []enforce.Refusal, verbose bool) {
	var interrupts cpuset.Set // their numbers
	threads := 0
	said := map[string]bool{} // a partition may be refused in either kind
	for _, r := range refused {
		switch {
		case r.IRQ != nil:
			interrupts = interrupts.Union(cpuset.Of(*r.IRQ))
		case r.Subject == enforce.Thread:
			if threads++; verbose {
				fmt.Fprintln(w, "kept by the kernel:", r.Name)
			}
		case !said[r.String()]:
			fmt.Fprintln(w, "refused by the kernel:", r)
			said[r.String()] = true
		}
	}
	if n := interrupts.Len(); n > 0 {
		fmt.Fprintf(w, "the kernel keeps %s on lanes' CPUs (%s)%s\n", quantity.Count(n, "interrupt"), interrupts,
			more(verbose, ": managed by the kernel or bound to a CPU: only isolcpus=managed_irq at boot keeps it "+
				"away; isolane watch shows whether it fires"))
	}
	if threads > 0 {
		fmt.Fprintf(w, "the kernel keeps %s of its own on lanes' CPUs%s\n", quantity.Count(threads, "thread"),
			more(verbose, ": bound to its CPU: isolane watch shows what it costs"))
	}
}

func more(verbose bool, text string) string {
	if !verbose {
		return ""
	}
	return text
}

// printCommands prints what a person would type.
func printCommands(w io.Writer, d enforce.Difference) {
	for _, s := range d.Settings {
		line := s.Command
		var about []string
		if strings.HasPrefix(line, "taskset ") {
			_, name, _ := strings.Cut(s.Name, "(")
			about = append(about, strings.TrimSuffix(name, ")"))
		}
		if s.From != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "for ") {
			about = append(about, "was "+s.From)
		}
		if s.MayBeRefused {
			about = append(about, "the kernel may refuse")
		}
		if len(about) > 0 {
			line += " # " + strings.Join(about, ", ")
		}
		fmt.Fprintln(w, line)
	}
	for _, name := range d.Unread {
		fmt.Fprintf(w, "# needs root to read %s: it may be changed too\n", name)
	}
	if d.None() {
		fmt.Fprintln(w, "# nothing is missing")
	}
	for _, u := range d.Units {
		fmt.Fprintln(w, "# unit", u)
	}
}

// printDifference prints lanes, and settings with + where there was none, - where there will be none, and ~.
func printDifference(w io.Writer, d enforce.Difference) {
	for _, l := range d.Lanes {
		switch l.Change {
		case "added":
			fmt.Fprintf(w, "+ lane %s: CPUs %s\n", l.Name, l.To)
		case "removed":
			fmt.Fprintf(w, "- lane %s: CPUs %s\n", l.Name, l.From)
		case "moved":
			fmt.Fprintf(w, "~ lane %s: moved from CPUs %s to %s\n", l.Name, l.From, l.To)
		default:
			fmt.Fprintf(w, "~ lane %s: changed where it is, CPUs %s\n", l.Name, l.To)
		}
	}
	for _, s := range d.Settings {
		switch {
		case s.From == "":
			fmt.Fprintf(w, "+ %s: %s\n", s.Name, s.To)
		case s.To == "":
			fmt.Fprintf(w, "- %s: %s\n", s.Name, s.From)
		default:
			fmt.Fprintf(w, "~ %s: %s -> %s\n", s.Name, s.From, s.To)
		}
	}
	for _, name := range d.Unread {
		fmt.Fprintf(w, "? %s: needs root to read it\n", name)
	}
	printUnits(w, d.Units)
}

func printReleased(w io.Writer, r lanes.Released) {
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
}
