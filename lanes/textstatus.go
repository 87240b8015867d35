package lanes

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"isolane.dev/isolane/enforce"
	"isolane.dev/isolane/quantity"
)

// WriteStatus prints for people what is in force; with verbose also each setting that the kernel refused.
func WriteStatus(w io.Writer, s enforce.Status, verbose bool) {
	if len(s.Lanes) == 0 {
		fmt.Fprintln(w, "no lanes are in force")
	}
	for _, l := range s.Lanes {
		fmt.Fprintf(w, "lane %s: CPUs %s, memory of NUMA node %s, %s\n  %s", l.Name, l.CPUs, l.MemoryNodes,
			quantity.Count(l.Processes, "process"), l.Group)
		if l.Own {
			fmt.Fprint(w, " (the workload's own)")
		}
		if l.Partition != "" {
			fmt.Fprintf(w, ", partition %s", l.Partition)
		}
		if l.Idle != "" {
			fmt.Fprintf(w, ", siblings %s idle", l.Idle)
		}
		var attached []string
		for _, a := range l.Attached {
			text := a.Group
			switch {
			case a.Group == l.Group:
				continue
			case a.Moved:
				text += " (moved out of it)"
			case text == "":
				text = fmt.Sprintf("process %d", a.PID)
			}
			attached = append(attached, text)
		}
		if len(attached) > 0 {
			fmt.Fprintf(w, ", attached: %s", strings.Join(attached, ", "))
		}
		fmt.Fprintf(w, "\n  %s\n", l.Balance)
		if n := l.Network; n != nil {
			fmt.Fprintf(w, "  %s\n", networkText(*n))
		}
		if l.Missing != "" {
			fmt.Fprintf(w, "  no processes in cgroup %s: isolane apply puts the lane there when it has some\n",
				l.Missing)
		}
		for _, o := range l.Objectives {
			fmt.Fprintf(w, "  objective %s\n", o)
		}
		if p := l.Proof; p != nil {
			fmt.Fprintf(w, "  measured %s by scenario %s, %s: %s\n", p.At.Local().Format(time.DateTime), p.Scenario,
				p.Mode, p.Results)
		}
	}
	if len(s.Lanes) > 0 {
		fmt.Fprintf(w, "housekeeping: CPUs %s\n%s of the host changed\n", s.Housekeeping,
			quantity.Count(s.Settings, "setting"))
	}
	printDrift(w, "not in force", s.Drift)
	for _, dir := range s.Unrecorded {
		fmt.Fprintf(w, "without a record: %s\n", dir)
	}
	printRefused(w, s.Refused, verbose)
}

// networkText describes a lane's network in one line.
func networkText(n enforce.NetworkStatus) string {
	text := "path " + n.Path
	if n.Device != "" {
		text += " on " + n.Device
	}
	if n.Uplink != "" {
		text += " (" + n.Uplink + ")"
	}
	switch {
	case n.VLAN.Inner > 0:
		text += fmt.Sprintf(" VLAN %d.%d", n.VLAN.Outer, n.VLAN.Inner)
	case n.VLAN.Outer > 0:
		text += fmt.Sprintf(" VLAN %d", n.VLAN.Outer)
	}
	if n.Socket != "" {
		text += ", vhost-user at " + n.Socket
	} else if len(n.PCI) > 0 {
		text += ", virtual function " + strings.Join(n.PCI, ", ") + " on " + n.Driver
	} else {
		text += fmt.Sprintf(", %s in namespace %s", n.Interface, n.Namespace)
	}
	for _, a := range n.Addresses {
		text += " " + a.String()
	}
	if t := n.Traffic; t != nil {
		text += fmt.Sprintf(", packets: %d received, %d sent, %d dropped", t.Received, t.Sent, t.Dropped)
		if t.Refused > 0 {
			text += fmt.Sprintf(", %d refused because the lane may not send them, or not so many", t.Refused)
		}
	} else if len(n.PCI) > 0 {
		text += ", packets: none that the card has counted"
	}
	return text
}

// UnsettledError says what is not as it should be, and what to do.
type UnsettledError struct{ text string }

func (e *UnsettledError) Error() string { return e.text }

// Unsettled returns an *UnsettledError, or nil if all is as it should be.
func Unsettled(s enforce.Status) error {
	var parts []string
	if n := len(s.Drift); n > 0 {
		are, them := "are", "them"
		if n == 1 {
			are, them = "is", "it"
		}
		remedy := "isolane apply puts " + them + " back"
		if !slices.ContainsFunc(s.Drift, func(d enforce.Drift) bool { return d.Note == "" }) {
			remedy = "what is to be done is said with " + them
		}
		parts = append(parts, fmt.Sprintf("%s %s not as the lanes want %s: %s",
			quantity.Count(n, "setting"), are, them, remedy))
	}
	for _, l := range s.Lanes {
		if l.Abandoned {
			parts = append(parts, fmt.Sprintf("the isolane run that made lane %s has ended: isolane recover "+
				"releases it", l.Name))
		}
	}
	if n := len(s.Unrecorded); n > 0 {
		parts = append(parts, fmt.Sprintf("%s of isolane's without a record of what was before: isolane recover "+
			"--adopt takes over", quantity.Count(n, "cgroup")))
	}
	if len(parts) == 0 {
		return nil
	}
	return &UnsettledError{strings.Join(parts, "; ")}
}
