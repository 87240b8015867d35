package lanes

import (
	"fmt"
	"io"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/quantity"
)

// printRefused says in a line each what the kernel keeps for a reason that is known, and lists it with
// verbose.
func printRefused(w io.Writer, refused []enforce.RefusedStep, verbose bool) {
	var interrupts cpuset.Set // their numbers
	threads := 0
	why := map[enforce.Subject]string{}
	said := map[string]bool{} // a partition may be refused in either kind
	for _, r := range refused {
		if verbose {
			why[r.Subject] = ": " + r.Reason
		}
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
		fmt.Fprintf(w, "the kernel keeps %s where it may come to lanes' CPUs (%s)%s\n",
			quantity.Count(n, "interrupt"), interrupts, why[enforce.Interrupt])
	}
	if threads > 0 {
		fmt.Fprintf(w, "the kernel keeps %s of its own on lanes' CPUs%s\n", quantity.Count(threads, "thread"),
			why[enforce.Thread])
	}
}
