package lanes

import (
	"fmt"
	"io"

	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/quantity"
)

// printRefused sums up, in a line each, the interrupts and threads that the kernel kept where they were, and
// lists other refusals. With verbose it adds reasons, and lists the threads.
func printRefused(w io.Writer, refused []enforce.RefusedStep, verbose bool) {
	var interrupts cpuset.Set // by number
	threads := 0
	why := map[enforce.Subject]string{}
	said := map[string]bool{} // a partition may be refused in both kinds
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
