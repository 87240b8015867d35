package history

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"isolane.dev/isolane/terminal"
)

// Write prints the events for people, in local time, the newest last.
func (l List) Write(w io.Writer) {
	t := terminal.Of(w)
	of, itself := "", l.Lane == ""
	if l.Lane != "" {
		of = " of lane " + l.Lane
	}
	between := fmt.Sprintf("%s between %s and %s\n", of, l.Since.Local().Format(time.DateTime),
		l.Until.Local().Format(time.DateTime+" (UTC-07:00)"))
	if len(l.Events) == 0 {
		fmt.Fprint(w, "no events", between)
		return
	}
	_, offset := l.Until.Local().Zone()
	zone := time.FixedZone("", offset) // one zone for all, because the head of the table names it
	hours := "time (" + l.Until.In(zone).Format("UTC-07:00") + ")"
	table := terminal.Table{Head: []string{hours, "lane", "event", "what"}}
	for _, e := range l.Events {
		itself = itself || e.Lane == l.Lane
		table.Rows = append(table.Rows, []string{e.At.In(zone).Format(time.DateTime),
			terminal.Clean(cmp.Or(e.Lane, "–")), paint(t, e), terminal.Clean(e.text())})
	}
	fmt.Fprint(w, t.Table(table))
	if !itself {
		fmt.Fprint(w, t.Fold("", "these are the host's: no events"+between))
	}
}

// text says what has happened, and who did it.
func (e Event) text() string {
	text := e.What
	if e.By != "" {
		text += ", by " + e.By
	}
	if who := e.Who; who != nil {
		login := cmp.Or(who.Login, fmt.Sprintf("user %d", who.UID))
		text += "; " + login + ": " + strings.TrimSpace(who.Command)
	}
	return text
}

// paint colours events by their importance.
func paint(t terminal.Terminal, e Event) string {
	text := string(e.Kind)
	switch {
	case e.Kind == Damaged, e.Verdict == "missed":
		return t.Red(text)
	case e.Kind == Drifted, e.Kind == Clock:
		return t.Yellow(text)
	}
	return text
}
