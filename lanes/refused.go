package lanes

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"isolane.dev/isolane/change"
	"isolane.dev/isolane/cpuset"
	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/quantity"
)

// printRefused says in a line each what the kernel keeps for a reason that is known, and lists it with
// verbose.
func printRefused(w io.Writer, refused []enforce.Refusal, verbose bool) {
	var interrupts []int
	threads := 0
	said := map[string]bool{} // a partition may be refused in either kind
	for _, r := range refused {
		var irq int
		switch {
		case strings.HasPrefix(r.Target, "/proc/irq/"):
			if _, err := fmt.Sscanf(r.Target, "/proc/irq/%d/", &irq); err == nil && !slices.Contains(interrupts, irq) {
				interrupts = append(interrupts, irq)
			}
		case !strings.HasPrefix(r.Target, "/") && !strings.Contains(r.Target, " "):
			threads++
			if verbose {
				fmt.Fprintf(w, "kept by the kernel: %s\n", change.TaskName("CPUs of thread", r.Target))
			}
		default:
			if text := r.Target + ": " + refusedBecause(r); !said[text] {
				fmt.Fprintln(w, "refused by the kernel:", text)
				said[text] = true
			}
		}
	}
	if n := len(interrupts); n > 0 {
		fmt.Fprintf(w, "the kernel keeps %s on lanes' CPUs (%s)%s\n", quantity.Count(n, "interrupt"),
			cpuset.Of(interrupts...),
			more(verbose, ": managed by the kernel or bound to a CPU: only isolcpus=managed_irq at boot keeps it "+
				"away; "+
				"isolane watch shows whether it fires"))
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

// refusedBecause explains what the kernel's error numbers do not.
func refusedBecause(r enforce.Refusal) string {
	switch {
	// PERR_HKEEPING
	case strings.HasSuffix(r.Target, ".partition") && strings.Contains(r.Reason, "housekeeping setup"):
		return "boot isolated these CPUs, and this kernel makes no partition of such: they stay closed to all " +
			"that does not ask for them"
	// and who has them
	case strings.HasSuffix(r.Target, ".partition") && !strings.Contains(r.Reason, "not exclusive"):
		return r.Reason + ": the lane's CPUs are kept from others as far as this kernel lets them"
	}
	return r.Reason
}
