package lanes

import (
	"fmt"
	"io"
	"strings"

	"isolane.dev/isolane/enforce"
)

// WriteCommands prints the commands that a person would type to put a difference in force.
func WriteCommands(w io.Writer, d enforce.Difference) {
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

// WriteDifference prints lanes, and settings with + if they are new, - if they go, and ~ if they change.
func WriteDifference(w io.Writer, d enforce.Difference) {
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
